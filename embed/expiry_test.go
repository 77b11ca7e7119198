package embed_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// lastHeld asks a Hold over and over and says when it last asked and was told that it holds.
func lastHeld(h *lock.Hold) <-chan time.Time {
	out := make(chan time.Time, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for asked := last; h.Err() == nil; asked = <-tick.C {
			last = asked
		}
		out <- last
	}()
	return out
}

// awaits waits until a session is in a state.
func awaits(t *testing.T, s *embed.Session, want embed.State) {
	t.Helper()
	ctx := bounded(t)
	for {
		now, changed := s.State()
		if now == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the session is %v, want %v", now, want)
		}
	}
}

// A member that holds a lock is cut off. Another one waits for the lock. When it is granted, whatever is asked of the first
// Hold is answered "lost", and was before. Healed, the member serves again without a restart, and nothing of the Hold
// revives.
func TestGuarantee_ToldFirst(t *testing.T) {
	for name, leads := range map[string]bool{"a follower is cut off": false, "the leader is cut off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			const victim, other = embed.MemberID(1), embed.MemberID(2)
			if leads {
				ens.MoveLeader(victim)
			} else {
				ens.MoveLeader(other)
			}
			s := ens.Session(victim, embed.SessionOptions{Timeout: 1500 * time.Millisecond})
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			waiter := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
			held := lastHeld(hold)
			ens.Isolate(victim)

			next, err := lock.NewMutex(waiter, "/lock").Lock(ctx)
			granted := time.Now()
			lost := hold.Err()
			must(t, err)
			if lost == nil {
				t.Error("two hold the lock")
			}
			if last := <-held; !last.Before(granted) {
				t.Errorf("the first Hold said that it holds %v after the second was granted", last.Sub(granted))
			}
			<-hold.Done()
			if !errors.Is(lost, embed.ErrSuspended) || !errors.Is(context.Cause(hold.Context()), embed.ErrSuspended) {
				t.Errorf("the Hold ended with %v, its context with %v", lost, context.Cause(hold.Context()))
			}
			if next.Token().Compare(hold.Token()) <= 0 {
				t.Errorf("token %v after %v", next.Token(), hold.Token())
			}
			if state, _ := s.State(); state != embed.Suspended && state != embed.Expired {
				t.Errorf("the session is %v", state)
			}

			ens.HealAll()
			awaits(t, s, embed.Expired)
			if !errors.Is(s.Err(), embed.ErrSessionExpired) || hold.Err() == nil {
				t.Errorf("session: %v, hold: %v", s.Err(), hold.Err())
			}
			must(t, next.Release())
			again, err := lock.NewMutex(ens.Session(victim, embed.SessionOptions{}), "/lock").Lock(ctx)
			must(t, err)
			if again.Token().Compare(next.Token()) <= 0 {
				t.Errorf("token %v after %v", again.Token(), next.Token())
			}
			_, err = waiter.Sync(ctx, "/")
			must(t, err)
			if names, _, err := waiter.Children(ctx, "/lock"); err != nil || len(names) != 1 {
				t.Errorf("in the queue: %v, %v", names, err)
			}
		})
	}
}

// No member can reach another for longer than it takes to be Suspended, and nobody can have expired anything. The session
// and its ephemerals survive; what it held does not come back, and its place in the queue is given up.
func TestGuarantee_ToldFirst_ASuspendedSessionComesBackWithoutItsHolds(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ctx := bounded(t)
	s := ens.Session(1, embed.SessionOptions{Timeout: 3 * time.Second})
	hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	_, err = s.Create(ctx, "/mine", nil, embed.Ephemeral)
	must(t, err)
	for _, id := range ens.Members() {
		ens.Isolate(id)
	}
	awaits(t, s, embed.Suspended)
	if !errors.Is(hold.Err(), embed.ErrSuspended) {
		t.Errorf("hold of a suspended session: %v", hold.Err())
	}
	ens.HealAll()
	awaits(t, s, embed.Connected)
	must(t, s.Err())
	if !errors.Is(hold.Err(), embed.ErrSuspended) {
		t.Errorf("the hold came back: %v", hold.Err())
	}
	must(t, hold.Release()) // its znode goes ahead of all else; now it certainly has
	other := ens.Session(2, embed.SessionOptions{})
	_, err = other.Sync(ctx, "/")
	must(t, err)
	if _, ok, err := other.Exists(ctx, hold.Path()); ok || err != nil {
		t.Errorf("the contender is still there: %v", err)
	}
	if _, ok, err := other.Exists(ctx, "/mine"); !ok || err != nil {
		t.Errorf("the ephemeral is gone: %v", err)
	}
	next, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	if next.Token().Compare(hold.Token()) <= 0 {
		t.Errorf("token %v after %v", next.Token(), hold.Token())
	}
}

