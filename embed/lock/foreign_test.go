package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// Contenders that others name are what they would be here: readers share with readers, all else excludes.
func TestForeignContenders(t *testing.T) {
	ens := one(t)
	mine, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	mutex, rw := lock.NewMutex(mine, path), lock.NewRWMutex(mine, path)
	const uuid = "67d4f6a2-ee79-4cbb-9f0e-1d2f6c3a5b70"
	for name, readersShare := range map[string]bool{
		"_c_" + uuid + "-lock-":                           false, // InterProcessMutex, LeaderSelector, go-zookeeper
		"_c_" + uuid + "-__READ__":                        true,  // InterProcessReadWriteLock
		"_c_" + uuid + "-__WRIT__":                        false,
		"67d4f6a2ee794cbb9f0e1d2f6c3a5b70__lock__":        false, // kazoo's Lock and WriteLock
		"67d4f6a2ee794cbb9f0e1d2f6c3a5b70__rlock__":       true,  // ReadLock
		"_c_" + uuid + "-d500-i0123456789abcdef-__READ__": true,
		"_c_" + uuid + "-d500-i0123456789abcdef-lock-":    false,
		"_u_" + uuid + "-up-z12-__WRIT__0000000000":       false, // a place of twenty digits
		"_c_" + uuid + "-z12-__READ__":                    true,
	} {
		t.Run(name, func(t *testing.T) {
			first, err := rw.RLock(bounded(t)) // the lock's znode is there, and what follows is behind a reader
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
	}
}
