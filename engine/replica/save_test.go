package replica

import (
	"sync"
	"sync/atomic"
	"testing"
)

// A machine that is closed drops its tree. Whoever reads beside that, and asks after the read whether the node is over, never takes the
// empty tree for what there is.
func TestCloseBesideReads(t *testing.T) {
	r := newRig(t)
	full := r.Tree()
	for range 3000 {
		r.lastFigures.Store(nil)
		r.tree.Store(full)
		var over atomic.Bool
		var both sync.WaitGroup
		both.Go(func() { // the order of a node that ends
			over.Store(true)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		for {
			if got := r.Figures(); got.Znodes != full.Len() {
				t.Fatalf("status %+v", got)
			}
			_, there := r.Tree().Exists("/zookeeper/config")
			if over.Load() {
				break
			}
			if !there {
				t.Fatal("a read has seen the empty tree")
			}
		}
		both.Wait()
	}
}
