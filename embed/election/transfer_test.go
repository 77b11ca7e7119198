package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

type elected struct {
	l   *election.Leadership
	err error
}

// enters makes a candidate wait, and returns it with a channel for its leadership.
func enters(t testing.TB, s *embed.Session, value string, priority int) (*election.Candidate, <-chan elected) {
	t.Helper()
	c, err := election.New(s, path).Enter(bounded(t), []byte(value), election.Options{Priority: priority})
	must(t, err)
	out := make(chan elected, 1)
	go func() {
		l, err := c.Wait(bounded(t))
		out <- elected{l, err}
	}()
	return c, out
}

func leads(t testing.TB, out <-chan elected) *election.Leadership {
	t.Helper()
	e := <-out
	must(t, e.err)
	return e.l
}

// values returns the candidates' values, in order.
func values(t testing.TB, s *embed.Session) (list []string) {
	t.Helper()
	all, err := election.New(s, path).Candidates(bounded(t))
	must(t, err)
	for _, c := range all {
		list = append(list, string(c.Value))
	}
	return list
}

// offerPath returns the path at which a leader's place is offered to the candidate at a path.
func offerPath(to string) string {
	return path + "/transfer-" + strings.Replace(to[len(path)+1:], "latch-", "", 1) + "-"
}

func grow(t testing.TB, leaderships ...*election.Leadership) {
	t.Helper()
	for i := range leaderships[1:] {
		if leaderships[i+1].Token().Compare(leaderships[i].Token()) <= 0 {
			t.Errorf("token %v after %v", leaderships[i+1].Token(), leaderships[i].Token())
		}
	}
}

// E1: a leader transfers to a candidate, which gets the greater token. The leader after that has a
// greater one still.
func TestLeadership_Transfer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		first, err := election.New(s, path).Campaign(bounded(t), []byte("a"))
		must(t, err)
		_, b := enters(t, ens.Session(2, embed.SessionOptions{}), "b", 0)
		third, c := enters(t, ens.Session(3, embed.SessionOptions{}), "c", 0)
		before := third.Path()
		if err := first.Transfer(bounded(t), third.Path()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(first.Err(), embed.ErrReleased) {
			t.Errorf("the former leader: %v", first.Err())
		}
		second := leads(t, c)
		if third.Path() == before {
			t.Error("the candidate has not moved")
		}
		leader, err := election.New(s, path).Leader(bounded(t))
		must(t, err)
		if string(leader.Value) != "c" || leader.Token != second.Token() {
			t.Errorf("%s leads with %v, want c with %v", leader.Value, leader.Token, second.Token())
		}
		select {
		case <-b:
			t.Fatal("two lead")
		default:
		}
		if err := first.Transfer(bounded(t), third.Path()); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("a transfer by a former leader: %v", err)
		}
		must(t, second.Resign())
		last := leads(t, b)
		grow(t, first, second, last)
		must(t, last.Resign())
	})
}

// E1.1: a leadership goes to a candidate older than the leader's znode, and then to still older or
// younger ones, by transfer, by priority and by arrival. Each is a grant of its own: its token is
// greater than all before it, whatever the candidates' znodes are.
func TestLeadership_TransferToAnOlderCandidate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		a, err := election.New(s, path).Campaign(bounded(t), []byte("a"))
		must(t, err)
		older, b := enters(t, s, "b", 0)
		_, c := enters(t, s, "c", 0)
		younger, d := enters(t, s, "d", 0)
		older2, e := enters(t, s, "e", 0)
		to := func(l *election.Leadership, to *election.Candidate, out <-chan elected) *election.Leadership {
			t.Helper()
			leader, _, err := s.Exists(bounded(t), l.Path())
			must(t, err)
			named, _, err := s.Exists(bounded(t), to.Path())
			must(t, err)
			if l != a && named.Czxid >= leader.Czxid {
				t.Fatalf("%s is no older than the leader", to.Path())
			}
			must(t, l.Transfer(bounded(t), to.Path()))
			return leads(t, out)
		}
		leaderships := []*election.Leadership{a, to(a, younger, d)}
		// A candidate that is older than the leader's leadership and its znode.
		leaderships = append(leaderships, to(leaderships[1], older, b))
		leaderships = append(leaderships, to(leaderships[2], older2, e)) // and one that came between
		_, f := enters(t, s, "f", 7)
		_, g := enters(t, s, "g", 9) // later than f, but ahead of it
		must(t, leaderships[3].Resign())
		leaderships = append(leaderships, leads(t, g))
		must(t, leaderships[4].Resign())
		leaderships = append(leaderships, leads(t, f))
		must(t, leaderships[5].Resign())
		leaderships = append(leaderships, leads(t, c)) // in order of arrival, before all but b
		grow(t, leaderships...)
		must(t, leaderships[6].Resign())
	})
}

