package embed_test

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
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// contends makes a session on a member wait for the lock of /lock. It returns once the session is
// in the queue.
func contends(t *testing.T, ens *embedtest.Ensemble, id embed.MemberID) <-chan *lock.Hold {
	t.Helper()
	ctx := bounded(t)
	s := ens.Session(id, embed.SessionOptions{Timeout: time.Minute})
	granted := make(chan *lock.Hold, 1)
	_, err := s.Sync(ctx, "/")
	must(t, err)
	before, _, err := s.Children(ctx, "/lock")
	must(t, err)
	go func() {
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		granted <- hold
	}()
	ens.Until("the contender to queue", func() bool {
		names, _, err := s.Children(ctx, "/lock")
		return err == nil && len(names) > len(before)
	})
	return granted
}

// In an orderly rolling restart, everything that the member held is free at once. Nobody waits for
// a timeout of a minute.
func TestShutdown_LeavesNothingToWaitFor(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
		must(t, err)
		granted := contends(t, ens, 2)
		ens.Stop(1)
		if !errors.Is(hold.Err(), embed.ErrSessionClosed) || !errors.Is(s.Err(), embed.ErrSessionClosed) {
			t.Errorf("hold: %v, session: %v", hold.Err(), s.Err())
		}
		if next := <-granted; next.Token().Compare(hold.Token()) <= 0 {
			t.Errorf("token %v after %v", next.Token(), hold.Token())
		}
		embedkit.Write(t, ens.Node(3), "/after")
		ens.Restart(1)
		embedkit.Has(t, ens.Node(1), "/after")
	})
}

// A11: the owner of a session is closing it when Shutdown begins, or another Shutdown is. The calls that
// close it are on their way then, and the node sends them.
func TestShutdown_WaitsForWhatOthersClose(t *testing.T) {
	t.Parallel()
	for what, closes := range map[string]func(*embed.Node, *embed.Session) error{
		"its owner":        func(_ *embed.Node, s *embed.Session) error { return s.Close() },
		"another Shutdown": func(n *embed.Node, _ *embed.Session) error { return n.Shutdown(context.Background()) },
	} {
		for _, cutOff := range []time.Duration{0, time.Second} { // how long nothing can be sent
			t.Run(fmt.Sprintf("%s, cut off for %v", what, cutOff), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) { shutsDownBeside(t, closes, cutOff) })
			})
		}
	}
}

func shutsDownBeside(t *testing.T, closes func(*embed.Node, *embed.Session) error, cutOff time.Duration) {
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 10 * time.Second }})
	ens.TransferLeadership(1)
	s := ens.Session(3, embed.SessionOptions{Timeout: time.Minute})
	_, err := s.Create(bounded(t), "/held", nil, embed.Ephemeral)
	must(t, err)
	ens.Faults(3).SetLink(1, embedtest.Link{Delay: 100 * time.Millisecond})
	if cutOff > 0 {
		ens.Isolate(3)
	}
	n, began, closed := ens.Node(3), time.Now(), make(chan error, 1)
	go func() { closed <- closes(n, s) }()
	<-time.After(time.Millisecond)
	time.AfterFunc(cutOff, ens.HealAll)
	if err := errors.Join(n.Shutdown(bounded(t)), <-closed); err != nil {
		t.Error(err)
	}
	other := ens.Session(1, embed.SessionOptions{})
	ens.Until("the ephemeral to go", func() bool {
		_, found, err := other.Exists(bounded(t), "/held")
		return err == nil && !found
	})
	if took := time.Since(began); took > cutOff+10*time.Second {
		t.Errorf("it was there for %v more", took)
	}
}

// A leader that shuts down transfers its leadership first. The ticks are so long that nobody holds
// an election within ten seconds after the last heartbeat. One of the others leads earlier, because
// it was told to.
func TestShutdown_TransfersTheLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Tick, c.RequestTimeout, c.MaxSessionTimeout = time.Second, time.Minute, time.Hour
		}})
		leader := ens.Leader()
		begin := time.Now()
		ens.Stop(leader)
		next := ens.Leader()
		took := time.Since(begin)
		t.Logf("member %d led, member %d leads after %v", leader, next, took)
		if took > 9*time.Second {
			t.Error("nobody leads before there could be an election")
		}
		embedkit.Write(t, ens.Node(next), "/after")
	})
}

// Without a quorum, nobody can be told anything. Shutdown tries no longer than allowed, and closes.
func TestShutdown_WithoutAQuorumIsBounded(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		_, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
		must(t, err)
		ens.Isolate(1)
		ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
		defer cancel()
		n := ens.Node(1)
		if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 sessions") {
			t.Errorf("Shutdown: %v, want that the session stays", err)
		}
		select {
		case <-n.Done():
		default:
			t.Error("it is not closed")
		}
		must(t, n.Err())
		ens.HealAll()
		ens.Kill(1) // removes the closed node from the ensemble
		ens.Restart(1)
	})
}

