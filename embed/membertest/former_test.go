package membertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// beforeItJoined runs an ensemble of three voters, and returns the identity file that member 3 had
// before it joined. It runs with real directories.
func beforeItJoined(t *testing.T, fn func(t *testing.T, e *embedtest.Ensemble, identity []byte)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 1, embedtest.Options{Dir: dir})
		embedkit.Joined(e, 1)
		three := e.AddPlace()
		e.Isolate(three)
		e.Start(three)
		<-time.After(time.Second)
		identity, err := os.ReadFile(filepath.Join(e.Dir(three), "identity"))
		must(t, err)
		e.HealAll()
		e.Ready(three)
		embedkit.Voting(e, 1, 1, 2, 3)
		<-time.After(5 * time.Second)
		e.TransferLeadership(1)
		fn(t, e, identity)
	})
}

// M68: a voter's directory is put back to before its node joined. It does not vote again as what it
// was: it has acknowledged entries, and its log is empty.
func TestFormer_ADirectoryFromBeforeTheJoin(t *testing.T) {
	t.Parallel()
	beforeItJoined(t, func(t *testing.T, e *embedtest.Ensemble, identity []byte) {
		e.Kill(2)
		writes(t, e, 1, "/acknowledged") // by 1 and 3
		e.Kill(3)
		must(t, os.RemoveAll(e.Dir(3)))
		must(t, os.MkdirAll(e.Dir(3), 0o777))
		must(t, os.WriteFile(filepath.Join(e.Dir(3), "identity"), identity, 0o666))
		n := e.Start(3)
		e.Start(2)
		e.Ready(2)
		e.Until("a refusal", func() bool { return strings.Contains(n.Status().Joining, "put back to a time before it was a member") })
		<-time.After(time.Minute)
		if id := n.Status().Member; id != 0 {
			t.Errorf("it is let in as member %d", id)
		}
	})
}

// M68: only the identity file is put back. The log and the image are newer, and nothing deletes them.
func TestFormer_AnIdentityFileFromBeforeTheJoin(t *testing.T) {
	t.Parallel()
	beforeItJoined(t, func(t *testing.T, e *embedtest.Ensemble, identity []byte) {
		e.Stop(3)
		now, err := os.ReadFile(filepath.Join(e.Dir(3), "identity"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(e.Dir(3), "identity"), identity, 0o666))
		if _, err := e.TryStart(3); err == nil || !strings.Contains(err.Error(), "part of the directory is from another time") {
			t.Errorf("Start: %v", err)
		}
		must(t, os.WriteFile(filepath.Join(e.Dir(3), "identity"), now, 0o666))
		e.Restart(3)
	})
}

// M69: somebody recovers the wrong member, and the others are told that they are out. When they are
// started again, what they have is kept until they are ready as new members.
func TestFormer_KeepsItsDataUntilItIsReady(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir})
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
		for _, m := range []embed.MemberID{2, 3} {
			e.Kill(m)
			before, err := e.Files(m)
			must(t, err)
			for range 2 { // the platform starts it again and again
				e.Start(m)
				<-time.After(time.Second)
				e.Kill(m)
			}
			after, err := e.Files(m)
			must(t, err)
			for name, size := range before {
				name, _ = filepath.Rel(e.Dir(m), name)
				if name == "lock" {
					continue
				}
				if got := after[filepath.Join(e.Dir(m), "former", name)]; got != size {
					t.Errorf("member %d: of %s %d of %d bytes are kept", m, name, got, size)
				}
			}
		}
		e.Start(1) // or it was no mistake
		for _, m := range []embed.MemberID{2, 3} {
			e.Restart(m)
			e.Until("the former member's data to go", func() bool {
				_, err := os.Stat(filepath.Join(e.Dir(m), "former"))
				return os.IsNotExist(err)
			})
		}
	})
}

