package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// The tests of this file repeat what went wrong with elections in other coordination systems,
// unless another test does. embed/testdata/peers.md lists which test is for which bug.

// A call is one call of the fn of a Run.
type call struct {
	ctx   context.Context
	token lock.Token
	leave func() // makes fn return
	left  <-chan struct{}
}

// runs starts a Run whose fn returns only when it is told to, even if its ctx has ended. over tells
// that Run has returned.
func runs(ctx context.Context, n embed.Opener, value string) (calls <-chan call, over <-chan error) {
	began, ended := make(chan call, 16), make(chan error, 1)
	go func() {
		ended <- election.Run(ctx, n, path, []byte(value), func(ctx context.Context, token lock.Token) error {
			told, left := make(chan struct{}), make(chan struct{})
			defer close(left)
			began <- call{ctx, token, sync.OnceFunc(func() { close(told) }), left}
			<-told
			return nil
		})
	}()
	return began, ended
}

// next returns the next call of the fn of a Run.
func next(t testing.TB, calls <-chan call) call {
	t.Helper()
	select {
	case got := <-calls:
		return got
	case <-bounded(t).Done():
		t.Fatal("fn is never called")
		return call{}
	}
}

// Run is called as soon as its node has started, which is not ready and has no quorum. It leads
// once there is one. In CURATOR-110 a latch that was started before its client was connected never
// led.
func TestRun_BegunBeforeThereIsAQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 100 * time.Millisecond }})
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		ctx, cancel := context.WithCancel(bounded(t))
		calls, over := runs(ctx, ens.Start(1), "early")
		ens.Start(2)
		led := next(t, calls)
		if err := led.ctx.Err(); err != nil {
			t.Errorf("its leadership has ended as fn begins: %v", err)
		}
		cancel()
		led.leave()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A looker is a ctx that calls do when one of its methods is called for the n-th time.
type looker struct {
	context.Context
	n     int64
	do    func()
	looks atomic.Int64
}

func (l *looker) look() {
	if l.looks.Add(1) == l.n {
		l.do()
	}
}

// asleep waits until nobody asks any more. On a slow machine it may be wrong.
func (l *looker) asleep() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for quiet, last := 0, int64(-1); quiet < 4; quiet++ {
		<-tick.C
		if now := l.looks.Load(); now != last {
			quiet, last = -1, now
		}
	}
}

func (l *looker) Err() error            { l.look(); return l.Context.Err() }
func (l *looker) Done() <-chan struct{} { l.look(); return l.Context.Done() }
func (l *looker) Value(key any) any     { l.look(); return l.Context.Value(key) }

// The leadership is lost at any step of the way to fn, even when it has been granted and fn is not
// called yet. The ctx that fn gets has ended then, and Run campaigns again. In curator@37cf6524 a
// turn was cancelled before it had a thread that could be interrupted, and went on.
func TestRun_LostBeforeItsTurnBegins(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		enough := errors.New("enough")
		var lost, late atomic.Int32
		var wg sync.WaitGroup
		for n := range int64(40) {
			path := fmt.Sprintf("/election/%d", n)
			ctx := &looker{Context: bounded(t), n: n + 1, do: func() {
				names, _, err := s.Children(bounded(t), path)
				if err == nil && len(names) > 0 {
					lost.Add(1)
					err = s.Delete(bounded(t), path+"/"+names[0], embed.AnyVersion)
				}
				if err != nil && !errors.Is(err, embed.ErrNoNode) {
					t.Error(err)
				}
			}}
			wg.Go(func() {
				err := election.Run(ctx, ens.Opener(1), path, nil, func(inner context.Context, token lock.Token) error {
					leads := false
					if l, err := election.New(s, path).Leader(bounded(t)); err == nil {
						leads = l.Token == token
					} else if !errors.Is(err, election.ErrNoLeader) {
						t.Error(err)
					}
					if leads {
						return enough
					}
					late.Add(1)
					if inner.Err() == nil || !errors.Is(context.Cause(inner), embed.ErrDeleted) {
						t.Errorf("step %d: fn begins without the leadership, its ctx says %v, %v", n, inner.Err(), context.Cause(inner))
					}
					return nil
				})
				if !errors.Is(err, enough) {
					t.Errorf("step %d: Run returned %v", n, err)
				}
			})
		}
		wg.Wait()
		t.Logf("lost %d times, %d of them between the grant and fn", lost.Load(), late.Load())
		if late.Load() == 0 {
			t.Error("no leadership was lost between its grant and fn")
		}
	})
}

