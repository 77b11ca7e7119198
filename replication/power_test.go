package replication

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// syncedLogs records how long each log file was at its last fsync.
type syncedLogs struct {
	mu sync.Mutex
	of map[string][]byte
}

// watchSyncs makes the ensemble start its nodes on real disks, and records their fsyncs.
func watchSyncs(e *ensemble) *syncedLogs {
	s := &syncedLogs{of: make(map[string][]byte)}
	e.newDisk = func(dir string) testDisk {
		d, err := disk.Open(files.OS, dir)
		if err != nil {
			e.t.Fatal(err)
		}
		d.SetFault(func(op disk.Op, name string) error {
			if op == disk.OpSync && strings.HasSuffix(name, ".log") {
				if log, err := os.ReadFile(name); err == nil {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.of[name] = log
				}
			}
			return nil
		})
		return d
	}
	return s
}

// cut removes from every log file below dir the bytes that were not fsynced.
func (s *syncedLogs) cut(t *testing.T, dir string) (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, log := range s.of {
		now, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(name, dir) {
			continue
		}
		for i := range now {
			if i >= len(log) || now[i] != log[i] {
				bytes++
			}
		}
		if err := os.WriteFile(name, log, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return bytes
}

// A machine that loses its power right after a clean Close must not forget its vote. Nobody fsyncs
// a new commit index, and the index of the log names the record that has it.
func TestPowerCut_AfterACloseTermAndVoteStay(t *testing.T) {
	e := found(t, 3, 1)
	synced := watchSyncs(e)
	e.startAll()
	leader := awaitLeader(t, e.nodes[0], 1)
	for i := range 10 {
		e.write(e.node(leader.Member), 1, fmt.Sprint(i))
		for _, n := range e.nodes {
			n.tapes[0].has(t, fmt.Sprint(i)) // at rest: the last record of each log is a commit index
		}
	}
	state := func(n *node) (term, vote uint64) {
		rs, err := n.host.store.ReadRaftState(1, uint64(n.id), 0)
		if err != nil {
			t.Fatal(err)
		}
		return rs.State.Term, rs.State.Vote
	}
	for _, n := range e.nodes {
		term, vote := state(n)
		e.stop(n)
		t.Logf("member %d: %d bytes were not fsynced", n.id, synced.cut(t, n.dir))
		n.disk = e.newDisk(n.dir)
		host, err := Open(e.config(n))
		if err != nil {
			t.Fatal(err)
		}
		n.host = host
		// It may have voted once more before its end.
		if newTerm, newVote := state(n); newTerm < term || newTerm == term && vote != 0 && newVote != vote {
			t.Errorf("member %d: term %d, vote %d before the power cut; %d, %d after it", n.id, term, vote, newTerm, newVote)
		}
		if err := host.Close(patience); err != nil {
			t.Error(err)
		}
	}
}

// A power cut in the middle of a write may leave any page of it. The node must start with
// everything that was fsynced before. It must not start if the damaged record has others behind it.
func TestPowerCut_ATornRecordAtTheEnd(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	watchSyncs(e)
	e.start(n)
	e.write(n, 1, "acknowledged")
	index := n.tapes[0].index
	name := newestLogOf(t, n)
	before := endOf(t, name)
	e.write(n, 1, strings.Repeat("x", 3*blockSize)) // its fsync may not have ended
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := endOf(t, name)
	e.write(n, 1, "one more")
	after, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	left := crashed(t, n)
	name = filepath.Join(left.dir, strings.TrimPrefix(name, n.dir))
	e.stop(n)

	const page = 4096
	for torn := before / page * page; torn < end; torn += page {
		for kind, log := range map[string][]byte{"torn": whole, "damaged": after} {
			log = append([]byte(nil), log...)
			clear(log[max(torn, before):min(torn+page, end)])
			if err := os.WriteFile(name, log, 0o640); err != nil {
				t.Fatal(err)
			}
			_, last, _, err := checkLog(viewOf(t, e, left), 1)
			switch {
			case kind == "torn" && (err != nil || last < index):
				t.Errorf("a write torn at %d: the log ends at %d, want %d: %v", torn, last, index, err)
			case kind == "damaged" && err == nil && torn%blockSize != 0 && torn > before:
				t.Errorf("a record damaged at %d counts as torn", torn)
			}
		}
	}

	// And for real.
	clear(whole[before+page : before+2*page])
	if err := os.WriteFile(name, whole, 0o640); err != nil {
		t.Fatal(err)
	}
	e.start(left)
	left.tapes[0].has(t, "acknowledged")
	e.write(left, 1, "and on")
	e.stop(left)
}

// tan fails when it reads zeros at the end of a log that has an index. So they are cut off durably
// before the index gets its name.
func TestPowerCut_ALogWithAnIndexHasNoZeros(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	named := 0
	e.newDisk = func(dir string) testDisk {
		d := realDisk(t)(dir).(*disk.Disk)
		synced := make(map[string]int64)
		d.SetFault(func(op disk.Op, name string) error {
			switch log, indexed := strings.CutSuffix(name, ".index"); {
			case op == disk.OpSync && strings.HasSuffix(name, ".log"):
				synced[name] = sizeOf(t, name)
			case op == disk.OpRename && indexed:
				named++
				text, err := os.ReadFile(log + ".log")
				if err != nil {
					return err
				}
				if end, _, err := findEnd(bytes.NewReader(text)); err != nil || end != int64(len(text)) || synced[log+".log"] != end {
					t.Errorf("of the log's %d bytes %d are records, and %d are durable: %v", len(text), end, synced[log+".log"], err)
				}
			}
			return nil
		})
		return d
	}
	e.start(n)
	e.write(n, 1, "x")
	endOf(t, newestLogOf(t, n)) // it has zeros while it is written to
	e.stop(n)
	if named == 0 {
		t.Error("no log was given an index")
	}
}

func sizeOf(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func newestLogOf(t *testing.T, n *node) (name string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/node-1-1/*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	return logs[len(logs)-1]
}

// endOf returns where a log ends and its zeros begin.
func endOf(t *testing.T, name string) int64 {
	t.Helper()
	log, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(log, "\x00"))
	if end == len(log) {
		t.Fatalf("%s has no zeros at its end", name)
	}
	return int64(end)
}
