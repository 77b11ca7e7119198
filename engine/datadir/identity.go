package datadir

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// An IdentityFile says who the node of a directory is. Whoever reads it does not wait for the disk,
// which may hang.
type IdentityFile struct {
	Disk *disk.Disk // set once it is open
	Dir  string

	writing rank.Mutex[rank.Identity]
	content atomic.Pointer[replication.Identity]
}

// Now returns the content, whose map and slices nobody may change.
func (f *IdentityFile) Now() replication.Identity {
	if id := f.content.Load(); id != nil {
		return *id
	}
	return replication.Identity{}
}

// Set says what the content is to be; Write makes it durable.
func (f *IdentityFile) Set(id replication.Identity) { f.content.Store(&id) }

// Write writes the content.
func (f *IdentityFile) Write() error { return replication.WriteIdentity(f.Disk, f.Dir, f.Now()) }

// Amend changes the file, unless change returns false. An error has failed the node.
func (f *IdentityFile) Amend(change func(*replication.Identity) bool) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	next := f.Now()
	if !change(&next) {
		return nil
	}
	if err := replication.WriteIdentity(f.Disk, f.Dir, next); err != nil {
		return err
	}
	f.Set(next)
	return nil
}