// The candidate has gone, or is not one of this election, or does not wait. The leadership
// continues.
func TestLeadership_TransferToNobodyChangesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		sub, err := election.New(s, path+"/sub").Campaign(bounded(t), nil)
		must(t, err)
		for name, to := range map[string]string{
			"itself":               l.Path(),
			"one of another below": sub.Path(),
			"another election":     path + "/sub",
			"an offer":             offerPath(l.Path()),
			"the election":         path,
			"no name":              path + "/",
			"elsewhere":            "/elsewhere",
			"not a path":           "",
		} {
			if err := l.Transfer(bounded(t), to); !errors.Is(err, embed.ErrInvalidPath) || errors.Is(err, election.ErrNotTransferred) || l.Err() != nil {
				t.Errorf("to %s: %v, and the leadership: %v", name, err, l.Err())
			}
		}
		gone, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		must(t, gone.Withdraw())
		_, err = s.Sync(bounded(t), path)
		must(t, err)
		if err := l.Transfer(bounded(t), gone.Path()); !errors.Is(err, election.ErrNotTransferred) || !errors.Is(err, embed.ErrNoNode) || l.Err() != nil {
			t.Errorf("to a candidate that has gone: %v, and the leadership: %v", err, l.Err())
		}
		if _, err := s.Multi(bounded(t), election.Guard(nil), embed.OpSet(l.Path(), nil, embed.AnyVersion)); err == nil {
			t.Error("a guard of no Leadership lets pass")
		}
		sleeps, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		for range 2 {
			ctx, cancel := context.WithTimeout(bounded(t), 50*time.Millisecond)
			if err := l.Transfer(ctx, sleeps.Path()); !errors.Is(err, election.ErrNotTransferred) || !errors.Is(err, context.DeadlineExceeded) || l.Err() != nil {
				t.Errorf("to a candidate that does not Wait: %v, and the leadership: %v", err, l.Err())
			}
			cancel()
		}
		must(t, l.Resign())
		next, err := sleeps.Wait(bounded(t))
		must(t, err)
		grow(t, l, next)
		if _, err := sleeps.Wait(bounded(t)); !errors.Is(err, embed.ErrNotHeld) || next.Err() != nil {
			t.Errorf("waiting again: %v, and the leadership: %v", err, next.Err())
		}
		must(t, next.Resign())
	})
}

// Sessions with different Roots know a candidate by different paths.
func TestLeadership_TransferAcrossRoots(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(bounded(t), "/app", nil, embed.Persistent)
		must(t, err)
		below := election.New(ens.Session(1, embed.SessionOptions{Root: "/app"}), path)
		l, err := below.Campaign(bounded(t), nil)
		must(t, err)
		c, err := election.New(s, "/app"+path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		out := make(chan elected, 1)
		go func() {
			l, err := c.Wait(bounded(t))
			out <- elected{l, err}
		}()
		all, err := below.Candidates(bounded(t))
		must(t, err)
		must(t, l.Transfer(bounded(t), all[1].Path))
		next := leads(t, out)
		grow(t, l, next)
		must(t, next.Resign())
	})
}

