package lock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func notes(list []lock.Contender, err error) (all []string) {
	for _, c := range list {
		all = append(all, c.Note)
	}
	if err != nil {
		all = append(all, err.Error())
	}
	return all
}

func wantNotes(t testing.TB, s *embed.Session, what string, holders, waiters []string) {
	t.Helper()
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	got := notes(lock.Holders(bounded(t), s, path))
	if len(got) != len(holders) {
		t.Fatalf("%s: the holders are %q, want %q", what, got, holders)
	}
	waits := notes(lock.Waiters(bounded(t), s, path))
	if len(waits) != len(waiters) {
		t.Fatalf("%s: the waiters are %q, want %q", what, waits, waiters)
	}
	for i, n := range append(got, waits...) {
		if want := append(append([]string{}, holders...), waiters...)[i]; n != want {
			t.Errorf("%s: contender %d is %q, want %q", what, i, n, want)
		}
	}
}

func TestHoldersAndWaiters(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 2, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		wantNotes(t, s, "nobody", nil, nil)
		noted := func(note string) lock.Options { return lock.Options{Note: note} }

		m := lock.NewMutex(s, path)
		h, err := m.With(noted("first")).Lock(bounded(t))
		must(t, err)
		second := acquiring(t, ens, other, lock.NewMutex(other, path).With(noted("second")).Lock)
		third := acquiring(t, ens, s, m.With(noted("third")).Lock)
		wantNotes(t, s, "a mutex", []string{"first"}, []string{"second", "third"})
		holders, err := lock.Holders(bounded(t), s, path)
		must(t, err)
		waiters, err := lock.Waiters(bounded(t), s, path)
		must(t, err)
		if c := holders[0]; c.Path != h.Path() || c.Session != s.ID() || c.Member != 1 || c.Token != h.Token() || c.Age < 0 {
			t.Errorf("the holder is %+v", c)
		}
		if c := waiters[0]; c.Session != other.ID() || c.Member != 2 {
			t.Errorf("the first waiter is %+v", c)
		}
		must(t, h.Release())
		next := granted(t, second)
		if next.Token() != waiters[0].Token {
			t.Errorf("a waiter was to have token %v, and has %v", waiters[0].Token, next.Token())
		}
		must(t, next.Release())
		must(t, granted(t, third).Release())

		rw := lock.NewRWMutex(s, path)
		r1, err := rw.With(noted("r1")).RLock(bounded(t))
		must(t, err)
		r2, err := rw.With(noted("r2")).RLock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, rw.With(noted("w")).Lock)
		r3 := acquiring(t, ens, s, rw.With(noted("r3")).RLock)
		wantNotes(t, s, "readers", []string{"r1", "r2"}, []string{"w", "r3"})
		must(t, r1.Release())
		must(t, r2.Release())
		writer := granted(t, w)
		wantNotes(t, s, "a writer", []string{"w"}, []string{"r3"})
		must(t, writer.Release())
		must(t, granted(t, r3).Release())

		sem := lock.NewSemaphore(s, path, 2)
		two, err := sem.With(noted("two")).Acquire(bounded(t), 2)
		must(t, err)
		one := permits(t, ens, s, func(ctx context.Context) (*lock.Hold, error) { return sem.With(noted("one")).Acquire(ctx, 1) })
		wantNotes(t, s, "a semaphore", []string{"two", "two"}, []string{"one"})
		must(t, two.Release())
		must(t, granted(t, one).Release())
	})
}

// Revoke asks a holder whom its own replica does not show yet.
func TestRevoke_WhereItIsSeenTooLate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		leads, lags := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		ens.Faults(1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
		<-time.After(time.Second)
		h, err := lock.NewMutex(leads, path).Lock(bounded(t))
		must(t, err)
		must(t, lock.Revoke(bounded(t), lags, path))
		_, err = leads.Sync(bounded(t), path)
		must(t, err)
		select {
		case <-h.Revoked():
		case <-time.After(time.Second):
			t.Error("the holder was not asked")
		}
		must(t, h.Release())
	})
}

