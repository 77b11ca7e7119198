package replica

import (
	"math"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// D2: a child is created below a parent whose create counter has reached its end.
func TestGapSeesAChildOfAFullParent(t *testing.T) {
	load := func() *tree.Tree {
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
	next := load()
	if _, err := next.Apply(tree.Header{Zxid: 2}, []tree.Op{{Kind: tree.KindCreate, Path: "/full/child"}}); err != nil {
		t.Fatal(err)
	}
	next.Publish()
	g := gap{old: load(), next: next, compared: make(map[string]comparison)}
	for _, path := range []string{"/full", "/full/child", "/full/other"} {
		if _, touched := g.compare(path, watch.Once); !touched {
			t.Errorf("%s counts as untouched", path)
		}
	}
	if _, touched := g.compare("/", watch.Recursive); !touched {
		t.Error("the root counts as untouched below")
	}
}