// An offer replaces an older one, and nothing that is there to stay.
func TestLeadership_TransferDeletesNothingThatIsThereToStay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := one(t).Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		next, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		theirs := offerPath(next.Path())
		_, err = s.Put(bounded(t), theirs, []byte("theirs"))
		must(t, err)
		if err := l.Transfer(bounded(t), next.Path()); !errors.Is(err, election.ErrNotTransferred) || l.Err() != nil {
			t.Errorf("Transfer says %v, and the leadership: %v", err, l.Err())
		}
		if data, _, err := s.Get(bounded(t), theirs); string(data) != "theirs" {
			t.Errorf("it has %q: %v", data, err)
		}
		must(t, l.Resign())
	})
}

// An offer of a former leader does not depose anybody, although later leaders at its place have the
// same name. Here the leader that has the name now stands behind the candidate, so that the
// candidate's Wait ends after it has looked at the offer.
func TestLeadership_AStaleOfferDeposesNobody(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		named, err := election.New(s, path).Enter(bounded(t), []byte("named"), election.Options{})
		must(t, err)
		other, err := election.New(s, path).Enter(bounded(t), []byte("other"), election.Options{})
		must(t, err)
		stood := named.Path()
		terms := fmt.Appendf(nil, "%s %d", other.Path()[len(path)+1:], 1)
		_, err = s.Create(bounded(t), offerPath(stood), terms, embed.Ephemeral)
		must(t, err)
		for range 2 { // the offer was answered, and given
			_, err = s.Set(bounded(t), offerPath(stood), terms, embed.AnyVersion)
			must(t, err)
		}
		l, err := named.Wait(bounded(t))
		must(t, err)
		if got := values(t, s); l.Path() != stood || !slices.Equal(got, []string{"named", "other"}) {
			t.Errorf("it has moved from %s to %s, and %v stand", stood, l.Path(), got)
		}
		must(t, l.Resign())
		next, err := other.Wait(bounded(t))
		must(t, err)
		must(t, next.Resign())
	})
}

// If a leadership ends while Proclaim is in flight, nothing is published, although the next
// leader's znode has the same name.
func TestLeadership_ProclaimIsGuarded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		holds, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		_, a := enters(t, s, "a", 0)
		_, b := enters(t, s, "b", 5)
		_, c := enters(t, s, "c", 5)
		must(t, holds.Resign())
		first := leads(t, b)
		guard := election.Guard(first)
		must(t, first.Resign())
		second := leads(t, c)
		if first.Path() != second.Path() {
			t.Fatalf("%s and %s are granted one place", first.Path(), second.Path())
		}
		if err := first.Proclaim(bounded(t), []byte("late")); err == nil {
			t.Error("proclaimed late")
		}
		if _, err := s.Multi(bounded(t), guard, embed.OpSet(second.Path(), []byte("late"), embed.AnyVersion)); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("the Multi of Proclaim: %v", err)
		}
		must(t, second.Resign())
		must(t, leads(t, a).Resign())
	})
}

// The same when the leadership ends after Proclaim has asked for it, and its transaction is on its
// way: what has taken the znode's name meanwhile is not the leader's to write.
func TestLeadership_ProclaimIsGuardedOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in real time the transaction might not be on its way yet
		ens := embedtest.New(t, 3, embedtest.Options{})
		const to, from = 1, 2
		ens.TransferLeadership(to)
		l, err := election.New(ens.Session(from, embed.SessionOptions{}), path).Campaign(bounded(t), []byte("mine"))
		must(t, err)
		other := ens.Session(to, embed.SessionOptions{})
		for _, id := range ens.Members() {
			ens.Faults(from).SetLink(id, embedtest.Link{Delay: time.Second})
		}
		proclaimed := make(chan error, 1)
		go func() { proclaimed <- l.Proclaim(bounded(t), []byte("late")) }()
		synctest.Wait() // it is on its way
		_, err = other.Multi(bounded(t), embed.OpDelete(l.Path(), embed.AnyVersion), embed.OpCreate(l.Path(), []byte("theirs"), embed.Persistent))
		must(t, err)
		select {
		case err := <-proclaimed:
			t.Fatalf("the transaction is not on its way any more: %v", err)
		default:
		}
		if err := <-proclaimed; !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("proclaimed: %v", err)
		}
		if data, stat, err := other.Get(bounded(t), l.Path()); err != nil || string(data) != "theirs" || stat.Version != 0 {
			t.Errorf("the znode has %q in version %d, %v", data, stat.Version, err)
		}
	})
}