// As with Curator's Revoker, the holder is asked and may go on.
func TestRevoke(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		must(t, lock.Revoke(bounded(t), s, path)) // nobody holds it
		h, err := lock.NewMutex(s, path).With(lock.Options{Note: "mine"}).Lock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
		asked := h.Revoked()
		_, err = other.Set(bounded(t), h.Path(), []byte("another note"), embed.AnyVersion)
		must(t, err)
		select {
		case <-asked:
			t.Error("any write is a revocation")
		default:
		}
		must(t, lock.Revoke(bounded(t), other, path))
		<-asked
		<-h.Revoked()
		if h.Err() != nil {
			t.Errorf("it ended the Hold: %v", h.Err())
		}
		must(t, h.Release())
		next := granted(t, w)
		select {
		case <-next.Revoked():
			t.Error("the next Hold is asked")
		default:
		}
		must(t, next.Release())
		// A late call of Revoked is told as well. Of several paths one request is enough.
		both, err := lock.NewMulti(s, path, "/locks/y").Lock(bounded(t))
		must(t, err)
		must(t, lock.Revoke(bounded(t), other, "/locks/y"))
		<-both.Revoked()
		must(t, both.Release())
	})
}

// A contender that the session may not read still keeps others waiting, and hides nobody else.
func TestHolders_OfWhichOneMayNotBeRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		bob := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("bob:secret")}}})
		m := lock.NewRWMutex(s, path)
		first, err := m.With(lock.Options{Note: "first"}).RLock(bounded(t))
		must(t, err)
		hidden, _, err := bob.CreateWith(bounded(t), path+"/_c_00000000-0000-4000-8000-000000000000-__READ__", []byte("bob's"),
			embed.CreateOptions{Mode: embed.EphemeralSequential, ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}})
		must(t, err)
		third, err := m.With(lock.Options{Note: "third"}).RLock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, m.With(lock.Options{Note: "writer"}).Lock)
		wantNotes(t, s, "one is hidden", []string{"first", "", "third"}, []string{"writer"})
		holders, err := lock.Holders(bounded(t), s, path)
		must(t, err)
		if !reflect.DeepEqual(holders[1], lock.Contender{Path: hidden}) {
			t.Errorf("%+v", holders[1])
		}
		if err := lock.Revoke(bounded(t), s, path); !errors.Is(err, embed.ErrNoAuth) {
			t.Errorf("Revoke: %v", err)
		}
		<-first.Revoked()
		<-third.Revoked()
		must(t, errors.Join(first.Release(), third.Release(), bob.Close()))
		must(t, granted(t, w).Release())
	})
}

