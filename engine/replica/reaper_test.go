package replica

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A log entry has room for few long paths. An entry that is too large would be refused each time,
// and nothing would ever be reaped again.
func TestReapEntriesAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{1, 1000, 64 << 10, 2 * command.BatchBytesMax} {
		var due []command.Mortal
		path := strings.Repeat("x", length)
		for range 2 * reapBatch {
			due = append(due, command.Mortal{Path: path})
		}
		n := entryLen(due)
		if size := len(command.EncodeReap(0, due[:n])); n < 1 || n > reapBatch || n > 1 && size > command.BatchBytesMax {
			t.Errorf("%d znodes with paths of %d bytes make an entry of %d", n, length, size)
		}
	}
}

// While the reaper looks at many znodes, entries are applied. Each entry here replaces all markers
// in one transaction. So a look that sees markers of two entries was still going on when the second
// one was applied.
func TestReaperLooksWhileEntriesAreApplied(t *testing.T) {
	const many, markers = 20 * reapPause, 200
	r := newRig(t)
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	seq := uint64(0)
	batch := func(q command.Request) {
		seq++
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
	}
	batch(command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	id := r.mu.table.Sessions(2)[0].ID
	do := func(ops []tree.Op) { batch(command.Request{Kind: command.RequestTxn, Session: id, Ops: ops}) }
	ttl := func(path string) tree.Op {
		return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.TTL, TTL: time.Minute.Milliseconds()}
	}
	var ops []tree.Op
	for i := range many {
		if ops = append(ops, ttl(fmt.Sprint("/stays", i))); len(ops) == reapPause {
			do(ops)
			ops = nil
		}
	}
	ops = nil
	for i := range markers {
		ops = append(ops, ttl(fmt.Sprintf("/0-%d", i)))
	}
	do(ops)

	stop, met := make(chan struct{}), make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for !testkit.Closed(stop) {
			stay, entries := 0, make(map[string]bool)
			for _, z := range r.dueMortals(time.Now().Add(time.Hour), 2*many) {
				if entry, _, marks := strings.Cut(z.Path, "-"); marks {
					entries[entry] = true
				} else {
					stay++
				}
			}
			if stay != many {
				t.Errorf("the reaper saw %d of %d", stay, many)
			}
			if len(entries) > 1 {
				close(met)
				return
			}
		}
	})
	defer func() {
		close(stop)
		looks.Wait()
	}()
	entry := 0
	testkit.Until(t, "an entry to be applied during a look", func() bool {
		ops = nil
		for i := range markers {
			gone := fmt.Sprintf("/%d-%d", entry, i)
			ops = append(ops, tree.Op{Kind: tree.KindDelete, Path: gone, Version: tree.AnyVersion}, ttl(fmt.Sprintf("/%d-%d", entry+1, i)))
		}
		entry++
		do(ops)
		return testkit.Closed(met)
	})
}
