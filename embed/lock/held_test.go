package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A finder is Held, or one of its variants for other kinds of lock.
type finder = func(context.Context, string) (*lock.Hold, bool)

// A function that is called under a lock finds the Hold in its ctx, does not wait for it, and
// cannot give it up. In Netflix/curator#75 two locks on one path in one thread waited for each
// other. In kazoo#291 the first of two releases freed the lock, and the rest ran without it.
func TestHeld(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		rw := lock.NewRWMutex(s, path)
		for name, k := range map[string]struct {
			acquire acquirer
			held    finder
		}{
			"a mutex": {lock.NewMutex(s, path).Lock, lock.Held}, "kept": {kept(s, time.Millisecond).Lock, lock.Held},
			"several": {lock.NewMulti(s, path, path+"3").Lock, lock.Held}, "the other one of several": {lock.NewMulti(s, path+"3", path).Lock, lock.Held},
			"a writer": {rw.Lock, lock.Held}, "a writer who reads": {rw.Lock, lock.HeldRead}, "a reader": {rw.RLock, lock.HeldRead},
			"permits": {acquires(lock.NewSemaphore(s, path, 2), 2), lock.HeldPermits},
		} {
			if _, ok := k.held(bounded(t), path); ok {
				t.Errorf("%s: held by a ctx that is of no Hold", name)
			}
			h, err := k.acquire(bounded(t))
			must(t, err)
			ctx, cancel := context.WithCancel(h.Context()) // as a caller passes it on
			if _, ok := k.held(ctx, path+"2"); ok {
				t.Errorf("%s: another path is held", name)
			}
			for range 2 {
				inner, ok := k.held(ctx, path)
				if !ok || inner.Token() != h.Token() || inner.Path() != h.Path() {
					t.Fatalf("%s: %v, %v; want the Hold of %s", name, inner, ok, h.Path())
				}
				if again, ok := k.held(inner.Context(), path); !ok || again.Token() != h.Token() {
					t.Errorf("%s: found in the ctx of a Hold from Held: %v", name, ok)
				}
				must(t, inner.Release())
				if err := errors.Join(h.Err(), inner.Err()); err != nil {
					t.Errorf("%s: an inner release ended it: %v", name, err)
				}
				if _, ok, err := s.Exists(bounded(t), h.Path()); !ok || err != nil {
					t.Errorf("%s: an inner release freed it: %v", name, err)
				}
			}
			cancel()
			must(t, h.Release())
			if inner, ok := k.held(ctx, path); ok {
				t.Errorf("%s: held after its end: %v", name, inner)
			}
			ens.Until(name+" to be free", func() bool { return left(t, s) == 0 || name == "kept" })
		}
		must(t, lock.Do(bounded(t), ens.Opener(1), "/do", func(ctx context.Context, token lock.Token) error {
			if inner, ok := lock.Held(ctx, "/do"); !ok || inner.Token() != token {
				t.Errorf("in Do: %v, %v", inner, ok)
			}
			return nil
		}))
	})
}

// Held does not find a reader's Hold, and neither finds permits.
func TestHeld_TellsKindsApart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		for name, k := range map[string]struct {
			acquire acquirer
			not     []finder
		}{
			"a mutex":  {lock.NewMutex(s, path).Lock, []finder{lock.HeldPermits}},
			"a reader": {lock.NewRWMutex(s, path).RLock, []finder{lock.Held, lock.HeldPermits}},
			"permits":  {acquires(lock.NewSemaphore(s, path, 2), 2), []finder{lock.Held, lock.HeldRead}},
		} {
			h, err := k.acquire(bounded(t))
			must(t, err)
			for i, held := range k.not {
				for _, p := range []string{path, path + "/leases"} {
					if _, ok := held(h.Context(), p); ok {
						t.Errorf("%s: finder %d finds it at %s", name, i, p)
					}
				}
			}
			must(t, h.Release())
		}
	})
}

// The same path in sessions with different Roots is a different lock. The same path of the ensemble
// is the same lock.
func TestHeld_IsOfAPathOfTheEnsemble(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		create(t, s, "/a", "/b")
		a := ens.Session(1, embed.SessionOptions{Root: "/a"})
		if s.Root() != "/" || a.Root() != "/a" {
			t.Errorf("the roots are %s and %s", s.Root(), a.Root())
		}
		for at, h := range map[string]acquirer{"/a/x": lock.NewMutex(a, "/x").Lock, "/a": lock.NewRWMutex(a, "/").Lock} {
			h, err := h(bounded(t))
			must(t, err)
			if inner, ok := lock.Held(h.Context(), at); !ok || inner.Token() != h.Token() {
				t.Errorf("%s is held: %v", at, ok)
			}
			for _, other := range []string{"/x", "/", "/b/x", "/a/a/x"} {
				if inner, ok := lock.Held(h.Context(), other); ok {
					t.Errorf("%s is held by the Hold of %s: %v", other, at, inner.Path())
				}
			}
			must(t, h.Release())
		}
	})
}

// A zero Hold has ended: every method can be called, and it guards nothing.
func TestHold_ThatNeverWas(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		var h lock.Hold
		<-h.Done()
		if !errors.Is(h.Err(), embed.ErrNotHeld) || !errors.Is(context.Cause(h.Context()), embed.ErrNotHeld) {
			t.Errorf("it is %v, its context %v", h.Err(), context.Cause(h.Context()))
		}
		if h.Path() != "" || h.Token() != (lock.Token{}) || h.Release() != nil || h.Revoked() == nil {
			t.Errorf("it is something: %v", h.Path())
		}
		m := lock.NewRWMutex(s, path)
		for name, none := range map[string]*lock.Hold{"nil": nil, "zero": &h} {
			if _, err := s.Multi(bounded(t), embed.OpCreate("/guarded", nil, embed.Persistent), lock.Guard(none)); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("guarded by %s: %v", name, err)
			}
			if _, err := m.Upgrade(bounded(t), none); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("upgrade of %s: %v", name, err)
			}
			if _, err := m.Downgrade(bounded(t), none); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("downgrade of %s: %v", name, err)
			}
		}
		if _, ok, err := s.Exists(bounded(t), "/guarded"); ok || err != nil {
			t.Errorf("written all the same: %v, %v", ok, err)
		}
	})
}
