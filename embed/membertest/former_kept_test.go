package membertest

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// M108: the start that sets the data of a former member aside dies before the new identity file is
// there. The next start keeps what was set aside.
func TestFormer_ACrashBehindSetAside(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		var own string
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: func(c *embed.Config) {
			if c.ID != 2 {
				return
			}
			own = c.Dir
			c.Inside = &inside.Seams{Fault: func(op disk.Op, name string) error {
				if armed.Load() && !op.Reads() && name == filepath.Join(own, "identity.new") {
					return syscall.ENOSPC
				}
				return nil
			}}
		}})
		ofAge(e)
		e.Kill(1)
		writes(t, e, 2, "/acknowledged")
		e.Isolate(1)
		must(t, e.Recover(1, 2, 3))
		e.Start(1)
		e.HealAll()
		<-e.Node(2).Done()
		<-e.Node(3).Done()
		e.Kill(1) // the mistake is noticed
		e.Kill(2)
		for _, lacks := range []bool{true, false} {
			armed.Store(lacks)
			if _, err := e.TryStart(2); err == nil {
				e.Kill(2)
			}
		}
		all, err := e.Files(2)
		must(t, err)
		logs := 0
		for name := range all {
			if strings.HasSuffix(name, ".log") {
				logs++
			}
		}
		if logs == 0 {
			t.Errorf("the data of the former member are gone, and no node was ready as the new member: %v", all)
		}
	})
}

// M109: a new member lacks file descriptors for a moment before it is ready. The disk has room, so it
// keeps the data of its former self.
func TestFormer_WithoutDescriptors(t *testing.T) {
	testkit.ByNight(t, "a bubble's clock stands if Raft waits for descriptors under its mutex while another goroutine waits for that")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Journal
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir, Logger: log.Logger()})
		ofAge(e)
		e.Kill(1)
		writes(t, e, 2, "/acknowledged")
		e.Isolate(1)
		must(t, e.Recover(1, 2, 3))
		e.Start(1)
		e.HealAll()
		<-e.Node(2).Done()
		<-e.Node(3).Done()
		e.Kill(2)
		there := func() bool {
			_, err := os.Stat(filepath.Join(e.Dir(2), "former"))
			return err == nil
		}
		e.Isolate(2)
		n := e.Start(2)
		<-time.After(time.Second)
		e.HealAll()
		for range 200 {
			e.Faults(2).SetDisk(embedtest.Disk{Err: syscall.EMFILE, On: embedtest.Descriptors})
			<-time.After(30 * time.Millisecond)
			e.Faults(2).SetDisk(embedtest.Disk{})
			<-time.After(2 * time.Millisecond)
			select {
			case <-n.Done(): // a node that is starting does not wait for descriptors
				if !there() {
					t.Error("the former data are deleted by a node that was never ready")
				}
				return
			default:
			}
			if log.Says("no room for the data of a former member") {
				t.Fatal("the former data are deleted for lack of room, and the disk has room")
			}
			if n.Health().Ready {
				return
			}
		}
	})
}