// An inline looker is asked by its caller's goroutine alone, before every call of a session.
type inline struct{ *looker }

func (l inline) Done() <-chan struct{} { return l.Context.Done() }
func (l inline) Value(key any) any     { return l.Context.Value(key) }

// The leader's machine sleeps at any step of a transfer. If the leadership had not ended by then, it
// was lost, and not given away.
func TestLeadership_TransferComparesTheClock(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		other := ens.Session(2, embed.SessionOptions{})
		for n := int64(1); ; n++ {
			s := ens.Session(1, embed.SessionOptions{})
			l, err := election.New(s, path).Campaign(bounded(t), []byte("a"))
			must(t, err)
			c, waits := enters(t, other, "b", 0)
			want := embed.ErrReleased
			ctx := &looker{Context: bounded(t), n: n, do: func() {
				if l.Err() == nil {
					want = embed.ErrSuspended
				}
				ens.Faults(1).Sleep(s.Timeout())
			}}
			err = l.Transfer(inline{ctx}, c.Path())
			if got := l.Err(); !errors.Is(got, want) {
				t.Errorf("step %d: the leadership ended with %v, want %v; the transfer: %v", n, got, want, err)
			}
			must(t, leads(t, waits).Resign())
			must(t, s.Close())
			if ctx.looks.Load() < n {
				must(t, err)
				t.Logf("%d steps", n-1)
				break
			}
		}
	})
}

func TestCandidate_Withdraw(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		holds, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		for range 20 {
			c, waits := enters(t, s, "c", 0)
			must(t, c.Withdraw())
			if e := <-waits; !errors.Is(e.err, embed.ErrReleased) {
				t.Fatalf("its Wait: %v", e.err)
			}
			if _, err := c.Wait(bounded(t)); !errors.Is(err, embed.ErrReleased) {
				t.Fatalf("a Wait after it: %v", err)
			}
		}
		must(t, holds.Resign())
	})
}

// E1.1: a candidate with a higher priority goes ahead of earlier ones, and tokens grow in that
// order.
func TestElection_Priority(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		last, err := election.New(s, path).Campaign(bounded(t), []byte("leader"))
		must(t, err)
		waits := make(map[string]<-chan elected)
		for i, c := range []struct {
			value    string
			priority int
		}{{"a0", 0}, {"b0", 0}, {"c5", 5}, {"d1", 1}, {"e5", 5}, {"f9", 9}, {"g0", 0}, {"h9", 9}, {"i1", 1}} {
			_, waits[c.value] = enters(t, ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{}), c.value, c.priority)
		}
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		order := []string{"leader", "f9", "h9", "c5", "e5", "d1", "i1", "a0", "b0", "g0"}
		if got := values(t, s); !slices.Equal(got, order) {
			t.Fatalf("the queue is %v, want %v", got, order)
		}
		for _, value := range order[1:] {
			must(t, last.Resign())
			next := leads(t, waits[value])
			grow(t, last, next)
			last = next
		}
		for _, p := range []int{-1, 1000} {
			if _, err := election.New(s, path).Enter(bounded(t), nil, election.Options{Priority: p}); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("a priority of %d: %v", p, err)
			}
		}
	})
}

// Whoever enters is behind nobody with a lower priority, even while the one that it would have gone
// ahead of leaves. At each step of a candidate's way forward, the candidate that it goes ahead of
// leaves, and one with a higher priority enters.
func TestElection_PriorityWhileOthersLeave(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		e := election.New(s, path)
		leader, err := e.Campaign(bounded(t), []byte("leader"))
		must(t, err)
		defer leader.Resign()
		enter := func(ctx context.Context, value string, priority int) *election.Candidate {
			c, err := e.Enter(ctx, []byte(value), election.Options{Priority: priority})
			must(t, err)
			return c
		}
		for n := int64(1); ; n++ {
			zero := enter(bounded(t), "zero", 0)
			var two *election.Candidate
			ctx := &looker{Context: bounded(t), n: n, do: func() {
				must(t, zero.Withdraw())
				two = enter(bounded(t), "two", 2)
			}}
			one := enter(ctx, "one", 1)
			if two == nil {
				if n < 8 {
					t.Errorf("Enter has %d steps", n-1)
				}
				must(t, errors.Join(zero.Withdraw(), one.Withdraw()))
				return
			}
			if got, want := values(t, s), []string{"leader", "two", "one"}; !slices.Equal(got, want) {
				t.Errorf("step %d: the queue is %v, want %v", n, got, want)
			}
			must(t, errors.Join(one.Withdraw(), two.Withdraw()))
		}
	})
}

