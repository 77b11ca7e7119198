package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// guarded sets /data under a guard. It checks the outcome, and that /data agrees with it.
func guarded(t *testing.T, s *embed.Session, guard embed.Op, data string, want ...error) {
	t.Helper()
	_, err := s.Multi(bounded(t), embed.OpSet("/locks/data", []byte(data), embed.AnyVersion), guard)
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("guarded write of %q: %v, want %v", data, err, w)
		}
	}
	var multi *embed.MultiError
	if len(want) > 0 && (!errors.As(err, &multi) || multi.Index != 1) {
		t.Errorf("guarded write of %q: %v does not name operation 1", data, err)
	} else if len(want) == 0 {
		must(t, err)
	}
	_, err = s.Sync(bounded(t), "/")
	must(t, err)
	got, _, err := s.Get(bounded(t), "/locks/data")
	must(t, err)
	if (string(got) == data) != (len(want) == 0) {
		t.Errorf("the data is %q after a guarded write of %q with outcome %v", got, data, want)
	}
}

// A guarded write of any session is applied while the Hold lasts, and never after. In CURATOR-607
// and CURATOR-689 nobody could tie a write to a lock.
func TestGuard(t *testing.T) {
	sessionsflag.Member(t, "a client's tenure guards transactions of its own session only")
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		create(t, s, "/locks", "/locks/data")
		m := lock.NewMutex(s, path)
		hold, err := m.Lock(bounded(t))
		must(t, err)
		guarded(t, s, lock.Guard(hold), "own")
		guarded(t, other, lock.Guard(hold), "another session's")
		below := ens.Session(1, embed.SessionOptions{Root: "/locks"})
		if _, err := below.Multi(bounded(t), lock.Guard(hold)); err != nil {
			t.Errorf("a guard in a session with a root of its own: %v", err)
		}
		must(t, hold.Release())
		guarded(t, s, lock.Guard(hold), "late", embed.ErrNotHeld, embed.ErrReleased)

		next, err := m.Lock(bounded(t))
		must(t, err)
		guarded(t, other, lock.Guard(hold), "under somebody else's hold", embed.ErrNotHeld)
		guarded(t, other, lock.Guard(next), "next")
		must(t, s.Close())
		guarded(t, other, lock.Guard(next), "after the session", embed.ErrNotHeld, embed.ErrSessionClosed)

		leadership, err := election.New(other, "/locks/leader").Campaign(bounded(t), nil)
		must(t, err)
		guarded(t, other, election.Guard(leadership), "the leader's")
		must(t, leadership.Resign())
		guarded(t, other, election.Guard(leadership), "a former leader's", embed.ErrNotHeld)

		held, err := claim.New(bounded(t), other, embed.OpCreate("/locks/claim", nil, embed.Ephemeral))
		must(t, err)
		_, err = held.Created(bounded(t))
		must(t, err)
		first, err := held.Hold(true)
		must(t, err)
		guarded(t, other, claim.OpGuard(first), "the first tenure's")
		guarded(t, ens.Session(1, embed.SessionOptions{}), claim.OpGuard(first), "another session's, where turns follow without a commit", embed.ErrNotHeld)
		first.End()
		second, err := held.Hold(true)
		must(t, err)
		guarded(t, other, claim.OpGuard(first), "the first tenure's in the second", embed.ErrNotHeld, embed.ErrReleased)
		guarded(t, other, claim.OpGuard(second), "the second tenure's")
	})
}

// E3.1: a node is cut off and still believes in its Hold, but somebody has deleted the Hold's
// znode. The Hold guards nothing any more, because the ensemble decides. A lock by itself protects
// nothing outside of it, which nobody had said in etcd#11457.
func TestGuard_IsJudgedWhenItIsApplied(t *testing.T) {
	sessionsflag.Member(t, "a client's tenure guards transactions of its own session only")
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		create(t, s, "/locks", "/locks/data")
		hold, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		_, err = other.Sync(bounded(t), "/")
		must(t, err)
		ens.TransferLeadership(3)
		ens.Isolate(1)
		guarded(t, other, lock.Guard(hold), "while it is held")
		must(t, other.Delete(bounded(t), hold.Path(), embed.AnyVersion))
		next, err := lock.NewMutex(other, path).Lock(bounded(t))
		must(t, err)
		if err := hold.Err(); err != nil {
			t.Fatalf("the hold has ended by its own clock already: %v", err)
		}
		guarded(t, other, lock.Guard(hold), "after it was deleted by hand", embed.ErrNotHeld)
		guarded(t, other, lock.Guard(next), "the next holder's")

		// A write that the cut-off holder has issued itself is checked when it arrives.
		pending := s.Submit(bounded(t), lock.Guard(hold), embed.OpSet("/locks/data", []byte("late"), embed.AnyVersion))
		select {
		case <-pending.Done():
			t.Fatal("a write through a member that is cut off has an outcome")
		default:
		}
		ens.HealAll()
		if _, err := pending.Result(); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("a guarded write that was on its way: %v", err)
		}
		guarded(t, other, lock.Guard(next), "still the next holder's")
	})
}

// Every kind of Hold has a znode that guards writes under it. In CURATOR-662 a read-write lock kept
// the path of its znode to itself, so nothing could be tied to it.
func TestGuard_OfEveryKindOfHold(t *testing.T) {
	sessionsflag.Member(t, "a client's tenure guards transactions of its own session only")
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		create(t, s, "/locks", "/locks/data")
		rw := lock.NewRWMutex(s, "/locks/rw")
		for _, k := range []struct {
			name    string
			acquire acquirer
		}{
			{"read", rw.RLock},
			{"write", rw.Lock},
			{"downgraded", func(ctx context.Context) (*lock.Hold, error) {
				w, err := rw.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return rw.Downgrade(ctx, w)
			}},
			{"upgraded", func(ctx context.Context) (*lock.Hold, error) {
				r, err := rw.RLock(ctx)
				if err != nil {
					return nil, err
				}
				return rw.Upgrade(ctx, r)
			}},
			{"permits", acquires(lock.NewSemaphore(s, "/locks/semaphore", 3), 2)},
			{"several", lock.NewMulti(s, "/locks/a", "/locks/b").Lock},
		} {
			h, err := k.acquire(bounded(t))
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if stat, ok, err := s.Exists(bounded(t), h.Path()); !ok || err != nil || stat.EphemeralOwner != s.ID() {
				t.Errorf("%s: %s is of session %d: %v, %v", k.name, h.Path(), stat.EphemeralOwner, ok, err)
			}
			guarded(t, s, lock.Guard(h), k.name)
			guarded(t, other, lock.Guard(h), k.name+" by another session")
			must(t, h.Release())
			guarded(t, other, lock.Guard(h), k.name+" late", embed.ErrNotHeld)
		}
	})
}