// A member crashes and comes back at once. Its old sessions belonged to a process that is certainly
// dead. What they held is free as soon as the member has registered, not after their timeouts.
func TestRestart_FreesWhatThePredecessorHeld(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
		must(t, err)
		granted := contends(t, ens, 2)
		crashed := time.Now()
		ens.Kill(1)
		if hold.Err() == nil {
			t.Error("a hold outlived its node")
		}
		ens.Restart(1)
		<-granted
		if took := time.Since(crashed); took >= s.Timeout() {
			t.Errorf("granted after %v", took)
		}
	})
}

func TestReady_WaitsForAQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		n := ens.Start(1)
		ctx, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
		defer cancel()
		if err := n.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one of three is ready: %v", err)
		}
		if _, err := n.NewSession(ctx, embed.SessionOptions{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("NewSession without a quorum: %v", err)
		}
		ens.Start(2)
		embedkit.Ready(t, n, ens.Node(2))
	})
}

func TestTransferLeadership(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		for _, to := range []embed.MemberID{2, 3, 1} {
			asked := ens.Node(to) // a follower may ask too
			until(t, "the transfer of the leadership", func() bool {
				if ens.Leader() == to {
					return true
				}
				if err := asked.TransferLeadership(1, to); err != nil && !errors.Is(err, embed.ErrUnavailable) {
					t.Fatal(err)
				}
				return false
			})
		}
		for _, nobody := range []embed.MemberID{0, 4} {
			if err := ens.Node(1).TransferLeadership(1, nobody); err == nil {
				t.Errorf("the leadership went to member %d", nobody)
			}
		}
		embedkit.Write(t, ens.Node(2), "/after")
	})
}

// Observers hear of terms in order. They hear of every session that expired, on whichever member it
// was opened, and of no session that was closed.
func TestEvents(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var changes []embed.LeaderChange
		var expired []embed.SessionID
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID != 1 {
				return
			}
			c.Events.LeaderChanged = func(l embed.LeaderChange) {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, l)
			}
			c.Events.SessionExpired = func(id embed.SessionID) {
				mu.Lock()
				defer mu.Unlock()
				expired = append(expired, id)
			}
		}})
		ens.TransferLeadership(1)
		ens.TransferLeadership(2)
		polite, silent := ens.Session(3, embed.SessionOptions{Timeout: time.Minute}), ens.Session(3, embed.SessionOptions{Timeout: time.Second})
		must(t, polite.Close())
		ens.Kill(3)
		ens.Until("the expiry to be told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(expired) > 0
		})
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(expired, []embed.SessionID{silent.ID()}) {
			t.Errorf("expired: %v, want %v", expired, silent.ID())
		}
		if !slices.IsSortedFunc(changes, func(a, b embed.LeaderChange) int { return int(a.Term) - int(b.Term) }) {
			t.Errorf("terms go back: %v", changes)
		}
		led := func(id embed.MemberID) bool { // others may have led too, by unexpected elections
			return slices.ContainsFunc(changes, func(l embed.LeaderChange) bool { return l.Leader == id })
		}
		if !led(1) || !led(2) {
			t.Errorf("changes of leader: %v", changes)
		}
	})
}

// An observer that never returns delays nobody. An observer may close the node.
//
// (CURATOR-495: listeners ran on the thread that events came by and stopped it; kazoo#381: a
// release in a listener never returned.)
func TestEvents_ASlowObserverHoldsUpNobody(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		var self atomic.Pointer[embed.Node]
		closer := make(chan error, 1)
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			switch c.ID {
			case 1:
				c.Events.LeaderChanged = func(embed.LeaderChange) { <-release }
			case 2:
				c.Events.LeaderChanged = func(embed.LeaderChange) {
					if n := self.Swap(nil); n != nil {
						closer <- n.Close()
					}
				}
			}
		}})
		for _, to := range []embed.MemberID{1, 2, 3} {
			ens.TransferLeadership(to)
			embedkit.Write(t, ens.Node(1), "/after-"+string(rune('0'+to)))
		}
		self.Store(ens.Node(2))
		ens.TransferLeadership(1)
		must(t, <-closer)
		must(t, ens.Node(1).Close()) // while its observer is still busy
	})
}

// Nodes of two ensembles in one process do not affect one another.
//
// (etcd#12937, etcd#20871: a second instance met the first one's metrics in a global registry and
// panicked.)
func TestStart_SeveralEnsemblesInOneProcess(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		one, other := embedtest.New(t, 3, embedtest.Options{}), embedtest.New(t, 1, embedtest.Options{})
		embedkit.Write(t, one.Node(1), "/a")
		embedkit.Write(t, other.Node(1), "/b")
		for _, id := range one.Members() {
			one.Kill(id)
		}
		embedkit.Write(t, other.Node(1), "/c")
		s := other.Session(1, embed.SessionOptions{})
		if _, ok, err := s.Exists(bounded(t), "/a"); ok || err != nil {
			t.Errorf("/a of the other ensemble is here: %v, %v", ok, err)
		}
	})
}
