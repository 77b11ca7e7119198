package replication

import (
	"fmt"
	"path/filepath"
	"testing"
)

// C13.5: A member that was away for minutes gets the log it missed, and not the whole state.
func TestRetention_CutsByBytes(t *testing.T) {
	var r retention
	index := uint64(0)
	write := func(total, each int) (due bool) {
		for n := 0; n < total; n += each {
			index++
			due = r.grow(1, each, index)
		}
		return due
	}
	if write(snapshotBytes/2, 10_000) {
		t.Error("due after half of it")
	}
	if got := r.cut(keepBytes); got != 0 {
		t.Errorf("cut at %d, nothing is old", got)
	}
	if !write(snapshotBytes/2+10_000, 10_000) || !r.clearDue() || r.clearDue() {
		t.Error("not due once")
	}
	for range 3 {
		for _, each := range []int{1000, 1 << 20, 5 << 20} {
			write(snapshotBytes, each)
			if n := len(r.mu.marks); n > keepBytes/markBytes+2 {
				t.Errorf("%d marks", n)
			}
		}
	}
	// After enough commands of one size the cut is in the right place, within a mark.
	write(3*keepBytes, 1000)
	kept := int(index-r.cut(keepBytes)) * 1000
	if kept < keepBytes || kept > keepBytes+2*markBytes {
		t.Errorf("%d bytes are kept, want %d", kept, keepBytes)
	}
}

// C10.3: A few large entries, or many small ones, make a snapshot due.
func TestRetention_DueByEntries(t *testing.T) {
	var r retention
	for range 2 {
		for i := range snapshotEntries - 1 {
			r.grow(1, 1, uint64(i))
		}
		if r.clearDue() || !r.grow(1, 1, snapshotEntries) || !r.clearDue() {
			t.Error("not due at its number of entries")
		}
	}
}

// A member that is alone keeps nothing for others. Its log does not grow with restarts.
func TestRequestSnapshot_RestartsDoNotPileUpLogs(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	for i := range 12 {
		e.start(n)
		e.write(n, 1, fmt.Sprint(i))
		snapshotNow(t, n)
		e.write(n, 1, fmt.Sprint("after ", i))
		e.stop(n)
	}
	logs, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/tandb/node-1-1/*.log"))
	if err != nil || len(logs) > 4 {
		t.Errorf("%d log files, %v: %v", len(logs), logs, err)
	}
}
