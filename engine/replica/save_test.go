package replica

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// Drop drops the tree. A reader that runs at the same time, and checks after its read whether the
// node has ended, never believes in the empty tree.
func TestDropBesideReads(t *testing.T) {
	r := newRig(t)
	if _, err := r.commit(tree.Header{Zxid: 1}, []tree.Op{{Kind: tree.KindCreate, Path: "/a"}}, nil); err != nil {
		t.Fatal(err)
	}
	full, want := r.Tree(), r.Figures()
	for range 1000 {
		r.lastFigures.Store(nil)
		r.tree.Store(full)
		var ended atomic.Bool
		var both sync.WaitGroup
		both.Go(func() { // in the order in which a node ends
			ended.Store(true)
			r.drop()
		})
		for {
			if got := r.Figures(); got != want {
				t.Fatalf("figures %+v, want %+v", got, want)
			}
			_, there := r.Tree().Exists("/a")
			if ended.Load() {
				break
			}
			if !there {
				t.Fatal("a read of a running node has seen the empty tree")
			}
		}
		both.Wait()
	}
}

// The memory of a large znode's record is not kept after the save: a node has one buffer for each
// shard.
func TestSaveKeepsNoLargeRecord(t *testing.T) {
	for _, size := range []int{100, 4 * keptRecordMax} {
		r := newRig(t)
		op := tree.Op{Kind: tree.KindCreate, Path: "/a", Data: make([]byte, size)}
		if _, err := r.commit(tree.Header{Zxid: 1}, []tree.Op{op}, nil); err != nil {
			t.Fatal(err)
		}
		r.apply(command.EncodeExpire(1, 1))
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if kept := cap(r.record); kept > keptRecordMax || (kept == 0) != (size > keptRecordMax) {
			t.Errorf("a buffer of %d bytes is kept after a record of %d", kept, size)
		}
	}
}
