package election_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
}

const path = "/election"

var (
	must    = testkit.Must
	bounded = testkit.Context
)

func one(t testing.TB) *embedtest.Ensemble {
	t.Helper()
	return embedtest.New(t, 1, embedtest.Options{})
}

func candidates(t testing.TB, s *embed.Session) []string {
	t.Helper()
	names, _, err := s.Children(bounded(t), path)
	if errors.Is(err, embed.ErrNoNode) {
		return nil
	}
	must(t, err)
	return names
}

type outcome struct {
	leadership *election.Leadership
	err        error
}

// stands makes a candidate queue, and returns a channel for its outcome.
func stands(t testing.TB, ens *embedtest.Ensemble, s *embed.Session, value string) <-chan outcome {
	t.Helper()
	out := make(chan outcome, 1)
	_, err := s.Sync(bounded(t), "/") // otherwise candidates before it would be counted for it
	must(t, err)
	before := len(candidates(t, s))
	go func() {
		l, err := election.New(s, path).Campaign(bounded(t), []byte(value))
		out <- outcome{l, err}
	}()
	ens.Until("the candidate to queue", func() bool { return len(candidates(t, s)) == before+1 })
	return out
}

// resign gives a leadership up and waits until the ensemble knows. With a short request timeout a
// busy machine needs several attempts.
func resign(t testing.TB, l *election.Leadership) {
	t.Helper()
	ctx := bounded(t)
	err := l.Resign()
	for ctx.Err() == nil && (errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)) {
		err = l.Resign()
	}
	must(t, err)
}

func TestElection_CandidatesLeadInTheOrderTheyCame(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		var sessions []*embed.Session
		for _, id := range ens.Members() {
			sessions = append(sessions, ens.Session(id, embed.SessionOptions{Timeout: time.Minute}))
		}
		var waiting []<-chan outcome
		for i := range 9 {
			waiting = append(waiting, stands(t, ens, sessions[i%3], fmt.Sprint(i)))
		}
		var last election.Leader
		for i, c := range waiting {
			got := <-c
			must(t, got.err)
			for _, s := range sessions {
				_, err := s.Sync(bounded(t), "/")
				must(t, err)
				l, err := election.New(s, path).Leader(bounded(t))
				must(t, err)
				if string(l.Value) != fmt.Sprint(i) || l.Owner != sessions[i%3].ID() || l.Token != got.leadership.Token() {
					t.Errorf("candidate %d leads with token %v, Leader says %q, %v, session %d", i, got.leadership.Token(), l.Value, l.Token, l.Owner)
				}
				if l.Token.Compare(last.Token) < 0 {
					t.Errorf("token %v after %v", l.Token, last.Token)
				}
				last = l
			}
			for _, later := range waiting[i+1:] {
				select {
				case <-later:
					t.Fatalf("two lead")
				default:
				}
			}
			must(t, got.leadership.Resign())
		}
	})
}

// CURATOR-358: getLeader failed with NoNode when the leader changed meanwhile.
func TestElection_LeaderWhileLeadersComeAndGo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		e := election.New(s, path)
		if _, err := e.Leader(bounded(t)); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("before there was any: %v", err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 150 {
				l, err := e.Campaign(bounded(t), nil)
				if err == nil {
					err = l.Resign()
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
		seen, none := 0, 0
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			switch _, err := e.Leader(bounded(t)); {
			case err == nil:
				seen++
			case errors.Is(err, election.ErrNoLeader):
				none++
			default:
				t.Fatal(err)
			}
		}
		t.Logf("a leader %d times, none %d times", seen, none)
		if _, err := e.Leader(bounded(t)); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("after the last: %v", err)
		}
	})
}

