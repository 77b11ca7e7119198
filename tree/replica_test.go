package tree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A replica applies a log of transactions. From time to time it is rebuilt, from the output of
// Drain or of Walk.
type replica struct {
	t     *testing.T
	tree  *Tree
	image map[string]Znode
}

func (r *replica) apply(x logged) string {
	var results []Result
	var err error
	if x.ops == nil {
		err = r.tree.Reap(x.header, x.path, x.seen)
	} else {
		results, err = r.tree.Apply(x.header, slices.Clone(x.ops))
	}
	said := fmt.Sprintf("%+v %v %+v %q", results, err, r.tree.Changes(), r.tree.Over())
	r.tree.Publish()
	return said
}

func (r *replica) drain() {
	err := r.tree.Drain(func(path string, z Znode, exists bool) error {
		delete(r.image, path)
		if exists {
			r.image[path] = z
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) load(znodes map[string]Znode) {
	tree, err := load(znodes, r.tree.Visible())
	if err != nil {
		r.t.Fatal(err)
	}
	r.tree = tree
}

// walk returns every znode, and all of them as text.
func (r *replica) walk() (znodes map[string]Znode, dump string) {
	znodes = map[string]Znode{}
	var b strings.Builder
	err := r.tree.Walk(func(path string, z Znode) error {
		znodes[path] = z
		fmt.Fprintf(&b, "%q %+v\n", path, z)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return znodes, b.String()
}

// The same transactions give the same tree and the same results on three replicas. One never stops,
// one is sometimes loaded from its drained image, and one is loaded from a copy of another.
func TestReplicasAgree(t *testing.T) {
	seed := testkit.Seed(t)
	logs := uint64(10)
	if testing.Short() {
		logs = 3
	}
	for i := range logs {
		rnd := rand.New(rand.NewPCG(seed, i))
		log := randomLog(t, randomBytes(seed+i, 4000))
		var replicas [3]*replica
		for i := range replicas {
			replicas[i] = &replica{t: t, tree: New(nil), image: map[string]Znode{}}
		}
		stays, drains, copies := replicas[0], replicas[1], replicas[2]
		for n, x := range log {
			said := stays.apply(x)
			for _, r := range replicas[1:] {
				if got := r.apply(x); got != said {
					t.Fatalf("transaction %d: one replica says\n%s\nanother\n%s", n, got, said)
				}
			}
			if rnd.IntN(20) == 0 {
				drains.drain()
				drains.load(drains.image)
			}
			if rnd.IntN(20) == 0 {
				znodes, _ := stays.walk()
				copies.load(znodes)
			}
		}
		_, want := stays.walk()
		for i, r := range replicas[1:] {
			if _, got := r.walk(); got != want {
				t.Fatalf("replica %d has\n%swant\n%s", i+1, got, want)
			}
		}
	}
}

// randomLog returns the transactions of a fuzz run.
func randomLog(t *testing.T, script []byte) []logged {
	r := newFuzzRun(t, script)
	for len(r.script) > 0 {
		switch b := r.byte(); {
		case b < 220:
			r.transaction()
		case b < 230:
			r.reap()
		default:
			r.quota()
		}
	}
	return r.log
}