// When ctx ends, Run leads until fn has returned. Only then is the next candidate let in, and at
// once. In kyverno#6048 and kyverno#5180 the lock was released while its holder was still at work.
// In kubernetes#95939 and knative/pkg#1835 it was not released, and the next one waited for a
// timeout.
func TestRun_HandsOverWhenFnHasReturned(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.MinSessionTimeout, c.MaxSessionTimeout = time.Hour, time.Hour }})
		s := ens.Session(1, embed.SessionOptions{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		calls, over := runs(ctx, ens.Opener(1), "first")
		first := next(t, calls)
		later, stop := context.WithCancel(bounded(t))
		defer stop()
		others, _ := runs(later, ens.Opener(1), "second")
		ens.Until("the other to stand", func() bool { return len(candidates(t, s)) == 2 })
		cancel()
		<-first.ctx.Done()
		for i := range 50 { // commits; a premature release would be one of them
			_, err := s.Create(bounded(t), fmt.Sprint("/work-", i), nil, embed.Ephemeral)
			must(t, err)
			if l, err := election.New(s, path).Leader(bounded(t)); err != nil || string(l.Value) != "first" {
				t.Fatalf("%q leads, %v; the first is still at work", l.Value, err)
			}
		}
		began := time.Now()
		first.leave()
		second := next(t, others)
		t.Logf("handed over in %v", time.Since(began))
		select {
		case <-first.left:
		default:
			t.Error("the next one leads, and the first is still at work")
		}
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		second.leave()
	})
}

// The leader's node is shut down. The leader learns it before the next one leads, which does not
// wait for a timeout. In knative/pkg#1835 and kubernetes#95939 a process that ended in good order
// left its lock to a timeout.
func TestRun_AShutdownHandsOver(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.MinSessionTimeout, c.MaxSessionTimeout = time.Hour, time.Hour }})
		calls, over := runs(bounded(t), ens.Opener(1), "first")
		first := next(t, calls)
		later, stop := context.WithCancel(bounded(t))
		defer stop()
		others, _ := runs(later, ens.Opener(2), "second")
		s := ens.Session(3, embed.SessionOptions{})
		ens.Until("the other to stand", func() bool { return len(candidates(t, s)) == 2 })
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			if err := ens.Node(1).Shutdown(bounded(t)); err != nil {
				t.Error(err)
			}
		}()
		second := next(t, others)
		if first.ctx.Err() == nil {
			t.Error("two lead")
		}
		first.leave()
		if err := <-over; !errors.Is(err, embed.ErrClosed) {
			t.Errorf("Run returned %v", err)
		}
		<-stopped
		second.leave()
	})
}

// The ctx of a Run ends and its node is closed at the same moment. Run returns, and the next one
// leads when the session has expired. In CURATOR-466 a selector was closed together with its client
// and never ended.
func TestRun_EndsWithItsCtxAndItsNodeAtOnce(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.MaxSessionTimeout = time.Second }})
		ens.TransferLeadership(2)
		ctx, cancel := context.WithCancel(bounded(t))
		calls, over := runs(ctx, ens.Opener(1), "first")
		first := next(t, calls)
		later, stop := context.WithCancel(bounded(t))
		defer stop()
		others, _ := runs(later, ens.Opener(2), "second")
		first.leave()
		go cancel()
		must(t, ens.Node(1).Close())
		select {
		case err := <-over:
			if !errors.Is(err, context.Canceled) && !errors.Is(err, embed.ErrClosed) {
				t.Errorf("Run returned %v", err)
			}
		case <-bounded(t).Done():
			t.Error("Run outlives its ctx and its node")
		}
		second := next(t, others)
		if first.ctx.Err() == nil || second.token.Compare(first.token) <= 0 {
			t.Errorf("token %v after %v; the first says %v", second.token, first.token, first.ctx.Err())
		}
		second.leave()
	})
}

// A session ends while its candidates wait. They learn it at once, while the leader leads on. In
// etcd#19597 a candidate with a dead session learned it only when those ahead had gone.
func TestElection_ACandidateWithADeadSessionFailsAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, dying := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		leader := (<-stands(t, ens, s, "leader")).leadership
		first, second := stands(t, ens, dying, "first"), stands(t, ens, dying, "second")
		must(t, dying.Close())
		for _, c := range []<-chan outcome{first, second} {
			if got := <-c; !errors.Is(got.err, embed.ErrSessionClosed) {
				t.Errorf("a candidate of a closed session: %v, %v", got.leadership, got.err)
			}
		}
		must(t, leader.Err())
		if names := candidates(t, s); len(names) != 1 {
			t.Errorf("in the queue: %v", names)
		}
	})
}

// latched returns the leaderships of those latches that lead.
func latched(latches []*election.Latch) (now []*election.Leadership) {
	for _, l := range latches {
		if leads, ok := l.Leadership(); ok {
			now = append(now, leads)
		}
	}
	return now
}