// CURATOR-696: after a reconnect a candidate found the znode of its own dead session at the head of
// the queue, mistook it for its own and led beside another. CURATOR-537: what served as its token
// could belong to a newer znode.
func TestElection_TheCandidateOfAnotherSessionIsNotOnesOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		old, fresh := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		first := stands(t, ens, old, "the same process")
		lost := (<-first).leadership
		second := stands(t, ens, fresh, "the same process")
		select {
		case got := <-second:
			t.Fatalf("leads beside another one: %v", got)
		default:
		}
		must(t, old.Close())
		got := <-second
		must(t, got.err)
		if !errors.Is(lost.Err(), embed.ErrSessionClosed) || got.leadership.Token().Compare(lost.Token()) <= 0 {
			t.Errorf("the old one: %v; token %v after %v", lost.Err(), got.leadership.Token(), lost.Token())
		}
		// The token belongs to the znode that leads, not to a newer one.
		names := candidates(t, fresh)
		stat, _, err := fresh.Exists(bounded(t), path+"/"+names[0])
		must(t, err)
		if got.leadership.Token().Zxid != stat.Czxid {
			t.Errorf("token %v, the znode is of zxid %d", got.leadership.Token(), stat.Czxid)
		}
		if form := regexp.MustCompile(`^_c_[0-9a-f-]{36}-latch-[0-9]{10}$`); !form.MatchString(names[0]) {
			t.Errorf("the name is %s, which is not Curator's form", names[0])
		}
	})
}

// A cancelled campaign leaves nobody behind to be elected.
func TestElection_ACancelledCampaignLeavesNobodyBehind(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		ens.Faults(1).SetLink(2, embedtest.Link{Delay: 2 * time.Millisecond}) // otherwise no create takes time in a bubble
		s := ens.Session(1, embed.SessionOptions{})
		leader := (<-stands(t, ens, s, "leader")).leadership
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(bounded(t), time.Duration(i)*200*time.Microsecond)
				defer cancel()
				if _, err := election.New(s, path).Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a cancelled campaign: %v", err)
				}
			})
		}
		wg.Wait()
		ens.Until("the cancelled ones to leave", func() bool { return len(candidates(t, s)) == 1 })
		must(t, leader.Err())
	})
}

func TestLeadership_Resign(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		type key struct{}
		first, err := election.New(s, path).Campaign(context.WithValue(bounded(t), key{}, "value"), nil)
		must(t, err)
		second := stands(t, ens, s, "second")
		if first.Context().Value(key{}) != "value" || first.Context().Err() != nil {
			t.Errorf("context: %v, %v", first.Context().Value(key{}), first.Context().Err())
		}
		must(t, first.Resign())
		got := <-second
		must(t, got.err)
		for range 3 {
			must(t, first.Resign())
		}
		must(t, got.leadership.Err())
		<-first.Done()
		if !errors.Is(first.Err(), embed.ErrReleased) || !errors.Is(context.Cause(first.Context()), embed.ErrReleased) {
			t.Errorf("after Resign: %v, cause %v", first.Err(), context.Cause(first.Context()))
		}
	})
}

// The ensemble has elected the next leader, and the one that resigned did not hear it. It resigns
// again under the new leader, first without an answer and then with one. This is etcd#22082 and
// CURATOR-486, for elections.
func TestLeadership_ResignWhoseAnswerIsLostIsTriedAgainUnderANewLeader(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			// A longer tick, because a deaf member does not hear the leader either, and can send
			// only until it notices that.
			c.RequestTimeout, c.Tick = 200*time.Millisecond, 10*embedtest.DefaultTick
		}})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		old := (<-stands(t, ens, s, "old")).leadership
		next := stands(t, ens, other, "next")
		ens.Faults(2).SetLink(1, embedtest.Link{Cut: true}) // member 1 is heard, but hears nothing
		ens.Faults(3).SetLink(1, embedtest.Link{Cut: true})
		if err := old.Resign(); !errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("resigned without an answer: %v", err)
		}
		got := <-next
		must(t, got.err)
		if err := old.Resign(); !errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("and again: %v", err)
		}
		if err := old.Proclaim(bounded(t), []byte("late")); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("Proclaim of one that resigned: %v", err)
		}
		ens.HealAll()
		ens.Ready(1)
		resign(t, old)
		must(t, got.leadership.Err())
		if now, err := election.New(s, path).Leader(bounded(t)); err != nil || string(now.Value) != "next" || now.Token != got.leadership.Token() {
			t.Errorf("%q leads with token %v, %v; want next with %v", now.Value, now.Token, err, got.leadership.Token())
		}
	})
}

func TestLeadership_ProclaimIsTheLeadersAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		e := election.New(s, path)
		l, err := e.Campaign(bounded(t), []byte("a"))
		must(t, err)
		must(t, l.Proclaim(bounded(t), []byte("b")))
		now, err := e.Leader(bounded(t))
		must(t, err)
		if string(now.Value) != "b" || now.Token != l.Token() {
			t.Errorf("the leader says %q with token %v, want b with %v", now.Value, now.Token, l.Token())
		}
		if err := l.Proclaim(bounded(t), make([]byte, embed.DefaultMaxDataSize+1)); !errors.Is(err, embed.ErrTooLarge) {
			t.Errorf("a value that is too large: %v", err)
		}
		must(t, l.Resign())
		next, err := e.Campaign(bounded(t), []byte("c"))
		must(t, err)
		if err := l.Proclaim(bounded(t), []byte("late")); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("Proclaim after the end: %v", err)
		}
		if now, err := e.Leader(bounded(t)); err != nil || string(now.Value) != "c" {
			t.Errorf("the leader says %q, %v", now.Value, err)
		}
		// Its candidate is deleted by hand. Nothing may be published for it either.
		must(t, s.Delete(bounded(t), path+"/"+candidates(t, s)[0], embed.AnyVersion))
		if err := next.Proclaim(bounded(t), []byte("late")); !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("Proclaim of a deleted candidate: %v", err)
		}
	})
}

// observed pulls from Observe until it sees the value.
func observed(t *testing.T, next func() (election.Leader, error, bool), value string) {
	t.Helper()
	for {
		l, err, ok := next()
		if !ok || err != nil {
			t.Fatalf("waiting for %q: %v, %v", value, err, ok)
		}
		if string(l.Value) == value {
			return
		}
	}
}

// A leader or value that stays is seen on every member, also by observers that began before there
// was an election. In CURATOR-724 a latch whose parent had vanished never recovered.
func TestElection_ObserveSeesWhatStays(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		e := election.New(s, path)
		var watching []func() (election.Leader, error, bool)
		for _, id := range ens.Members() {
			next, stop := iter.Pull2(election.New(ens.Session(id, embed.SessionOptions{Timeout: time.Minute}), path).Observe(bounded(t)))
			defer stop()
			watching = append(watching, next)
		}
		see := func(value string) {
			t.Helper()
			for _, next := range watching {
				observed(t, next, value)
			}
		}
		first, err := e.Campaign(bounded(t), []byte("first"))
		must(t, err)
		see("first")
		for i := range 5 {
			must(t, first.Proclaim(bounded(t), fmt.Append(nil, i)))
		}
		see("4")
		second := stands(t, ens, s, "second")
		must(t, first.Resign())
		must(t, (<-second).err)
		see("second")
		// For a while there is nobody, and not even the election's znode.
		must(t, s.Delete(bounded(t), path+"/"+candidates(t, s)[0], embed.AnyVersion))
		must(t, s.Delete(bounded(t), path, embed.AnyVersion))
		_, err = e.Campaign(bounded(t), []byte("third"))
		must(t, err)
		see("third")
		ens.TransferLeadership(ens.Leader()%3 + 1)
		third, err := e.Leader(bounded(t))
		must(t, err)
		must(t, s.Delete(bounded(t), path+"/"+candidates(t, s)[0], embed.AnyVersion))
		_, err = e.Campaign(bounded(t), third.Value) // the same value from another leader
		must(t, err)
		see("third")
	})
}

