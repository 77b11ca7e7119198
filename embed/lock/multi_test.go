package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMulti_HasAllOrNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		const other = "/locks/y"
		one, err := lock.NewMutex(s, other).Lock(bounded(t))
		must(t, err)
		m := lock.NewMulti(s, path, other)
		if _, err := m.TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryLock of a lock that is held in part: %v", err)
		}
		ens.Until("nothing to be left", func() bool { return len(queued(t, s)) == 0 })
		both := acquiring(t, ens, s, m.Lock)
		first := acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
		pending(t, s, "in without all", both, first)
		must(t, one.Release())
		h := granted(t, both)
		grows(t, one, h)
		pending(t, s, "in beside the Multi", first)
		// Somebody deletes a part: the whole Hold is lost, and none of its znodes stays.
		y, _, err := s.Children(bounded(t), other)
		must(t, err)
		guard := lock.Guard(h)
		must(t, s.Delete(bounded(t), other+"/"+y[0], embed.AnyVersion))
		if !errors.Is(h.Err(), embed.ErrDeleted) {
			t.Errorf("the Hold after a part of it was deleted: %v", h.Err())
		}
		if _, err := s.Multi(bounded(t), guard); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("its guard: %v", err)
		}
		next := granted(t, first)
		grows(t, h, next)
		must(t, next.Release())
		must(t, h.Release())
	})
}

// Curator's InterProcessMultiLock acquires its locks one after the other, so callers with different
// orders of paths wait for each other for ever.
func TestMulti_NoOrderOfPathsDeadlocks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		paths := []string{"/locks/a", "/locks/b", "/locks/c", "/locks/d"}
		var held [4]sync.Mutex
		var wg sync.WaitGroup
		for i := range 6 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			wg.Go(func() {
				for j := range 10 {
					mine := []int{(i + j) % 4, (i + j + 1 + j%3) % 4, (i + j + 2 + j%3) % 4}
					mine = slices.Compact(mine)
					if mine[0] == mine[len(mine)-1] {
						mine = mine[:len(mine)-1]
					}
					var names []string
					for _, k := range mine {
						names = append(names, paths[k])
					}
					h, err := lock.NewMulti(s, names...).Lock(bounded(t))
					if err != nil {
						t.Errorf("%v: %v", names, err)
						return
					}
					for _, k := range mine {
						if !held[k].TryLock() {
							t.Errorf("%s is held twice", paths[k])
							return
						}
					}
					for _, k := range mine {
						held[k].Unlock()
					}
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestMulti_BadPaths(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 4 }})
		s := ens.Session(1, embed.SessionOptions{})
		for name, m := range map[string]*lock.Multi{
			"none":  lock.NewMulti(s),
			"twice": lock.NewMulti(s, "/a", "/b", "/a"),
			"empty": lock.NewMulti(s, "/a", ""),
		} {
			if h, err := m.Lock(bounded(t)); !errors.Is(err, embed.ErrInvalidPath) {
				t.Errorf("%s: %v, %v", name, h, err)
			}
		}
		cross := 0
		for _, p := range []string{"/a/l", "/b/l", "/c/l", "/d/l", "/e/l"} {
			_, err := lock.NewMulti(s, "/z"+p, p).TryLock(bounded(t))
			if errors.Is(err, embed.ErrCrossShard) {
				cross++
			}
		}
		if cross == 0 {
			t.Error("no two of five paths are of two shards")
		}
		ctx, cancel := context.WithCancel(bounded(t))
		cancel()
		if _, err := lock.NewMulti(s, "/a/m", "/a/n").Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that is over: %v", err)
		}
	})
}