// Holders and Waiters work for every kind of lock, and return its own znodes only. In
// curator@10eb1efe a semaphore returned those of another path.
func TestHolders_OfEveryKind(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		rw, theirs := lock.NewRWMutex(s, path), lock.NewRWMutex(other, path)
		note := func(o string) lock.Options { return lock.Options{Note: o} }
		for _, k := range []struct {
			name  string
			holds []acquirer
			waits acquirer
		}{
			{name: "a mutex", holds: []acquirer{lock.NewMutex(s, path).With(note("a")).Lock}, waits: lock.NewMutex(other, path).With(note("z")).Lock},
			{name: "a writer", holds: []acquirer{rw.With(note("a")).Lock}, waits: theirs.With(note("z")).RLock},
			{name: "readers", holds: []acquirer{rw.With(note("a")).RLock, rw.With(note("b")).RLock}, waits: theirs.With(note("z")).Lock},
			{name: "permits", holds: []acquirer{acquires(lock.NewSemaphore(s, path, 2).With(note("a")), 1), acquires(lock.NewSemaphore(s, path, 2).With(note("b")), 1)},
				waits: acquires(lock.NewSemaphore(other, path, 2).With(note("z")), 1)},
		} {
			var holds []*lock.Hold
			for _, acquire := range k.holds {
				h, err := acquire(bounded(t))
				must(t, err)
				holds = append(holds, h)
			}
			next := permits(t, ens, s, k.waits)
			is := func(what string, c lock.Contender, session embed.SessionID, note string) {
				t.Helper()
				stat, ok, err := s.Exists(bounded(t), c.Path)
				if !ok || err != nil || c.Session != session || stat.EphemeralOwner != session || c.Note != note {
					t.Errorf("%s: %s: %+v, of session %d with the note %q; there: %v, %v", k.name, what, c, session, note, ok, err)
				}
			}
			list, err := lock.Holders(bounded(t), other, path)
			must(t, err)
			if len(list) != len(holds) {
				t.Fatalf("%s: %d hold it: %+v", k.name, len(list), list)
			}
			for i, c := range list {
				is("holder", c, s.ID(), string(rune('a'+i)))
				if c.Path != holds[i].Path() || c.Token != holds[i].Token() {
					t.Errorf("%s: %s holds it with token %v, want %s with %v", k.name, c.Path, c.Token, holds[i].Path(), holds[i].Token())
				}
			}
			list, err = lock.Waiters(bounded(t), s, path)
			must(t, err)
			if len(list) != 1 {
				t.Fatalf("%s: %d wait for it: %+v", k.name, len(list), list)
			}
			is("waiter", list[0], other.ID(), "z")
			for _, h := range holds {
				must(t, h.Release())
			}
			h := granted(t, next)
			list, err = lock.Holders(bounded(t), s, path)
			if err != nil || len(list) != 1 || list[0].Path != h.Path() || list[0].Note != "z" {
				t.Errorf("%s: then %+v holds it, %v; want %s", k.name, list, err, h.Path())
			}
			must(t, h.Release())
		}
	})
}

// What only has a name like a contender's, or stands where contenders do, is neither asked nor evicted:
// it keeps its data and stays. Nothing is a contender but an ephemeral; what lingers is none any more.
func TestRevokeAndEvict_TouchContendersAlone(t *testing.T) {
	const uuid = "_c_00000000-0000-4000-8000-000000000000-"
	testkit.Bubble(t, func(t *testing.T) {
		s := one(t).Session(1, embed.SessionOptions{})
		for i, z := range []struct {
			name    string
			options embed.CreateOptions
		}{
			{"order-0000000001", embed.CreateOptions{}},
			{"lock-0000000001", embed.CreateOptions{}},
			{"lock-0000000001", embed.CreateOptions{Mode: embed.Container}},
			{uuid + "lock-0000000001", embed.CreateOptions{}},
			{uuid + "__READ__0000000001", embed.CreateOptions{}},
			{uuid + "__WRIT__0000000001", embed.CreateOptions{}},
			{uuid + "d9000-lock-0000000001", embed.CreateOptions{Mode: embed.TTL, TTL: time.Hour}},
			{"leases/" + uuid + "lease-0000000001", embed.CreateOptions{}},
			{"abc__lock__0000000001", embed.CreateOptions{}},
			{"instance-0000000001", embed.CreateOptions{Mode: embed.Ephemeral}},
			{"0000000001", embed.CreateOptions{Mode: embed.Ephemeral}},
		} {
			parent := fmt.Sprintf("/q%d", i)
			at := parent + "/" + z.name
			z.options.Parents = true
			_, stat, err := s.CreateWith(bounded(t), at, []byte("precious"), z.options)
			must(t, err)
			must(t, lock.Revoke(bounded(t), s, parent))
			if err := lock.Evict(bounded(t), s, at); !errors.Is(err, embed.ErrInvalidPath) {
				t.Errorf("%s: Evict: %v", at, err)
			}
			data, now, err := s.Get(bounded(t), at)
			if err != nil || string(data) != "precious" || now.Mzxid != stat.Mzxid {
				t.Errorf("%s: %q, %v", at, data, err)
			}
		}
	})
}