// Candidates of all priorities come, go and transfer at once. One leads at a time, and tokens grow.
func TestElection_PrioritiesAndTransfersNeverTwo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		var mu sync.Mutex
		var leader *election.Leadership
		var token lock.Token
		var wg sync.WaitGroup
		for i := range 6 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			e := election.New(s, path)
			wg.Go(func() {
				for j := range 6 {
					c, err := e.Enter(bounded(t), fmt.Append(nil, i), election.Options{Priority: (i * j) % 4})
					if err != nil {
						t.Error(err)
						return
					}
					l, err := c.Wait(bounded(t))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if leader != nil && leader.Err() == nil {
						t.Error("two lead")
					}
					if l.Token().Compare(token) <= 0 {
						t.Errorf("token %v after %v", l.Token(), token)
					}
					leader, token = l, l.Token()
					mu.Unlock()
					all, err := e.Candidates(bounded(t))
					if err != nil {
						t.Error(err)
					}
					switch {
					case j%3 == 0 && len(all) > 2:
						err = l.Transfer(bounded(t), all[len(all)-1].Path)
					case j%3 == 1:
						var again *election.Candidate
						if again, err = l.Requeue(bounded(t)); err == nil {
							err = again.Withdraw()
						}
					default:
						err = l.Resign()
					}
					if errors.Is(err, election.ErrNotTransferred) {
						err = l.Resign()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestLeadership_RequeueStaysInTheQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), []byte("a"))
		must(t, err)
		_, b := enters(t, s, "b", 0)
		again, err := l.Requeue(bounded(t))
		must(t, err)
		if l.Err() == nil {
			t.Error("it leads still")
		}
		next := leads(t, b)
		if got := values(t, s); !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("the queue is %v", got)
		}
		must(t, next.Resign())
		third, err := again.Wait(bounded(t))
		must(t, err)
		grow(t, l, next, third)
		must(t, third.Resign())
		if _, err := third.Requeue(bounded(t)); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("of a former leader: %v", err)
		}
	})
}

// Curator cannot read a znode without data.
func TestElection_AValueOfNilIsPublishedAsEmpty(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		waits, err := election.New(s, path).Enter(bounded(t), nil, election.Options{Priority: 1})
		must(t, err)
		published := func(when, path string) {
			t.Helper()
			if value, _, err := s.Get(bounded(t), path); value == nil || len(value) > 0 || err != nil {
				t.Errorf("%s: %#v, %v", when, value, err)
			}
		}
		published("a leader", l.Path())
		published("a candidate", waits.Path())
		must(t, l.Proclaim(bounded(t), []byte("something")))
		must(t, l.Proclaim(bounded(t), nil))
		published("proclaimed", l.Path())
	})
}

// gives makes a leader at member 1 transfer its place to a candidate of another session, until the
// candidate is to accept; the candidate does not do so by itself. It returns a channel for the
// result of Transfer.
func gives(ctx context.Context, t *testing.T, ens *embedtest.Ensemble, other *embed.Session) (*election.Leadership, *election.Candidate, <-chan error) {
	t.Helper()
	l, err := election.New(ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), path).Campaign(bounded(t), []byte("leader"))
	must(t, err)
	named, err := election.New(other, path).Enter(bounded(t), []byte("named"), election.Options{})
	must(t, err)
	offer := offerPath(named.Path())
	version := func(n int32) func() bool {
		return func() bool { stat, ok, _ := other.Exists(bounded(t), offer); return ok && stat.Version == n }
	}
	said := make(chan error, 1)
	go func() { said <- l.Transfer(ctx, named.Path()) }()
	ens.Until("the offer", version(0))
	_, err = other.Set(bounded(t), offer, []byte("nothing that it would accept by itself"), 0)
	must(t, err)
	ens.Until("the place to be given", version(2))
	return l, named, said
}