// Leaders and values change faster than an observer can look. It skips some, sees none after a
// later one, and sees the last one.
func TestElection_ObserveNeverGoesBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		e := election.New(s, path)
		var candidate sync.WaitGroup
		candidate.Go(func() {
			for round := range 40 {
				l, err := e.Campaign(bounded(t), fmt.Appendf(nil, "%03d", round*10))
				for i := 1; i < 5 && err == nil; i++ {
					err = l.Proclaim(bounded(t), fmt.Appendf(nil, "%03d", round*10+i))
				}
				if err == nil && round < 39 {
					err = l.Resign()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		defer candidate.Wait() // what it proclaims is seen before its call returns
		var last election.Leader
		for l, err := range e.Observe(bounded(t)) {
			must(t, err)
			if string(l.Value) <= string(last.Value) || l.Token.Compare(last.Token) < 0 {
				t.Errorf("%s with %v after %s with %v", l.Value, l.Token, last.Value, last.Token)
			}
			if last = l; string(l.Value) == "394" {
				break
			}
		}
	})
}

// etcd's Observe closes its channel without a reason.
func TestElection_ObserveEndsWithTheReason(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		for name, c := range map[string]struct {
			end  func(*embed.Session, context.CancelFunc)
			want error
		}{
			"its ctx":     {func(_ *embed.Session, cancel context.CancelFunc) { cancel() }, context.Canceled},
			"its session": {func(s *embed.Session, _ context.CancelFunc) { must(t, s.Close()) }, embed.ErrSessionClosed},
			"its node":    {func(*embed.Session, context.CancelFunc) { must(t, ens.Node(1).Close()) }, embed.ErrClosed},
		} {
			if c.want == embed.ErrClosed {
				if sessionsflag.Open != nil {
					continue // a client outlives a member
				}
				defer observeEnds(t, ens, name, c.end, c.want) // the last observer
				continue
			}
			observeEnds(t, ens, name, c.end, c.want)
		}
	})
}

func observeEnds(t *testing.T, ens *embedtest.Ensemble, name string, end func(*embed.Session, context.CancelFunc), want error) {
	t.Helper()
	s := ens.Session(1, embed.SessionOptions{})
	l, err := election.New(s, path).Campaign(bounded(t), nil)
	must(t, err)
	defer l.Resign()
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	yields := 0
	var last error
	for _, err := range election.New(s, path).Observe(ctx) {
		last = err
		if yields++; yields == 1 {
			must(t, err)
			go end(s, cancel)
		}
	}
	if yields != 2 || !errors.Is(last, want) || !strings.Contains(last.Error(), path) {
		t.Errorf("%s: after %d yields: %v, want %v", name, yields, last, want)
	}
}

// Two latches of a service led at the same time after a reconnect (druid#16528, on Curator's
// LeaderLatch). Here candidates on three members never resign, while their Raft leadership moves
// and their links break.
func TestElection_NeverTwo(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx, cancel := context.WithCancel(bounded(t))
		var mu sync.Mutex
		leaders := make(map[*election.Leadership]bool) // everybody who was ever elected
		var turns atomic.Int32
		var wg sync.WaitGroup
		for _, id := range ens.Members() {
			n := ens.Node(id)
			wg.Go(func() {
				for ctx.Err() == nil {
					// The shortest timeout possible.
					s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Millisecond})
					if err != nil {
						continue
					}
					l, err := election.New(s, path).Campaign(ctx, nil)
					if err != nil {
						continue
					}
					turns.Add(1)
					mu.Lock()
					for other := range leaders {
						if other.Err() == nil {
							t.Errorf("%v and %v lead at the same time", other.Token(), l.Token())
						}
					}
					leaders[l] = true
					mu.Unlock()
					select {
					case <-l.Done():
					case <-ctx.Done():
					}
				}
			})
		}
		for i := range 6 {
			ens.Until("somebody to lead", func() bool { return turns.Load() > 0 })
			led, victim := turns.Load(), embed.MemberID(i%3+1)
			if i%2 == 0 {
				ens.TransferLeadership(victim)
			}
			ens.Isolate(victim)
			// If the victim led the election, another candidate takes its place. If not, nothing
			// need happen.
			enough := time.After(1500 * time.Millisecond)
			ens.Until("another round, or long enough", func() bool {
				select {
				case <-enough:
					return true
				default:
					return turns.Load() > led
				}
			})
			ens.HealAll()
			for _, id := range ens.Members() {
				ens.Ready(id)
			}
		}
		cancel()
		wg.Wait()
		t.Logf("%d turns", turns.Load())
		if turns.Load() < 2 {
			t.Error("nobody ever took over")
		}
	})
}

