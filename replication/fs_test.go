package replication

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/logger"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// unreadable makes reads of a node's disk fail, as often as times says, if part is in the file's
// name.
func unreadable(n *node, err error, part string, times int32) *atomic.Int32 {
	var left atomic.Int32
	left.Store(times)
	n.disk.(*disk.Disk).SetReadFault(func(_ disk.Op, name string) error {
		if strings.Contains(name, part) && left.Add(-1) >= 0 {
			return err
		}
		return nil
	})
	return &left
}

const always = 1 << 30

// C1.2: No descriptor is left for a moment while a member makes a snapshot. The member waits and
// does not fail.
func TestSnapshot_ALackOfDescriptorsPasses(t *testing.T) {
	e := found(t, 3, 1)
	e.newDisk = realDisk(t)
	e.startAll()
	victim := e.nodes[0]
	e.write(victim, 1, "x")
	victim.disk.(*disk.Disk).Patience(patience)
	left := unreadable(victim, syscall.EMFILE, "snapshot-part-1", 10)
	must(t, victim.host.RequestSnapshot(1))
	eventually(t, "snapshot", func() bool {
		names, err := filepath.Glob(filepath.Join(victim.dir, "raft/*/*/snapshot-part-1/*/snapshot-*/snapshot.metadata"))
		return err == nil && len(names) == 1
	})
	if left.Load() >= 0 {
		t.Errorf("%d opens were still to fail", left.Load())
	}
	e.write(victim, 1, "y")
	for _, n := range e.nodes {
		if err := n.disk.Err(); err != nil {
			t.Errorf("member %d: %v", n.id, err)
		}
	}
}

// C1.2: A member that cannot open the directories of its snapshots fails, ends and comes back. The
// other members of the process go on.
func TestSnapshot_DirectoriesCannotBeOpened(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			e := found(t, 3, 1)
			e.newDisk = realDisk(t)
			e.startAll()
			victim := e.nodes[0]
			e.write(victim, 1, "x")
			unreadable(victim, cause, "snapshot-part-1", always)
			must(t, victim.host.RequestSnapshot(1))
			failsAlone(t, e, victim, cause)
			closes(t, victim)
			e.start(victim)
			e.write(victim, 1, "again")
			e.same(t)
		})
	}
}

// fewAtSnapshots is a Disk that fails to open a directory of snapshots, a number of times.
type fewAtSnapshots struct {
	testDisk
	left *atomic.Int32
}