// takesUnheard occupies the place of a leader at member 1, which hears nothing from then on but is
// heard.
func takesUnheard(t *testing.T, ens *embedtest.Ensemble, other *embed.Session, l *election.Leadership, named *election.Candidate) {
	t.Helper()
	ens.Faults(2).SetLink(1, embedtest.Link{Cut: true})
	ens.Faults(3).SetLink(1, embedtest.Link{Cut: true})
	_, err := other.Multi(bounded(t), embed.OpDelete(l.Path(), embed.AnyVersion), embed.OpDelete(offerPath(named.Path()), 2))
	must(t, err)
}

// A candidate accepts while the leader gives up waiting for it. Transfer returns what really became
// of the place. Here the test answers for the candidate, so that it can hold the answer up.
func TestLeadership_TransferThatIsAcceptedLate(t *testing.T) {
	for name, c := range map[string]struct {
		accepts, told bool // told: the leader's node learns it before the leader gives up
		patience      time.Duration
		want          error
	}{
		"it does not": {told: true, patience: time.Minute, want: election.ErrNotTransferred},
		"it does":     {accepts: true, told: true, patience: time.Minute},
		"it does, and its node does not learn it": {accepts: true, patience: 300 * time.Millisecond, want: embed.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{Config: func(cfg *embed.Config) { cfg.RequestTimeout = c.patience }})
				ens.TransferLeadership(2)
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
				l, named, said := gives(ctx, t, ens, other)
				if c.accepts {
					takesUnheard(t, ens, other, l, named)
				}
				cancel()
				if c.told {
					ens.HealAll()
				}
				err := <-said
				if !errors.Is(err, c.want) || errors.Is(err, election.ErrNotTransferred) != (c.want == election.ErrNotTransferred) {
					t.Errorf("Transfer says %v, want %v", err, c.want)
				}
				if strings.Count(fmt.Sprint(err), embed.ErrUnknownOutcome.Error()) > 1 {
					t.Errorf("Transfer says it twice: %v", err)
				}
				if l.Err() == nil {
					t.Error("it leads on")
				}
				ens.HealAll()
				next, err := named.Wait(bounded(t)) // nobody is ahead of it
				must(t, err)
				must(t, next.Err())
			})
		})
	}
}

// Somebody deletes the offer by hand: Transfer resigns.
func TestLeadership_TransferWhoseOfferIsDeleted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l, named, said := gives(bounded(t), t, ens, s)
		must(t, s.Delete(bounded(t), offerPath(named.Path()), embed.AnyVersion))
		if err := <-said; !errors.Is(err, election.ErrNotTransferred) {
			t.Errorf("Transfer says %v", err)
		}
		if got := values(t, s); !errors.Is(l.Err(), embed.ErrReleased) || !slices.Equal(got, []string{"named"}) {
			t.Errorf("the leadership: %v, and %v stand", l.Err(), got)
		}
	})
}

// Somebody resigns the leadership that is being transferred, after the candidate has accepted: it
// is transferred.
func TestLeadership_TransferAndResign(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(cfg *embed.Config) { cfg.RequestTimeout = time.Minute }})
		ens.TransferLeadership(2)
		other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		l, named, said := gives(bounded(t), t, ens, other)
		takesUnheard(t, ens, other, l, named)
		resigned := make(chan error, 1)
		go func() { resigned <- l.Resign() }()
		ens.Until("the place to be given up", func() bool { return election.PlaceErr(l) != nil })
		ens.HealAll()
		if err := <-said; err != nil {
			t.Errorf("Transfer says %v", err)
		}
		must(t, <-resigned)
	})
}