// Somebody deletes the place of a candidate that is moving to another place. The candidate gets
// that error.
func TestCandidate_IsDeletedOnItsWay(t *testing.T) {
	sessionsflag.Member(t, "a client reads nothing while nobody hears its member")
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		far, near := ens.Session(3, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		first, err := election.New(near, path).Campaign(ctx, nil)
		must(t, err)
		_, err = election.New(near, path).Enter(ctx, nil, election.Options{})
		must(t, err)
		c, err := election.New(far, path).Enter(ctx, nil, election.Options{Priority: 1})
		must(t, err)
		looks := &looker{Context: ctx}
		waited := make(chan error, 1)
		go func() {
			_, err := c.Wait(looks)
			waited <- err
		}()
		// It hears that it is the first, and its request arrives later.
		for _, to := range []embed.MemberID{1, 2} {
			ens.Faults(3).SetLink(to, embedtest.Link{Cut: true})
		}
		must(t, first.Resign())
		ens.Until("the candidate's node to know that it is the first", func() bool {
			_, there, err := far.Exists(ctx, first.Path())
			return err == nil && !there
		})
		looks.asleep() // it has asked for its place
		must(t, near.Delete(ctx, c.Path(), embed.AnyVersion))
		ens.HealAll()
		if err := <-waited; !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("a candidate that was deleted: %v", err)
		}
	})
}

// Somebody deletes a candidate on its way ahead of another, and the one that it was to stand behind
// too. Its transaction fails for the latter, but what the caller must learn is that it was deleted.
func TestEnter_IsDeletedOnItsWay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		far, near := ens.Session(3, embed.SessionOptions{Timeout: time.Minute}), ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		e := election.New(near, path)
		met := false
		for n := int64(1); n < 10; n++ {
			first, err := e.Campaign(ctx, nil)
			must(t, err)
			behind, err := e.Enter(ctx, nil, election.Options{})
			must(t, err)
			_, err = far.Sync(ctx, path)
			must(t, err)
			cut := make(chan struct{})
			// From the nth look on, its requests arrive late. It goes on hearing of others.
			looks := &looker{Context: ctx, n: n, do: func() {
				for _, to := range []embed.MemberID{1, 2} {
					ens.Faults(3).SetLink(to, embedtest.Link{Cut: true})
				}
				close(cut)
			}}
			entered := make(chan error, 1)
			go func() {
				c, err := election.New(far, path).Enter(looks, []byte("far"), election.Options{Priority: 1})
				if err == nil {
					err = c.Withdraw()
				}
				entered <- err
			}()
			select {
			case <-cut:
			case err := <-entered: // without so many looks
				must(t, errors.Join(err, first.Resign(), behind.Withdraw()))
				continue
			}
			looks.asleep()
			deleted := false
			all, err := e.Candidates(ctx)
			must(t, err)
			ops := []embed.Op{embed.OpDelete(first.Path(), embed.AnyVersion)}
			for _, c := range all {
				if string(c.Value) == "far" {
					ops, deleted, met = append(ops, embed.OpDelete(c.Path, embed.AnyVersion)), true, true
				}
			}
			_, err = near.Multi(ctx, ops...)
			must(t, err)
			ens.HealAll()
			if err := <-entered; deleted != (err != nil) || deleted && !errors.Is(err, embed.ErrDeleted) {
				t.Errorf("look %d, deleted: %v, the candidate gets %v", n, deleted, err)
			}
			must(t, behind.Withdraw())
		}
		if !met {
			t.Error("the candidate was never on its way")
		}
	})
}