// A Latch loses its session and gets another, again and again, beside another Latch on the same
// member. One at a time leads, nobody leads without a place in the queue, and when nothing happens
// any more, nobody is reset.
//
// In CURATOR-620 and CURATOR-653 one of two simultaneous reconnects deleted the znode with which
// the other began to lead. In CURATOR-652 a latch that had lost its place led on. In CURATOR-504,
// CURATOR-644 and CURATOR-645 two latches reset each other for ever.
func TestLatch_TwoReconnectsInterleave(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(3, embed.SessionOptions{})
		var latches []*election.Latch
		members := []embed.MemberID{1, 1, 2}
		for i, id := range members {
			l := election.NewLatch(ens.Opener(id), path, fmt.Append(nil, i), election.Options{})
			defer l.Close()
			latches = append(latches, l)
		}
		var last *election.Leadership
		next := func() {
			t.Helper()
			ens.Until("the next leader", func() bool {
				now := latched(latches)
				if len(now) > 1 && now[0].Err() == nil { // it still leads when the other one did
					t.Fatalf("%v leads beside %v", now[0].Token(), now[1].Token())
				}
				if len(now) == 0 || now[0] == last {
					return false
				}
				if last != nil && now[0].Token().Compare(last.Token()) <= 0 {
					t.Errorf("token %v after %v", now[0].Token(), last.Token())
				}
				last = now[0]
				return true
			})
		}
		for range 8 {
			next()
			for i, l := range latches {
				if now, _ := l.Leadership(); now == last {
					// Its sessions are lost and replaced, twice before anybody can look.
					for jump := range 4 {
						ens.Faults(members[i]).SetWallClock(time.Duration(1-jump%2) * time.Hour)
						if now, ok := l.Leadership(); ok && now == last {
							t.Errorf("%v leads on, and its session is lost", now.Token())
						}
					}
				}
			}
		}
		next()
		ens.Until("one to lead and all others to wait", func() bool {
			_, err := s.Sync(bounded(t), "/")
			must(t, err)
			return len(candidates(t, s)) == len(latches) && len(latched(latches)) == 1
		})
		stays, before := latched(latches)[0], candidates(t, s)
		for i := range 50 { // commits; a reset would be one of them
			_, err := s.Create(bounded(t), fmt.Sprint("/after-", i), nil, embed.Ephemeral)
			must(t, err)
		}
		if now := latched(latches); len(now) != 1 || now[0] != stays || !slices.Equal(candidates(t, s), before) {
			t.Errorf("%d lead, and %v stand after %v, though nothing has happened", len(now), candidates(t, s), before)
		}
	})
}

// A Latch begins while a znode of its former session, which is not over yet, is the first in the
// queue. That znode is not its own. In CURATOR-696 a latch found the znode of its own dead session
// at the head of the queue and led beside another.
func TestLatch_TheCandidateOfItsLostSessionIsNotItsOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, dying := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		_, first := enters(t, dying, "the same process", 0)
		former := leads(t, first)
		l := election.NewLatch(ens.Opener(1), path, []byte("the same process"), election.Options{})
		defer l.Close()
		ens.Until("it to stand", func() bool { return len(candidates(t, s)) == 2 })
		_, last := enters(t, s, "another", 0)
		if l.IsLeader() {
			t.Error("it leads beside its former self")
		}
		must(t, dying.Close())
		ens.Until("it to lead", l.IsLeader)
		now, _ := l.Leadership()
		must(t, l.Close())
		grow(t, former, now, leads(t, last))
	})
}

// All znodes of the election vanish at once. The latches stand again, and one leads. In CURATOR-724
// a latch whose parent had vanished never recovered.
func TestLatch_SurvivesTheDeletionOfItsPath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		var latches []*election.Latch
		for range 3 {
			l := election.NewLatch(ens.Opener(1), path, nil, election.Options{})
			defer l.Close()
			latches = append(latches, l)
		}
		for range 3 {
			ens.Until("one to lead and all others to wait", func() bool { return len(candidates(t, s)) == 3 && len(latched(latches)) == 1 })
			lost := latched(latches)[0]
			var ops []embed.Op
			for _, name := range candidates(t, s) {
				ops = append(ops, embed.OpDelete(path+"/"+name, embed.AnyVersion))
			}
			_, err := s.Multi(bounded(t), append(ops, embed.OpDelete(path, embed.AnyVersion))...)
			must(t, err)
			ens.Until("another turn", func() bool { now := latched(latches); return len(now) == 1 && now[0] != lost })
			grow(t, lost, latched(latches)[0])
		}
	})
}
