package replication

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// lag founds three members. One of them is not running, and missed more than the logs of the others
// still hold.
func lag(t *testing.T) (e *ensemble, behind *node) { return lagOn(t, func(*ensemble) {}) }

// lagOn is lag for an ensemble that network changes first.
func lagOn(t *testing.T, network func(*ensemble)) (e *ensemble, behind *node) {
	t.Helper()
	e = found(t, 3, 1)
	network(e)
	e.newDisk = realDisk(t)
	e.prepare = func(n *node) { n.host.keepEntries, n.tapes[0].pad = 5, 5<<20 }
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	for _, n := range e.nodes {
		e.barrier(n, 1)
	}
	behind = e.nodes[awaitLeader(t, e.nodes[0], 1).Member%3]
	e.stop(behind)
	others := slicesWithout(e.nodes, behind)
	for i := range 30 {
		e.write(others[0], 1, fmt.Sprintf("missed-%d", i))
	}
	for _, n := range others {
		e.barrier(n, 1)
		snapshotNow(t, n)
		eventually(t, "cut log", func() bool {
			rs, err := n.host.store.ReadRaftState(1, uint64(n.id), n.tapes[0].index-1)
			return err == nil && rs.EntryCount > 0 && compacted(n)
		})
	}
	return e, behind
}

// compacted reports whether the first entries of a node's log are gone.
func compacted(n *node) bool {
	entries, _, err := n.host.store.IterateEntries(nil, 0, 1, uint64(n.id), 2, 3, 1<<20)
	return err == nil && len(entries) == 0
}

func TestStream_LaggingMemberInstallsASnapshot(t *testing.T) {
	t.Parallel()
	e, behind := lag(t)
	e.start(behind)
	e.same(t)
	if behind.tapes[0].install == 0 {
		t.Error("the state was not streamed")
	}
	e.write(behind, 1, "after")
	e.same(t)

	// Only a record is left of the stream. An older image would no longer be accepted.
	index := behind.tapes[0].applied
	eventually(t, "shrunk file", func() bool {
		names, err := filepath.Glob(filepath.Join(behind.dir, "raft/*/*/snapshot-part-1/snapshot-1-*/*/*.gbsnap"))
		if err != nil || len(names) != 1 {
			return false
		}
		info, err := os.Stat(names[0])
		return err == nil && info.Size() == shrunkSize
	})
	e.stop(behind)
	first, last, exists, err := checkLog(viewOf(t, e, behind), 1)
	if err != nil || !exists || first != index+1 || last < index {
		t.Errorf("first %d, last %d, exists %v, %v after an install at %d", first, last, exists, err, index)
	}
	e.start(behind)
	e.same(t)
}

// C13.3: A node stops after it has received a stream and before it has installed it. The log says
// that any image is accepted, and the next start installs the stream.
func TestStream_KilledBeforeInstall(t *testing.T) {
	t.Parallel()
	e, behind := lag(t)
	received := make(chan struct{})
	prepare := e.prepare
	e.prepare = func(n *node) {
		prepare(n)
		n.tapes[0].onInstall = func(stop <-chan struct{}) error {
			close(received)
			<-stop
			return errors.New("stopped")
		}
	}
	e.start(behind)
	<-received
	e.stop(behind)
	if err := behind.disk.Err(); err != nil {
		t.Errorf("to be stopped is no failure: %v", err)
	}
	first, last, exists, err := checkLog(viewOf(t, e, behind), 1)
	if err != nil || !exists || first != 1 || last <= behind.tapes[0].applied {
		t.Errorf("first %d, last %d, exists %v, %v with a stream that waits", first, last, exists, err)
	}
	e.prepare = prepare
	e.start(behind)
	e.same(t)
	if behind.tapes[0].install == 0 {
		t.Error("the stream was not installed")
	}
}

// An install that fails or panics fails the node, not the process.
func TestStream_InstallFails(t *testing.T) {
	t.Parallel()
	for name, install := range map[string]func(<-chan struct{}) error{
		"error": func(<-chan struct{}) error { return errInjected },
		"panic": func(<-chan struct{}) error { panic(errInjected) },
	} {
		t.Run(name, func(t *testing.T) {
			e, behind := lag(t)
			prepare := e.prepare
			e.prepare = func(n *node) {
				prepare(n)
				n.tapes[0].onInstall = install
			}
			e.start(behind)
			<-behind.disk.Failed()
			if err := behind.disk.Err(); !strings.Contains(err.Error(), "injected") {
				t.Errorf("the switch was thrown by %v", err)
			}
			closes(t, behind)
			e.prepare = prepare
			e.start(behind)
			e.same(t)
		})
	}
}

// A state that cannot be read now is streamed later. A stream that breaks off is sent again.
func TestStream_SenderHasTrouble(t *testing.T) {
	t.Parallel()
	e, behind := lag(t)
	var snapshots, writes atomic.Int32
	for _, n := range slicesWithout(e.nodes, behind) {
		m := n.tapes[0]
		m.mu.Lock()
		m.onSnapshot = func() error {
			if snapshots.Add(1) == 1 {
				return errInjected
			}
			return nil
		}
		m.onWrite = func(io.Writer) error {
			if writes.Add(1) == 1 {
				return errInjected
			}
			return nil
		}
		m.mu.Unlock()
	}
	e.start(behind)
	behind.tapes[0].installs(t)
	e.same(t)
	for _, n := range e.nodes {
		if err := n.disk.Err(); err != nil {
			t.Errorf("member %d failed: %v", n.id, err)
		}
	}
}

// C1.2: The receiver's disk fails while the stream arrives, at every kind of call.
func TestStream_ReceiversDiskFails(t *testing.T) {
	t.Parallel()
	points := []int64{20, 100}
	if testkit.Night() {
		points = []int64{20, 40, 60, 80, 100}
	}
	for _, at := range points {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			e, behind := lag(t)
			prepare := e.prepare
			e.prepare = func(n *node) {
				prepare(n)
				failAt(n, at)
			}
			e.start(behind)
			e.prepare = prepare
			others := slicesWithout(e.nodes, behind)
			for i := 0; !isClosed(behind.disk.Failed()); i++ {
				e.write(others[i%2], 1, fmt.Sprintf("more-%d", i))
			}
			closes(t, behind)
			behind.disk.(*disk.Disk).SetFault(nil)
			e.start(behind)
			e.same(t)
		})
	}
}

// fewDescriptors fails to open directories of snapshots that are being received, a number of times.
type fewDescriptors struct {
	testDisk
	left *atomic.Int32
}

func (d fewDescriptors) OpenDir(name string) (File, error) {
	if strings.HasSuffix(name, ".receiving") && d.left.Add(-1) >= 0 {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	return d.testDisk.OpenDir(name)
}

// The process of a host runs out of descriptors for a moment while a member receives a snapshot. No
// node fails, and the snapshot is sent again.
func TestStream_ALackOfDescriptorsPasses(t *testing.T) {
	t.Parallel()
	e, behind := lagOn(t, withTransport)
	for _, n := range slicesWithout(e.nodes, behind) {
		e.stop(n)
	}
	var left atomic.Int32
	left.Store(2)
	real := e.newDisk
	e.newDisk = func(dir string) testDisk {
		if dir == behind.dir {
			return fewDescriptors{real(dir), &left}
		}
		return real(dir)
	}
	e.startAll()
	eventually(t, "the lack of descriptors", func() bool { return left.Load() < 0 })
	e.same(t)
	for _, n := range e.nodes {
		if err := n.disk.Err(); err != nil {
			t.Errorf("member %d: %v", n.id, err)
		}
	}
}