// every calls fn at intervals until the context ends.
func every(ctx context.Context, interval time.Duration, fn func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// Leaders that come and go each count the silence anew or twice: etcd's leases never ended under churn, and all ended when
// a deposed leader went on counting. Here a live session outlives six leaders.
func TestGuarantee_ExpiryBounded_ALiveSessionOutlivesLeaders(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	const timeout, moves = 1200 * time.Millisecond, 6
	s := ens.Session(3, embed.SessionOptions{Timeout: timeout})
	_, err := s.Create(bounded(t), "/mine", nil, embed.Ephemeral)
	must(t, err)
	n := 0
	ctx, cancel := context.WithCancel(bounded(t))
	every(ctx, timeout/2, func() {
		ens.MoveLeader(ens.Leader()%3 + 1)
		if n++; n == moves {
			cancel()
		}
	})
	if err := s.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
	if _, ok, err := s.Exists(bounded(t), "/mine"); !ok || err != nil {
		t.Errorf("its ephemeral is gone: %v", err)
	}
}

// The bound is the timeout and one commit for each of its steps, a second in all; each change of leader adds at most a
// step that was not committed and the time without a leader. What a commit takes here and now is measured beside it.
func TestGuarantee_ExpiryBounded(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	for name, c := range map[string]struct {
		leads bool // the member that dies
		churn bool // the leadership moves every half timeout
	}{
		"of a follower":             {},
		"of the leader":             {leads: true},
		"while leaders come and go": {churn: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			const victim = embed.MemberID(3)
			ens.MoveLeader(1)
			if c.leads {
				ens.MoveLeader(victim)
			}
			s := ens.Session(victim, embed.SessionOptions{Timeout: timeout})
			witness := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
			before := time.Now()
			path, err := s.Create(ctx, "/mine", nil, embed.Ephemeral)
			must(t, err)
			_, err = witness.Sync(ctx, "/")
			must(t, err)
			gone, err := witness.Watch(ctx, path, embed.WatchOnce)
			must(t, err)

			ens.Kill(victim)
			killed := time.Now()
			var slowest time.Duration // commit
			changes := 0
			var beside sync.WaitGroup
			watching, done := context.WithCancel(ctx)
			beside.Go(func() {
				every(watching, 10*time.Millisecond, func() {
					began := time.Now()
					if _, err := witness.Set(ctx, "/", nil, embed.AnyVersion); err != nil {
						t.Error(err)
					}
					slowest = max(slowest, time.Since(began))
				})
			})
			if c.churn {
				beside.Go(func() {
					every(watching, timeout/2, func() {
						ens.MoveLeader(3 - ens.Leader())
						changes++
					})
				})
			}
			select {
			case <-gone.Events():
			case <-ctx.Done():
				t.Fatal("the session never expired")
			}
			expired := time.Now()
			done()
			beside.Wait()
			if lived := expired.Sub(before); lived < timeout {
				t.Errorf("expired %v after its last word was sent, its timeout is %v", lived, timeout)
			}
			if c.leads {
				changes++
			}
			leaderless := engine.LongestElection(embedtest.DefaultTick)
			bound := timeout + 5*slowest + time.Second + time.Duration(changes)*(timeout/4+leaderless)
			t.Logf("expired %v after the kill; commits took up to %v, %d changes of leader", expired.Sub(killed), slowest, changes)
			if took := expired.Sub(killed); took > bound {
				t.Errorf("expired %v after the kill, the bound is %v", took, bound)
			}
		})
	}
}

// A6: the image's disk stands still on the leader while its log's disk is well, so that Raft keeps it in office and its machine
// applies nothing. It hands the leadership over, and the sessions of a member that died expire.
func TestGuarantee_ExpiryBounded_ALeaderThatDoesNotApply(t *testing.T) {
	t.Parallel()
	const leader, dead, other = 1, 2, 3
	h := newHanging(disk.OpSync, "/image/", 0)
	ens := embedtest.New(t, 3, embedtest.Options{Inside: func(id embed.MemberID) inside.Seams {
		if id != leader {
			return inside.Seams{}
		}
		return inside.Seams{Fault: h.ask}
	}})
	ens.MoveLeader(leader)
	_, err := ens.Session(dead, embed.SessionOptions{Timeout: time.Second}).Create(bounded(t), "/of-the-dead", nil, embed.Ephemeral)
	must(t, err)
	s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
	_, err = s.Sync(bounded(t), "/")
	must(t, err)
	h.begin()
	defer close(h.free)
	must(t, ens.Snapshot(leader)) // which has the machine wait for the image's disk
	<-h.hit
	ens.Kill(dead)
	ens.Until("the dead member's session to expire", func() bool {
		_, there, err := s.Exists(bounded(t), "/of-the-dead")
		must(t, err)
		return !there
	})
	if got := ens.Leader(); got != other {
		t.Errorf("member %d leads", got)
	}
}
