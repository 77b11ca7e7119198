package replication

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// checkLog is CheckLog for tests that need only the extent of a log.
func checkLog(c Config, shard ShardID) (first, last uint64, exists bool, err error) {
	log, err := CheckLog(c, shard, 0, anyCommand)
	return log.First, log.Last, log.Exists, err
}

// viewOf returns a configuration for looking at a node's log without changing it.
func viewOf(t *testing.T, e *ensemble, n *node) Config {
	t.Helper()
	d, err := disk.Open(files.OS, n.dir)
	if err != nil {
		t.Fatal(err)
	}
	c := e.config(n)
	c.Disk = d.View()
	return c
}

// filesIn returns all files below a directory with their sizes.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano(), info.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// C8.2, C8.3: The extent of a log is known before dragonboat opens it.
func TestCheckLog_TellsWhatIsThereAndChangesNothing(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	n.disk = newPlainDisk(t)
	check := func() (first, last uint64, exists bool) {
		t.Helper()
		before := filesIn(t, n.dir)
		first, last, exists, err := checkLog(viewOf(t, e, n), 1)
		if err != nil {
			t.Fatal(err)
		}
		if after := filesIn(t, n.dir); after != before {
			t.Fatalf("the directory was\n%s\nand is\n%s", before, after)
		}
		return first, last, exists
	}
	if _, _, exists := check(); exists {
		t.Error("an empty directory has a log")
	}
	e.start(n)
	for i := range 20 {
		e.write(n, 1, fmt.Sprint(i))
	}
	index := n.tapes[0].index
	e.stop(n)
	if first, last, exists := check(); first != 1 || last < index || !exists {
		t.Errorf("first %d, last %d, exists %v after %d was applied and no snapshot", first, last, exists, index)
	}

	e.start(n)
	e.write(n, 1, "more")
	index = n.tapes[0].index
	snapshotNow(t, n)
	e.write(n, 1, "and more")
	newest := n.tapes[0].index
	e.stop(n)
	if first, last, exists := check(); first != index+1 || last < newest || !exists {
		t.Errorf("first %d, last %d, exists %v after a snapshot at %d and a command at %d", first, last, exists, index, newest)
	}
}

// snapshotNow makes a snapshot and waits until it is recorded.
func snapshotNow(t *testing.T, n *node) {
	t.Helper()
	index := n.tapes[0].index
	if err := n.host.RequestSnapshot(1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a snapshot", func() bool {
		ss, err := n.host.store.GetSnapshot(1, uint64(n.id))
		if err != nil {
			t.Fatal(err)
		}
		return ss.OnDiskIndex >= index
	})
}

