package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// keyed returns the locks of keys, which keep what they lock.
func keyed(s *embed.Session, keep time.Duration, most int) *lock.Keys {
	return lock.NewKeys(s, "/keys").With(lock.KeysOptions{Lock: lock.Options{Keep: keep}, Kept: most})
}

// below returns the names of a znode's children, or none if there is no such znode.
func below(t testing.TB, s *embed.Session, path string) []string {
	t.Helper()
	names, _, err := s.Children(bounded(t), path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		t.Fatal(err)
	}
	return names
}

// Holders of one key exclude one another, and a Mutex on its path. Those of other keys do not.
func TestKeys_ExcludePerKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		for _, c := range []struct {
			name string
			keys *lock.Keys
		}{
			{"plain", lock.NewKeys(s, "/keys")},
			{"kept", keyed(s, time.Hour, 0)}, // the last one, for it keeps b
		} {
			name, keys := c.name, c.keys
			a, err := keys.Lock(bounded(t), "a")
			must(t, err)
			if _, err := keys.TryLock(bounded(t), "a"); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("%s: the same key: %v", name, err)
			}
			if _, err := lock.NewMutex(other, "/keys/a").TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("%s: a Mutex on its path: %v", name, err)
			}
			if inner, ok := lock.Held(a.Context(), keys.Path("a")); !ok || inner.Token() != a.Token() {
				t.Errorf("%s: not found in its context", name)
			}
			b, err := keys.TryLock(bounded(t), "b")
			must(t, err)
			must(t, errors.Join(a.Release(), b.Release()))
			h, err := lock.NewMutex(other, "/keys/a").Lock(bounded(t)) // a kept one is given up for it
			must(t, err)
			grows(t, a, h)
			must(t, h.Release())
		}
	})
}

// Many callers of many keys, through two sessions: one holds a key at a time, and tokens grow.
func TestKeys_UnderLoad(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens, rng := embedtest.New(t, 3, embedtest.Options{}), testkit.Rand(t)
		var holders [5]atomic.Int32
		var last [5]lock.Token // guarded by the lock of the key
		var wg sync.WaitGroup
		for i := range 3 {
			s := ens.Session(embed.MemberID(i+1), embed.SessionOptions{})
			keys := keyed(s, 10*time.Millisecond, 2)
			if i == 0 {
				keys = lock.NewKeys(s, "/keys")
			}
			for range 4 {
				wg.Go(func() {
					for range 15 {
						key := rng.IntN(len(holders))
						h, err := keys.Lock(bounded(t), fmt.Sprint(key))
						if err != nil {
							t.Error(err)
							return
						}
						if n := holders[key].Add(1); n != 1 {
							t.Errorf("%d hold key %d", n, key)
						}
						if h.Token().Compare(last[key]) <= 0 {
							t.Errorf("key %d: token %v after %v", key, h.Token(), last[key])
						}
						last[key] = h.Token()
						runtime.Gosched()
						holders[key].Add(-1)
						if err := h.Release(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
	})
}

// Any text is a key, and different ones have different paths. A plain one stands as it is.
func TestKeys_AnyTextIsAKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		keys := lock.NewKeys(s, "/keys")
		all := []string{
			"a", "a b", "a/b", "a%b", "a%2Fb", "/", "//", "%", ".", "..", "...", "%2E", "ü", "日本", "\x00", "\x7f", "\u0085",
			"\xff", "\xff\xfe", "\ue000", "\ufffd", "\uffff", "😀", "a\n", "zookeeper", "leases", "0000000001", strings.Repeat("x", 5000),
		}
		seen := make(map[string]string)
		for _, key := range all {
			p := keys.Path(key)
			if err := tree.ValidatePath(p); err != nil {
				t.Errorf("%q: %v", key, err)
			}
			if twin, ok := seen[p]; ok || strings.Count(p, "/") != 2 {
				t.Errorf("%q and %q: %s", key, twin, p)
			}
			seen[p] = key
			h, err := keys.Lock(bounded(t), key)
			must(t, err)
			must(t, h.Release())
		}
		for key, want := range map[string]string{"user-7": "/keys/user-7", "日本": "/keys/日本", "a/b%": "/keys/a%2Fb%25", "😀": "/keys/%F0%9F%98%80", "..": "/keys/%2E%2E"} {
			if p := keys.Path(key); p != want {
				t.Errorf("%q is at %s, want %s", key, p, want)
			}
		}
		if p := lock.NewKeys(s, "/").Path("a"); p != "/a" {
			t.Errorf("below the root: %s", p)
		}
	})
}

func FuzzKeys_Path(f *testing.F) {
	keys := lock.NewKeys(nil, "/keys")
	f.Add("a", "b")
	f.Add("a/b", "a%2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		p := keys.Path(a)
		if a != "" && (tree.ValidatePath(p) != nil || strings.Count(p, "/") != 2) {
			t.Errorf("%q: %s", a, p)
		}
		if a != b && p == keys.Path(b) {
			t.Errorf("%q and %q: %s", a, b, p)
		}
	})
}