// Data of former members that cannot be deleted stops no member, however often it is out and comes
// again. They go as soon as they can be deleted.
func TestFormer_CannotBeDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sys := &stickyFormer{System: files.OS}
		sys.sticky.Store(true)
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: func(c *embed.Config) {
			if c.Inside == nil {
				c.Inside = &inside.Seams{}
			}
			c.Inside.Files = sys
		}})
		embedkit.Founded(e)
		old := func() (names []string) {
			list, err := os.ReadDir(e.Dir(3))
			must(t, err)
			for _, f := range list {
				if strings.HasPrefix(f.Name(), "former") {
					names = append(names, f.Name())
				}
			}
			return names
		}
		for i, want := range [][]string{{"former.old"}, {"former.old", "former.old-2"}} {
			must(t, e.Node(3).Leave(bounded(t)))
			e.Kill(3)
			e.Start(3)
			e.Ready(3)
			e.Until("the former data to be set aside", func() bool { return slices.Equal(old(), want) })
			embedkit.Write(t, e.Node(3), fmt.Sprintf("/%d", i))
		}
		sys.sticky.Store(false)
		e.Kill(3)
		e.Start(3)
		e.Until("the former data to go", func() bool { return len(old()) == 0 })
	})
}

// A stickyFormer cannot delete a file of what dropFormer has taken away.
type stickyFormer struct {
	files.System
	sticky atomic.Bool
}

func (s *stickyFormer) Remove(name string) error {
	if s.sticky.Load() && strings.Contains(name, "former.old") && filepath.Base(name) == "identity" {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.EPERM}
	}
	return s.System.Remove(name)
}

// M69: a volume has no room for what the former member had beside what the new one gets.
func TestFormer_NoRoomForBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e *embedtest.Ensemble
		used := func() (n int64) {
			files, _ := e.Files(3)
			for _, size := range files {
				n += size
			}
			return n
		}
		var room atomic.Int64
		e = embedtest.New(t, 3, embedtest.Options{KeepEntries: 10, Config: func(c *embed.Config) {
			if c.ID != 3 {
				return
			}
			c.Inside = &inside.Seams{Fault: func(op disk.Op, _ string) error {
				switch op {
				case disk.OpCreate, disk.OpWrite, disk.OpMkdir, disk.OpLink:
					if most := room.Load(); most > 0 && used() > most {
						return syscall.ENOSPC
					}
				}
				return nil
			}}
		}})
		embedkit.Founded(e)
		for range 20 {
			embedkit.Ballast(t, e.Node(1))
		}
		for m := range embed.MemberID(3) {
			must(t, e.Snapshot(m+1))
		}
		<-time.After(10 * time.Second)
		must(t, e.Node(3).Leave(bounded(t)))
		e.Kill(3)
		room.Store(used() + used()/3)
		e.Start(3)
		e.Ready(3)
	})
}

// M69: the power fails while the former member's data is deleted, and the new member is out before its
// next start. It comes back.
func TestFormer_APowerCutWhileItIsDeleted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			at, free := make(chan struct{}, 1), make(chan struct{})
			var armed, deleting atomic.Bool
			e := embedtest.New(t, 3, embedtest.Options{Seed: seed, Config: func(c *embed.Config) {
				if c.ID != 1 && c.ID != 2 {
					c.Name = "pod-3"
				}
				if c.ID != 3 || !armed.Load() {
					return
				}
				c.Inside = &inside.Seams{Fault: func(op disk.Op, name string) error {
					switch { // however it is deleted
					case op == disk.OpRename && strings.HasSuffix(name, "former.old"), op == disk.OpRemoveAll && strings.HasSuffix(name, "former"):
						deleting.Store(true)
						return nil
					}
					if deleting.Load() && !op.Reads() {
						select {
						case at <- struct{}{}:
						default:
						}
						<-free
					}
					return nil
				}}
			}})
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), "/a")
			must(t, e.Node(3).Leave(bounded(t)))
			e.Kill(3)
			armed.Store(true)
			e.Start(3)
			<-at
			go func() {
				<-time.After(time.Second)
				close(free)
			}()
			e.PowerCut(3)
			armed.Store(false)
			four := e.Join() // takes its place
			e.Ready(four)
			<-time.After(20 * time.Second)
			if n := e.Start(3); n.Status().Member != 0 {
				ends(t, n)
				e.Kill(3)
				e.Kill(four) // its name is free
				<-time.After(10 * time.Second)
				e.Start(3)
			}
			e.Ready(3)
		})
	}
}