// A transfer wakes the named candidate and no other. Each of a thousand that wait would look at the
// offer at each of its steps.
func TestLeadership_TransferWakesNobodyElse(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		// It answers nothing, so nothing else changes.
		named, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		waits, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		ctx := &looker{Context: bounded(t)}
		over := make(chan error, 1)
		go func() {
			_, err := waits.Wait(ctx)
			over <- err
		}()
		offered := func() bool {
			_, ok, err := s.Exists(bounded(t), offerPath(named.Path()))
			must(t, err)
			return ok
		}
		for range 20 {
			ctx, cancel := context.WithCancel(bounded(t))
			said := make(chan error, 1)
			go func() { said <- l.Transfer(ctx, named.Path()) }()
			ens.Until("an offer", offered)
			cancel()
			if err := <-said; !errors.Is(err, election.ErrNotTransferred) {
				t.Error(err)
			}
			ens.Until("the offer to be deleted", func() bool { return !offered() })
		}
		if n := ctx.looks.Load(); n > 40 { // it looks a dozen times before it sleeps
			t.Errorf("a candidate that only waits was woken: %d looks at its ctx", n)
		}
		must(t, waits.Withdraw())
		if err := <-over; !errors.Is(err, embed.ErrReleased) {
			t.Error(err)
		}
	})
}

// The leader's session ends at any step of a transfer. Nothing stays in the way of the named
// candidate.
func TestLeadership_TransferWhoseSessionEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		var wg sync.WaitGroup
		var halfway atomic.Int32
		for n := range int64(60) {
			path := fmt.Sprintf("/election/%d", n)
			dying := ens.Session(1, embed.SessionOptions{})
			wg.Go(func() {
				l, err := election.New(dying, path).Campaign(bounded(t), nil)
				if err != nil {
					t.Error(err)
					return
				}
				named, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if next, err := named.Wait(bounded(t)); err != nil || next.Err() != nil {
						t.Errorf("step %d: the named candidate: %v", n, err)
					}
				}()
				ctx := &looker{Context: bounded(t), n: n + 1}
				ctx.do = func() {
					halfway.Add(1)
					_ = dying.Close()
				}
				err = l.Transfer(ctx, named.Path())
				if err != nil && !errors.Is(err, election.ErrNotTransferred) && !errors.Is(err, embed.ErrUnknownOutcome) && !errors.Is(err, embed.ErrSessionClosed) {
					t.Errorf("step %d: %v", n, err)
				}
				<-done
			})
		}
		wg.Wait()
		t.Logf("%d ended halfway", halfway.Load())
		if halfway.Load() < 10 {
			t.Error("no session ended halfway")
		}
	})
}

// askedContext calls a function whenever somebody asks whether it has ended.
type askedContext struct {
	context.Context
	do func()
}

func (c askedContext) Err() error {
	c.do()
	return c.Context.Err()
}

// A candidate's node loses the quorum between an offer and the answer. The candidate waits for the
// quorum's return, as always, and leads when it is the first.
func TestTransfer_AnOfferThatCannotBeAnswered(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 300 * time.Millisecond }})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		l, err := election.New(other, path).Campaign(bounded(t), nil)
		must(t, err)
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		c, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		cut := make(chan struct{})
		isolate := sync.OnceFunc(func() { ens.Isolate(1); close(cut) })
		forever, cancel := context.WithCancel(context.Background()) // no deadline
		defer cancel()
		ctx := askedContext{forever, func() {
			if _, ok, err := s.Exists(context.Background(), offerPath(c.Path())); err == nil && ok {
				isolate()
			}
		}}
		out := make(chan elected, 1)
		go func() {
			l, err := c.Wait(ctx)
			out <- elected{l, err}
		}()
		_, err = other.Sync(bounded(t), "/")
		must(t, err)
		// The leader waits five seconds for the answer, much longer than the candidate's calls wait
		// for a quorum.
		if err := l.Transfer(bounded(t), c.Path()); !errors.Is(err, election.ErrNotTransferred) {
			t.Errorf("Transfer: %v", err)
		}
		<-cut
		select {
		case e := <-out:
			t.Fatalf("the campaign has ended, its ctx has not: %v", e.err)
		default:
		}
		ens.HealAll()
		resign(t, l)
		resign(t, leads(t, out))
	})
}
