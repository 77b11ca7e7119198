package storage

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// A life is what a node does with its image. A crash may interrupt it anywhere.
type life struct {
	before map[string]string // the node's directory at the beginning
	own    *history          // commits at indexes below 100
	sent   *history          // an install at index 100, and the commits after it
	live   func(i *Image, promised func(index uint64)) error
}

// lives returns several lives of a node: its first one, a later one, and one with an install.
func lives(t *testing.T) map[string]life {
	own, sent := newHistory(t), newHistory(t)
	own.at(99)
	sent.at(110)
	used := usedDirectory(t, own)
	stream := streamOf(t, sent, 100)
	sync := func(i *Image, promised func(uint64)) error {
		index := i.Applied()
		err := i.Sync()
		if err == nil {
			promised(index)
		}
		return err
	}
	work := func(i *Image, promised func(uint64)) error {
		h := own
		if i.Applied() >= 100 {
			h = sent
		}
		for range 3 {
			if err := h.commit(i, i.Applied()+2); err != nil {
				return err
			}
			if err := sync(i, promised); err != nil {
				return err
			}
		}
		return h.commit(i, i.Applied()+1)
	}
	return map[string]life{
		"first": {nil, own, sent, work},
		"later": {used, own, sent, work},
		"install": {used, own, sent, func(i *Image, promised func(uint64)) error {
			if err := own.commit(i, i.Applied()+1); err != nil {
				return err
			}
			if err := i.Install(bytes.NewReader(stream), nil, nil); err != nil {
				return err
			}
			promised(100)
			return work(i, promised)
		}},
	}
}

// usedDirectory returns the directory of a node that has run for a while. It has several tables,
// some of them compacted, and the leftovers of a crash.
func usedDirectory(t *testing.T, h *history) map[string]string {
	n := newNode(t)
	i := n.open(t)
	for range 10 {
		must(t, h.commit(i, i.Applied()+3))
		must(t, i.Sync())
	}
	must(t, i.Close())
	must(t, os.MkdirAll(filepath.Join(n.dir(), imageName(7)), 0o755))
	must(t, os.WriteFile(filepath.Join(n.dir(), imageName(7), "000004.sst"), []byte("x"), 0o644))
	return filesIn(t, n.root)
}

// run lives the life of a node with a directory of its own. The first change that cut refuses
// fails, and so throws the switch. run returns the highest index that was promised to last.
func (l life) run(t *testing.T, n *node, cut func(op disk.Op, name string) error) (promised uint64) {
	o := n.options()
	o.FlushInterval = time.Hour
	n.disk.SetFault(cut)
	i, err := Open(o)
	must(t, err) // opening changes nothing, so it cannot fail
	if _, err = load(i); err == nil {
		err = l.live(i, func(index uint64) { promised = index })
	}
	index := i.Applied()
	closed := i.Close()
	if err == nil && closed == nil {
		return index // nobody was told of a failure, so everything must be there
	}
	if n.disk.Err() == nil {
		t.Fatalf("the life ended with %v, its image with %v", err, closed)
	}
	return promised
}

// survives checks that the node's image is whole, holds what was promised, and can be used.
func (l life) survives(t *testing.T, n *node, promised uint64) {
	t.Helper()
	i := n.open(t)
	index := i.Applied()
	h := l.own
	if index >= 100 {
		h = l.sent
	}
	if index < promised {
		t.Fatalf("index %d, but %d was promised", index, promised)
	}
	h.expect(t, i)
	must(t, h.commit(i, index+1))
	must(t, i.Sync())
	must(t, i.Close())
	i = n.open(t)
	if h.expect(t, i); i.Applied() != index+1 {
		t.Fatalf("index %d after a commit at %d", i.Applied(), index+1)
	}
	if got := images(t, n); len(got) != 1 {
		t.Fatalf("the directory holds %v", got)
	}
	must(t, i.Close())
}

// C13.4: A crash before any change of the directory, or in the middle of removing a tree, leaves a
// whole image. It is at an index that it once had, and that index is not below the promised one.
// (etcd#13766: data and applied index were saved separately, and a crash came in between.)
func TestCrashAtAnyChangeLeavesAWholeImage(t *testing.T) {
	for name, l := range lives(t) {
		t.Run(name, func(t *testing.T) {
			for at, more := 1, true; more; at += stride(1) {
				more = t.Run(fmt.Sprint(at), func(t *testing.T) {
					n := nodeIn(t, restore(t, l.before))
					c := &cutter{sys: n.sys, at: at}
					promised := l.run(t, n, c.cut)
					l.survives(t, n.successor(t), promised)
					more = c.at <= 0
				}) && more
			}
		})
	}
}

var every = flag.Bool("every", false, "cut off every single change in the tests that cut off some")

// stride is the distance between two changes that are interrupted.
func stride(long int) int {
	switch {
	case *every:
		return 1
	case testing.Short():
		return 7
	}
	return long
}

// A cutter counts changes down and makes the last one fail.
type cutter struct {
	sys files.System
	mu  sync.Mutex
	at  int
}

func (c *cutter) cut(op disk.Op, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at--; c.at != 0 {
		return nil
	}
	if op == disk.OpRemoveAll {
		if err := c.removeHalf(name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %v %s", errFault, op, filepath.Base(name))
}

// removeHalf removes half of what is in a directory.
func (c *cutter) removeHalf(dir string) error {
	if _, err := c.sys.Stat(dir); err != nil {
		return nil // the change has nothing to remove
	}
	d, err := disk.Open(c.sys, dir)
	if err != nil {
		return err
	}
	all, err := d.List(dir)
	for _, name := range all[:len(all)/2] {
		err = errors.Join(err, d.RemoveAll(filepath.Join(dir, name)))
	}
	return err
}