func TestKeys_WhatIsWrong(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		for name, wrong := range map[string]struct {
			keys *lock.Keys
			key  string
			want error
		}{
			"no key":           {lock.NewKeys(s, "/keys"), "", embed.ErrInvalidPath},
			"no key, kept":     {keyed(s, time.Hour, 0), "", embed.ErrInvalidPath},
			"no directory":     {lock.NewKeys(s, ""), "a", embed.ErrInvalidPath},
			"the directory":    {lock.NewKeys(s, "keys"), "a", embed.ErrInvalidPath},
			"kept, negative":   {keyed(s, time.Hour, -1), "a", embed.ErrInvalidArgument},
			"stripes":          {lock.NewKeys(s, "/keys").With(lock.KeysOptions{Stripes: -1}), "a", embed.ErrInvalidArgument},
			"the lock's":       {keyed(s, -1, 0), "a", embed.ErrInvalidArgument},
			"the lock's, both": {lock.NewKeys(s, "/keys").With(lock.KeysOptions{Lock: lock.Options{Keep: 1, Identity: "x"}}), "a", embed.ErrInvalidArgument},
		} {
			for how, acquire := range map[string]func(context.Context, string) (*lock.Hold, error){"Lock": wrong.keys.Lock, "TryLock": wrong.keys.TryLock} {
				if _, err := acquire(bounded(t), wrong.key); !errors.Is(err, wrong.want) {
					t.Errorf("%s of %s: %v, want %v", how, name, err, wrong.want)
				}
			}
		}
		if names := below(t, s, "/keys"); len(names) > 0 {
			t.Errorf("left: %v", names)
		}
	})
}

// With stripes keys share a bounded number of znodes, the same for everybody.
func TestKeys_Stripes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		keys := lock.NewKeys(s, "/keys").With(lock.KeysOptions{Stripes: 7})
		used := make(map[string]int)
		for i := range 1000 {
			used[keys.Path(fmt.Sprint(i))]++
		}
		for p, n := range used {
			if n < 70 {
				t.Errorf("%s has %d of 1000 keys", p, n)
			}
		}
		if len(used) != 7 || keys.Path("a") != "/keys/5" { // as other versions of this package compute it
			t.Errorf("%d stripes are used, a is at %s", len(used), keys.Path("a"))
		}
		h, err := keys.Lock(bounded(t), "a")
		must(t, err)
		_, err = lock.NewMutex(s, "/keys/5").TryLock(bounded(t))
		if !errors.Is(err, lock.ErrHeld) {
			t.Error(err)
		}
		must(t, h.Release())
	})
}

// The first lock of a key costs one commit, and so does its release.
func TestKeys_TheFirstLockIsOneCommit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Hour})
		keys := lock.NewKeys(s, "/some/keys")
		for i := range 5 {
			before, err := s.Sync(bounded(t), "/")
			must(t, err)
			h, err := keys.Lock(bounded(t), fmt.Sprint(i))
			must(t, err)
			if h.Token().Zxid != before+1 {
				t.Errorf("zxid %d became %d", before, h.Token().Zxid)
			}
			must(t, h.Release())
		}
	})
}

