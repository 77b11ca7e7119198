package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

const patience = testkit.Patience

// A contents is the records of an image, by table and key.
type contents map[string]string

func (c contents) equal(other contents) bool { return maps.Equal(c, other) }

type change struct {
	table  Table
	key    string
	value  string
	delete bool
}

// A history is a sequence of batches. The batch at index n follows from the seed and n alone, so
// the test knows what an image must hold at every index.
type history struct {
	seed   uint64
	states map[uint64]contents
}

func newHistory(t testing.TB) *history {
	return &history{seed: testkit.Rand(t).Uint64(), states: map[uint64]contents{0: {}}}
}

// changes returns the batch at index n: a few writes among 200 keys, and some deletes.
func (h *history) changes(n uint64) []change {
	r := rand.New(rand.NewPCG(h.seed, n))
	list := make([]change, 5+r.IntN(20))
	for j := range list {
		c := change{table: Table(1 + r.IntN(4)), key: fmt.Sprintf("key-%02d", r.IntN(50)), delete: r.IntN(5) == 0}
		if !c.delete {
			value := fmt.Appendf(nil, "%d:", n)
			for range r.IntN(800) {
				value = append(value, byte(r.Uint32())) // random, so that Pebble cannot compress it
			}
			c.value = string(value)
		}
		list[j] = c
	}
	return list
}

// at returns what an image must hold at index n.
func (h *history) at(n uint64) contents {
	if c, ok := h.states[n]; ok {
		return c
	}
	c := maps.Clone(h.at(n - 1))
	for _, ch := range h.changes(n) {
		name := string(byte(ch.table)) + ch.key
		if ch.delete {
			delete(c, name)
		} else {
			c[name] = ch.value
		}
	}
	h.states[n] = c
	return c
}

// commit commits the batches from the image's index to n.
func (h *history) commit(i *Image, n uint64) error {
	b := i.NewBatch()
	for k := i.Applied() + 1; k <= n; k++ {
		for _, ch := range h.changes(k) {
			if ch.delete {
				b.Delete(ch.table, []byte(ch.key))
			} else {
				b.Put(ch.table, []byte(ch.key), []byte(ch.value))
			}
		}
		if err := b.Commit(k); err != nil {
			return err
		}
	}
	return nil
}

// load reads the image and checks that the records come in order, those of Meta first.
func load(i *Image) (contents, error) {
	c := contents{}
	last := ""
	err := i.Load(func(t Table, key, value []byte) error {
		name := string(byte(t)) + string(key)
		order := name
		if t == Meta {
			order = "\x00" + name
		}
		if order <= last && last != "" {
			return fmt.Errorf("record %q after %q", order, last)
		}
		last = order
		c[name] = string(value)
		return nil
	})
	return c, err
}

// expect checks that the image holds exactly the contents of its index.
func (h *history) expect(t testing.TB, i *Image) {
	t.Helper()
	got, err := load(i)
	if err != nil {
		t.Fatal(err)
	}
	if n := i.Applied(); !got.equal(h.at(n)) {
		t.Fatalf("at index %d the image holds %d records that are not the %d that were committed", n, len(got), len(h.at(n)))
	}
}

// A node is a directory and its disk, as in a real node.
type node struct {
	sys  files.System
	root string
	disk *disk.Disk
}

func newNode(t testing.TB) *node { return nodeIn(t, t.TempDir()) }

func nodeIn(t testing.TB, root string) *node { return nodeOn(t, files.OS, root) }

func nodeOn(t testing.TB, sys files.System, root string) *node {
	d, err := disk.Open(sys, root)
	if err != nil {
		t.Fatal(err)
	}
	return &node{sys: sys, root: d.Dir(), disk: d}
}

// successor returns a new node in the directory of one that has ended.
func (n *node) successor(t testing.TB) *node { return nodeOn(t, n.sys, n.root) }

func (n *node) dir() string { return filepath.Join(n.root, "image", "shard-1") }

func (n *node) options() Options { return Options{Disk: n.disk, Dir: n.dir()} }

// open opens the image, reads it, and closes it at the end of the test.
func (n *node) open(t testing.TB) *Image { return openWith(t, n.options()) }

func openWith(t testing.TB, o Options) *Image {
	t.Helper()
	i, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

var must = testkit.Must

// filesIn returns the contents of every file below root, and the names of the directories.
func filesIn(t testing.TB, root string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if e.IsDir() {
			all[rel+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		all[rel] = string(data)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	must(t, err)
	return all
}

// instant returns files as of a single moment, even while something is writing them.
func instant(t testing.TB, root string) map[string]string {
	t.Helper()
	for before := filesIn(t, root); ; {
		after := filesIn(t, root)
		if sameFiles(before, after) {
			return before
		}
		before = after
	}
}

// scratch returns a directory for tests that sync thousands of times. It is in memory if the system
// offers that.
func scratch(t testing.TB) string {
	root, err := os.MkdirTemp("/dev/shm", "storage-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	return root
}

// restore writes the result of files to a new directory, and returns its path.
func restore(t testing.TB, all map[string]string) string {
	t.Helper()
	root := scratch(t)
	for _, rel := range slices.Sorted(maps.Keys(all)) {
		path := filepath.Join(root, rel)
		if rel[len(rel)-1] == '/' {
			must(t, os.MkdirAll(path, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(all[rel]), 0o644))
	}
	return root
}