func TestCheckLog_Damage(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	for i := range 20 {
		e.write(n, 1, fmt.Sprint(i))
	}
	index := n.tapes[0].index
	e.stop(n)
	logs, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/node-1-1/*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, name := range logs {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(whole) == 0 {
			continue
		}
		for kind, text := range map[string][]byte{
			"gone": nil, "empty": {}, "half": whole[:len(whole)/2], "zeroed": make([]byte, len(whole)), "noise": []byte(strings.Repeat("garbage!", 1+len(whole)/8)),
		} {
			if text == nil {
				err = os.Remove(name)
			} else {
				err = os.WriteFile(name, text, 0o640)
			}
			if err != nil {
				t.Fatal(err)
			}
			open := descriptors(t)
			_, last, exists, err := checkLog(viewOf(t, e, n), 1)
			t.Logf("%s %s: last %d, exists %v, %v", filepath.Base(name), kind, last, exists, err)
			if err == nil && last < index {
				t.Errorf("%s %s: the log is said to end at %d, %d was applied", filepath.Base(name), kind, last, index)
			}
			if err != nil && (!errors.Is(err, ErrLog) || !strings.Contains(err.Error(), n.dir)) {
				t.Errorf("%s %s: %v does not name the directory", name, kind, err)
			}
			if now := descriptors(t); now > open {
				t.Errorf("%s %s: %d descriptors, %d before", name, kind, now, open)
			}
			if err := os.WriteFile(name, whole, 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A bit changes somewhere in the log of a process that was killed. Either that is noticed, or all
// acknowledged writes are there. It is never mistaken for the end of the log, or for a record that a
// power cut has torn. (NATS lost acknowledged messages when bits changed.)
func TestCheckLog_ABitThatTurns(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	for i := range 20 {
		e.write(n, 1, fmt.Sprint(i))
	}
	index := n.tapes[0].index
	e.stop(n)
	logs, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/node-1-1/*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	// A killed process leaves the newest file without an index.
	if err := os.Remove(strings.TrimSuffix(logs[0], ".log") + ".index"); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	turned := func(at, bit int) []byte {
		text := bytes.Clone(whole)
		text[at] ^= 1 << bit
		return text
	}
	rng := testkit.Rand(t)
	for range 300 {
		at, bit := rng.IntN(len(whole)), rng.IntN(8)
		if err := os.WriteFile(logs[0], turned(at, bit), 0o640); err != nil {
			t.Fatal(err)
		}
		if _, ends, _, err := checkLog(viewOf(t, e, n), 1); err == nil && ends < index {
			t.Errorf("bit %d of byte %d: the log is said to end at %d, %d was applied", bit, at, ends, index)
		}
	}
}

// readNames records the files that are opened for reading.
type readNames struct {
	Disk
	names []string
}

func (d *readNames) OpenForRead(name string) (File, error) {
	d.names = append(d.names, name)
	return d.Disk.OpenForRead(name)
}

// A start reads the log of each shard, so one read must not read the logs of all.
func TestCheckLog_ReadsTheLogOfThatShardOnly(t *testing.T) {
	e := found(t, 1, 3)
	n := e.nodes[0]
	n.disk = newPlainDisk(t)
	e.startAll()
	for shard := ShardID(1); shard <= 3; shard++ {
		e.write(n, shard, "x")
	}
	left := crashed(t, n) // a log that was closed is not read
	e.stop(n)
	c := viewOf(t, e, left)
	seen := &readNames{Disk: c.Disk}
	c.Disk = seen
	if _, last, exists, err := checkLog(c, 2); err != nil || !exists || last < n.tapes[1].index {
		t.Fatalf("the log ends at %d, %v, %v", last, exists, err)
	}
	if !slices.ContainsFunc(seen.names, func(name string) bool { return strings.Contains(name, "node-2-") }) {
		t.Errorf("nothing of the shard was read: %v", seen.names)
	}
	for _, name := range seen.names {
		if strings.Contains(name, "node-1-") || strings.Contains(name, "node-3-") {
			t.Errorf("%s was read", name)
		}
	}
}

// A bit changes in a completed file, which no start reads as a whole. VerifyLog names the file. It
// accepts an undamaged log, also one of a process that was killed and started again.
func TestVerifyLog_ABitThatTurns(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	for i := range 40 {
		e.write(n, 1, strings.Repeat(fmt.Sprint(i), 2000)) // several blocks
	}
	index := n.tapes[0].index
	killed := crashed(t, n)
	e.stop(n)
	verify := func(n *node) (last uint64, err error) {
		t.Helper()
		c := viewOf(t, e, n)
		before := filesIn(t, n.dir)
		log, err := VerifyLog(c, 1, 0, anyCommand)
		if after := filesIn(t, n.dir); after != before {
			t.Fatalf("the directory was\n%s\nand is\n%s", before, after)
		}
		return log.Last, err
	}
	for _, n := range []*node{killed, n} {
		if last, err := verify(n); err != nil || last < index {
			t.Fatalf("the log ends at %d, %d was applied: %v", last, index, err)
		}
	}
	names, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/*/[0-9BC]*"))
	if err != nil || len(names) != 4 { // bootstrap, CURRENT, log and index
		t.Fatal(names, err)
	}
	rng := testkit.Rand(t)
	for _, name := range names {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			at, bit := rng.IntN(len(whole)), rng.IntN(8)
			text := bytes.Clone(whole)
			text[at] ^= 1 << bit
			if err := os.WriteFile(name, text, 0o640); err != nil {
				t.Fatal(err)
			}
			if _, err := verify(n); !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), name) {
				t.Errorf("bit %d of byte %d of %s: %v", bit, at, name, err)
			}
		}
		if err := os.WriteFile(name, whole, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// VerifyLog names a damaged list of log files, whatever its number is. tan mistakes such a list for
// a short one and begins a new list, perhaps with the same name.
func TestVerifyLog_NamesADamagedList(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	noticed := 0
	for range 4 {
		e.start(n)
		e.write(n, 1, "x")
		e.stop(n)
		names, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/node-1-1/MANIFEST-*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		list := names[len(names)-1]
		whole, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			text := bytes.Clone(whole)
			text[at] ^= 0x10
			if err := os.WriteFile(list, text, 0o640); err != nil {
				t.Fatal(err)
			}
			if _, err := VerifyLog(viewOf(t, e, n), 1, 0, anyCommand); err != nil {
				if noticed++; !strings.Contains(err.Error(), list) {
					t.Errorf("byte %d of %s: %v", at, list, err)
				}
			}
		}
		if err := os.WriteFile(list, whole, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if noticed == 0 {
		t.Error("no damage was found")
	}
}

// A kill right after a snapshot leaves the file that describes it, and a start reads that file.
// (dragonboat panics if it is damaged.)
func TestVerifyLog_NamesADamagedSnapshot(t *testing.T) {
	e, n, folder := withSnapshot(t)
	verify := func(folder string, text []byte) error {
		t.Helper()
		if err := os.MkdirAll(folder, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "dragonboat.snapshot.message"), text, 0o640); err != nil {
			t.Fatal(err)
		}
		_, err := VerifyLog(viewOf(t, e, n), 1, 0, anyCommand)
		return err
	}
	says := raftpb.MustMarshal(&raftpb.Snapshot{Index: 3, Term: 1})
	whole := append(flagSum(says), says...)
	if err := verify(folder+".generating", []byte("half")); err != nil {
		t.Errorf("a snapshot that was never complete: %v", err)
	}
	for at := range whole {
		turned := bytes.Clone(whole)
		turned[at] ^= 1
		for what, text := range map[string][]byte{"a bit that turned": turned, "cut off": whole[:at]} {
			if err := verify(folder, text); !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), folder) {
				t.Errorf("%s at byte %d: %v", what, at, err)
			}
		}
	}
	if err := verify(folder, whole); err != nil {
		t.Fatal(err)
	}
	e.start(n) // a start accepts the same file
}

// anyCommand knows every command.
func anyCommand([]byte) error { return nil }