// In conductor-community#246 a parent znode stayed for each key, for ever. Here nothing stays of
// any key: no znode and no memory.
func TestKeys_NothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		const n = 2000
		for round := range 3 {
			var wg sync.WaitGroup
			for caller := range 20 {
				keys := lock.NewKeys(s, "/keys")
				if round > 0 {
					keys = keyed(s, time.Second, 10)
				}
				wg.Go(func() {
					for i := range n / 20 {
						ctx, cancel := context.WithCancel(t.Context())
						if i%10 == 0 {
							cancel() // it never enters
						} else if i%10 == 1 {
							go cancel() // it may have entered
						}
						h, err := keys.Lock(ctx, fmt.Sprint(caller, "/", i))
						if err == nil {
							err = h.Release()
						}
						if err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			if round > 0 {
				ens.Until("no more to be kept than may be", func() bool {
					names, err := s.Ephemerals(t.Context(), "/")
					return err == nil && len(names) <= round*20*10 // those of the round before keep some too
				})
			}
			if round == 2 {
				must(t, s.Close())
				s = ens.Session(1, embed.SessionOptions{})
			}
			if round == 1 {
				continue
			}
			<-time.After(10 * time.Minute) // the ensemble removes what is empty
			if names := below(t, s, "/keys"); len(names) > 0 || slices.Contains(below(t, s, "/"), "keys") {
				t.Errorf("left: %d, such as %s", len(names), names[0])
			}
		}
	})
}

// A Keys keeps what was used last, and no more than it may.
func TestKeys_KeepsWhatWasUsedLast(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		keys := keyed(s, time.Hour, 3)
		again := func(key string) embed.Zxid {
			h, err := keys.Lock(bounded(t), key)
			must(t, err)
			must(t, h.Release())
			return h.Token().Zxid
		}
		held := func(key string) bool { return len(below(t, s, keys.Path(key))) > 0 }
		first := again("a")
		for _, key := range []string{"b", "c", "a", "d"} {
			again(key)
		}
		ens.Until("the fourth to push one out", func() bool { return !held("b") })
		if got := again("a"); got != first {
			t.Errorf("a was granted by zxid %d, then by %d", first, got)
		}
		for _, key := range []string{"a", "c", "d"} {
			if !held(key) {
				t.Errorf("%s is not kept", key)
			}
		}
		// A Hold is not given up while it lives, however many come after it.
		h, err := keys.Lock(bounded(t), "a")
		must(t, err)
		for i := range 10 {
			again(fmt.Sprint(i))
		}
		if h.Err() != nil || !held("a") {
			t.Errorf("it was given up under its Hold: %v", h.Err())
		}
		must(t, h.Release())
		ens.Until("three to be kept", func() bool {
			n := 0
			for _, name := range below(t, s, "/keys") {
				n += len(below(t, s, "/keys/"+name))
			}
			return n == 3
		})
		// What another session takes is forgotten.
		other := ens.Session(1, embed.SessionOptions{})
		got, err := lock.NewMutex(other, keys.Path("9")).Lock(bounded(t))
		must(t, err)
		ens.Until("it to be forgotten", func() bool { return lock.KeptBy(keys) == 2 })
		must(t, got.Release())
		must(t, s.Close())
		ens.Until("nothing to be remembered", func() bool { return lock.KeptBy(keys) == 0 })
	})
}

// With Options.Kazoo a contender has the name of kazoo's Lock, for which it waits like for any other.
func TestMutex_KazoosNames(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewMutex(s, path).With(lock.Options{Kazoo: true, Note: "us"})
		h, err := m.Lock(bounded(t))
		must(t, err)
		if names := queued(t, s); len(names) != 1 || !kazooName.MatchString(names[0]) {
			t.Errorf("queued: %v", names)
		}
		_, err = lock.NewMutex(s, path).TryLock(bounded(t))
		if !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a plain Mutex: %v", err)
		}
		must(t, h.Release())
		theirs, err := s.Create(bounded(t), path+"/0123456789abcdef0123456789abcdef__lock__", nil, embed.EphemeralSequential)
		must(t, err)
		if _, err := m.TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("beside kazoo's: %v", err)
		}
		must(t, s.Delete(bounded(t), theirs, embed.AnyVersion))
		h, err = m.TryLock(bounded(t))
		must(t, err)
		must(t, h.Release())
		rw, multi, permits := lock.NewRWMutex(s, path), lock.NewMulti(s, path), lock.NewSemaphore(s, path, 1)
		o := lock.Options{Kazoo: true}
		for name, acquire := range map[string]acquirer{"rw": rw.With(o).Lock, "multi": multi.With(o).Lock, "permits": acquires(permits.With(o), 1)} {
			if _, err := acquire(bounded(t)); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

var kazooName = regexp.MustCompile(`__lock__\d{10}$`)
