package datadir

import (
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// M155: who a node is can be said while its disk hangs in the middle of a write of the identity file.
// Whatever asks, and whatever answers others, goes on.
func TestIdentity_WhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := disk.Open(memory.New(), "/")
		if err != nil {
			t.Fatal(err)
		}
		hangs := make(chan struct{})
		d.SetFault(func(disk.Op, string) error { <-hangs; return nil })
		f := &IdentityFile{Disk: d, Dir: "/"}
		f.Set(replication.Identity{Directory: [16]byte{7}})
		written := make(chan error, 1)
		go func() {
			written <- f.Amend(func(id *replication.Identity) bool { id.Log = replication.LogTan; return true })
		}()
		synctest.Wait()
		if now := f.Now(); now.Directory != [16]byte{7} || now.Log != "" {
			t.Errorf("while it is written it says %+v", now)
		}
		close(hangs)
		if err := <-written; err != nil || f.Now().Log != replication.LogTan {
			t.Errorf("%v, and it says %+v", err, f.Now())
		}
	})
}
