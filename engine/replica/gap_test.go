package replica

import (
	"math"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// D2: a child is created below a parent whose create counter has reached its end.
func TestGapSeesAChildOfAFullParent(t *testing.T) {
	next := loadFull(t)
	if _, err := next.Apply(tree.Header{Zxid: 2}, []tree.Op{{Kind: tree.KindCreate, Path: "/full/child"}}); err != nil {
		t.Fatal(err)
	}
	next.Publish()
	g := gap{old: loadFull(t), next: next, compared: make(map[string]comparison)}
	for _, path := range []string{"/full", "/full/child", "/full/other"} {
		if _, touched := g.compare(path, watch.Once); !touched {
			t.Errorf("%s counts as untouched", path)
		}
	}
	if _, touched := g.compare("/", watch.Recursive); !touched {
		t.Error("the root counts as untouched below")
	}
}

// loadFull returns a tree whose create counters have reached their end.
func loadFull(t *testing.T) *tree.Tree {
	t.Helper()
	loader := tree.NewLoader(nil)
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/full"} {
		if err := loader.Add(path, tree.Znode{Created: math.MaxInt32}); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := loader.Finish(1)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// M115: a SetACL in the gap may have taken or given the permission to read. It is no event.
func TestGapSeesASetACL(t *testing.T) {
	next := loadFull(t)
	if _, err := next.Apply(tree.Header{Zxid: 2}, []tree.Op{{Kind: tree.KindSetACL, Path: "/full", ACL: tree.ReadACL(), Version: tree.AnyVersion}}); err != nil {
		t.Fatal(err)
	}
	next.Publish()
	g := gap{old: loadFull(t), next: next, compared: make(map[string]comparison)}
	for mode, want := range map[watch.Mode]bool{watch.Once: true, watch.Persistent: true, watch.Recursive: true, watch.Data: false, watch.Children: false} {
		if first, touched := g.compare("/full", mode); touched != want || touched && first != 0 {
			t.Errorf("in mode %d it is touched: %v, %v", mode, touched, first)
		}
	}
	if _, touched := g.compare("/", watch.Recursive); !touched {
		t.Error("the root counts as untouched below")
	}
}
