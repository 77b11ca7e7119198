package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Contenders with names of other clients behave like ours: readers share the lock with readers, and
// all others exclude everybody.
func TestForeignContenders(t *testing.T) {
	const uuid = "67d4f6a2-ee79-4cbb-9f0e-1d2f6c3a5b70"
	for name, readersShare := range map[string]bool{
		"_c_" + uuid + "-lock-":                             false, // InterProcessMutex, LeaderSelector, go-zookeeper
		"_c_" + uuid + "-__READ__":                          true,  // InterProcessReadWriteLock
		"_c_" + uuid + "-__WRIT__":                          false,
		"67d4f6a2ee794cbb9f0e1d2f6c3a5b70__lock__":          false, // kazoo's Lock and WriteLock
		"67d4f6a2ee794cbb9f0e1d2f6c3a5b70__rlock__":         true,  // ReadLock
		"_c_" + uuid + "-d500-i0123456789abcdef-__READ__":   true,
		"_c_" + uuid + "-d500-i0123456789abcdef-lock-":      false,
		"~u_" + uuid + "-up-z12-__WRIT__000000000000000000": false, // a place between two numbers
		"_c_" + uuid + "-z12-__READ__":                      true,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				ens := one(t)
				mine, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
				mutex, rw := lock.NewMutex(mine, path), lock.NewRWMutex(mine, path)
				first, err := rw.RLock(bounded(t)) // creates the lock's znode
				must(t, err)
				foreign, err := other.Create(bounded(t), path+"/"+name, nil, embed.EphemeralSequential)
				must(t, err)
				must(t, first.Release())
				for _, c := range []struct {
					kind   string
					try    func(context.Context) (*lock.Hold, error)
					shares bool
				}{
					{"Mutex.TryLock", mutex.TryLock, false},
					{"RWMutex.TryLock", rw.TryLock, false},
					{"RWMutex.TryRLock", rw.TryRLock, readersShare},
				} {
					hold, err := c.try(bounded(t))
					if c.shares {
						must(t, err)
						holders, err := lock.Holders(bounded(t), mine, path)
						must(t, err)
						if len(holders) != 2 {
							t.Errorf("%d holders", len(holders))
						}
						must(t, hold.Release())
					} else if !errors.Is(err, lock.ErrHeld) {
						t.Errorf("%s: %v", c.kind, err)
					}
				}
				must(t, other.Delete(bounded(t), foreign, embed.AnyVersion))
			})
		})
	}
}

// CURATOR-621: a writer of Curator 5.5 or newer becomes a reader. Its read contender has the number
// of its write contender, which then goes. The reader behind comes in, and no writer comes in
// before both are gone.
func TestForeignContenders_ADowngradeKeepsItsNumber(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		mine, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		rw := lock.NewRWMutex(mine, path)
		first, err := rw.RLock(bounded(t)) // creates the lock's znode
		must(t, err)
		const writes, reads = path + "/_c_67d4f6a2-ee79-4cbb-9f0e-1d2f6c3a5b70-__WRIT__", path + "/_c_e7b1b4a7-8d44-4d0b-a1c5-0b1a7e0d9c11-__READ__"
		writer, err := other.Create(bounded(t), writes, nil, embed.EphemeralSequential)
		must(t, err)
		must(t, first.Release())
		type outcome struct {
			hold *lock.Hold
			err  error
		}
		begin := func(acquire func(context.Context) (*lock.Hold, error), queue int) chan outcome {
			got := make(chan outcome, 1)
			go func() {
				h, err := acquire(bounded(t))
				got <- outcome{h, err}
			}()
			ens.Until("a contender in the queue", func() bool { return len(queued(t, mine)) == queue })
			return got
		}
		r, w := begin(rw.RLock, 2), begin(rw.Lock, 3)
		reader, err := other.Create(bounded(t), reads+strings.TrimPrefix(writer, writes), nil, embed.Ephemeral)
		must(t, err)
		must(t, other.Delete(bounded(t), writer, embed.AnyVersion))
		beside := <-r
		must(t, beside.err)
		must(t, beside.hold.Release())
		if waiters, err := lock.Waiters(bounded(t), mine, path); err != nil || len(waiters) != 1 || len(w) != 0 {
			t.Errorf("the writer does not wait: %d waiters, %v", len(waiters), err)
		}
		must(t, other.Delete(bounded(t), reader, embed.AnyVersion))
		last := <-w
		must(t, last.err)
		must(t, last.hold.Release())
	})
}

// A reader that upgrades stands behind all readers that can hold the lock, whatever their names.
// The place right before a writer is behind all others of its number.
func TestForeignContenders_AnUpgradeIsBehindThem(t *testing.T) {
	for _, name := range []string{"0d4f6a2ee794cbb9f0e1d2f6c3a5b70__rlock__", "f7d4f6a2ee794cbb9f0e1d2f6c3a5b70__rlock__", "zzz__READ__"} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				ens := one(t)
				mine, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
				rw := lock.NewRWMutex(mine, path)
				read, err := rw.RLock(bounded(t))
				must(t, err)
				beside, err := other.Create(bounded(t), path+"/"+name, nil, embed.EphemeralSequential)
				must(t, err)
				ctx, cancel := context.WithCancel(bounded(t))
				var all sync.WaitGroup
				all.Go(func() {
					if hold, err := rw.Lock(ctx); err == nil {
						t.Error("a writer came in before the readers were gone")
						_ = hold.Release()
					}
				})
				ens.Until("a writer", func() bool { return len(queued(t, mine)) == 3 })
				all.Go(func() {
					write, err := rw.Upgrade(bounded(t), read)
					if err != nil {
						t.Error(err)
						return
					}
					cancel() // otherwise the writer would come in when this one goes
					all.Go(func() { _ = write.Release() })
				})
				var upgrade string
				ens.Until("the upgrading reader to be before the writer", func() bool {
					for _, n := range queued(t, mine) {
						if strings.Contains(n, "-up-") && strings.HasSuffix(n, beside[len(beside)-10:]) {
							upgrade = n
						}
					}
					return upgrade != ""
				})
				before, _, err := claim.Before(bounded(t), mine, path+"/"+upgrade)
				must(t, err)
				if path+"/"+before != beside {
					t.Errorf("before %s is %s, not the reader", upgrade, before)
				}
				must(t, other.Delete(bounded(t), beside, embed.AnyVersion))
				all.Wait()
			})
		})
	}
}
