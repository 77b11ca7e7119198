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

// While the reaper looks at many znodes, entries are applied.
func TestReaperLooksWhileEntriesAreApplied(t *testing.T) {
	const many = 3 * reapPause
	r := newRig(t)
	seq := uint64(0)
	batch := func(requests ...command.Request) {
		var list [][]byte
		for i := range requests {
			list = append(list, command.EncodeRequest(&requests[i]))
		}
		seq++
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, len(list), slices.Values(list)))
	}
	ttl := func(path string) tree.Op {
		return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.TTL, TTL: time.Minute.Milliseconds()}
	}
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.FormatLevel}
	r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	batch(command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	id := r.mu.table.Sessions(2)[0].ID
	do := func(ops ...tree.Op) { batch(command.Request{Kind: command.RequestTxn, Session: id, Ops: ops}) }
	for i := range many {
		do(ttl(fmt.Sprint("/t", i)))
	}
	var looks sync.WaitGroup
	looks.Go(func() {
		for range 20 {
			if due := r.dueMortals(time.Now().Add(time.Hour), 2*many); len(due) < many/2 {
				t.Errorf("the reaper saw %d of %d", len(due), many)
			}
		}
	})
	for i := range many / 10 {
		do(tree.Op{Kind: tree.KindDelete, Path: fmt.Sprint("/t", i), Version: tree.AnyVersion})
		do(ttl(fmt.Sprint("/u", i)))
	}
	looks.Wait()
}