func (d fewAtSnapshots) OpenDir(name string) (File, error) {
	if strings.Contains(name, "snapshot-part-1") && d.left.Add(-1) >= 0 {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return d.testDisk.OpenDir(name)
}

// C1.2: When the Disk itself gives up, only its member fails, and not the others of the process.
func TestSnapshot_TheDiskGivesUp(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	var left atomic.Int32
	e.newDisk = func(dir string) testDisk { return fewAtSnapshots{realDisk(t)(dir), &left} }
	e.startAll()
	victim := e.nodes[0]
	e.write(victim, 1, "x")
	left.Store(1)
	must(t, victim.host.RequestSnapshot(1))
	failsAlone(t, e, victim, syscall.EMFILE)
	closes(t, victim)
}

// C1.2: dragonboat panics if it cannot see the snapshot that it has just made. So after the switch
// is thrown, the lookup that failed is tried once again.
func TestSnapshot_CannotBeLookedUp(t *testing.T) {
	e := found(t, 1, 1)
	e.newDisk = realDisk(t)
	e.startAll()
	victim := e.nodes[0]
	e.write(victim, 1, "x")
	var once atomic.Bool
	victim.disk.(*disk.Disk).SetReadFault(func(op disk.Op, name string) error {
		if op == disk.OpStat && strings.HasSuffix(name, ".gbsnap") && once.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
	must(t, victim.host.RequestSnapshot(1))
	failsAlone(t, e, victim, syscall.EIO)
	closes(t, victim)
}

// failsAlone waits until a member fails because of cause. It checks that the others go on.
func failsAlone(t *testing.T, e *ensemble, victim *node, cause error) {
	t.Helper()
	eventually(t, "failure", func() bool { return isClosed(victim.disk.Failed()) })
	if err := victim.disk.Err(); !errors.Is(err, cause) {
		t.Errorf("the switch was thrown by %v", err)
	}
	for _, n := range slicesWithout(e.nodes, victim) {
		e.write(n, 1, fmt.Sprintf("without-%d", n.id))
		if err := n.disk.Err(); err != nil {
			t.Errorf("member %d: %v", n.id, err)
		}
	}
}

// C1.2: If a received snapshot cannot be read, its member fails, ends and comes back. The others go
// on.
func TestSnapshot_ReceivedAndUnreadable(t *testing.T) {
	t.Parallel()
	e, behind := lag(t)
	prepare := e.prepare
	e.prepare = func(n *node) {
		prepare(n)
		unreadable(n, syscall.EIO, ".gbsnap", always)
	}
	e.start(behind)
	e.prepare = prepare
	failsAlone(t, e, behind, syscall.EIO)
	closes(t, behind)
	e.start(behind)
	e.same(t)
}

// C1.2: Somebody removes a member's directory, and a snapshot is due. The member fails; the process
// and the other members go on.
func TestSnapshot_TheDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	for what, withLog := range map[string]bool{
		"raft": true, "raft/*/*": true, "raft/*/*/snapshot-part-1": false, "raft/*/*/snapshot-part-1/snapshot-1-1": false,
	} {
		t.Run(strings.ReplaceAll(what, "/", "-"), func(t *testing.T) {
			t.Parallel()
			e := found(t, 3, 1)
			e.newDisk = realDisk(t)
			e.startAll()
			victim := e.nodes[0]
			e.write(victim, 1, "x")
			names, err := filepath.Glob(filepath.Join(victim.dir, what))
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			// At once. RemoveAll alone leaves directories without their files for a moment.
			away := filepath.Join(t.TempDir(), "away")
			must(t, os.Rename(names[0], away))
			must(t, os.RemoveAll(away))
			must(t, victim.host.RequestSnapshot(1))
			failsAlone(t, e, victim, disk.ErrRemoved)
			if err := victim.disk.Err(); !strings.Contains(err.Error(), "directory "+names[0]+" was removed") {
				t.Errorf("the switch was thrown by %v", err)
			}
			if !withLog {
				closes(t, victim)
				return
			}
			// If dragonboat has read the log since, its goroutine waits for ever; see afterRead.
			if err := victim.host.Close(time.Second); err != nil && !errors.Is(err, ErrStillRunning) {
				t.Error(err)
			}
			victim.host = nil
		})
	}
}

// C1.8: dragonboat reports a broken invariant because a file could not be read. Only the node of
// that file stops.
func TestLogger_PanicfOfAnUnreadFile(t *testing.T) {
	var l lines
	one, two := openHost(t, &l, slog.LevelDebug), openHost(t, &l, slog.LevelDebug)
	go func() {
		_, err := one.host.files.Open(filepath.Join(one.dir, "missing"))
		logger.GetLogger("testing").Panicf("%+v", fmt.Errorf("loading failed: %w", err))
	}()
	eventually(t, "line", func() bool { return strings.Contains(l.String(), "loading failed") })
	if err := one.disk.Err(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the switch was thrown by %v", err)
	}
	if err := two.disk.Err(); err != nil {
		t.Errorf("the other node: %v", err)
	}
}

// CURRENT gets its new content by a rename. A power cut may keep that and lose any name that was
// not synced. So the name of the MANIFEST must have been synced.
func TestPowerCut_CurrentNamesAManifestThatLasts(t *testing.T) {
	e := found(t, 1, 1)
	var renames atomic.Int32
	e.newDisk = func(dir string) testDisk {
		d := realDisk(t)(dir).(*disk.Disk)
		synced := make(map[string]map[string]bool) // the names of each directory at its last fsync
		d.SetFault(func(op disk.Op, name string) error {
			switch {
			case op == disk.OpSyncDir:
				synced[name] = namesIn(t, name)
			case op == disk.OpRename && filepath.Base(name) == "CURRENT" && strings.Contains(name, "tandb"):
				renames.Add(1)
				for manifest := range namesIn(t, filepath.Dir(name)) {
					if strings.HasPrefix(manifest, "MANIFEST-") && !synced[filepath.Dir(name)][manifest] {
						t.Errorf("%s was not synced before CURRENT was renamed", manifest)
					}
				}
			}
			return nil
		})
		return d
	}
	n := e.nodes[0]
	for range 2 {
		e.start(n)
		e.stop(n)
	}
	if renames.Load() < 2 {
		t.Errorf("CURRENT was renamed %d times", renames.Load())
	}
}

func namesIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

var (
	must       = testkit.Must
	eventually = testkit.Until
)
