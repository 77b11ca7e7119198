package memory

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var (
	must     = testkit.Must
	seedFlag = flag.Uint64("seed", 0, "replay one run of a random test")
	runsFlag = flag.Int("runs", 40, "runs of each random test")
)

// seeds calls a test with random seeds, and names the seed that fails.
func seeds(t *testing.T, test func(t *testing.T, rng *rand.Rand)) {
	choices := testkit.Rand(t)
	for range *runsFlag {
		seed := *seedFlag
		if seed == 0 {
			seed = choices.Uint64()
		}
		test(t, rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			t.Fatalf("-seed %d", seed)
		}
		if *seedFlag != 0 {
			return
		}
	}
}

func open(t *testing.T, s *System, name string) files.File {
	t.Helper()
	f, err := s.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	must(t, err)
	return f
}

func write(t *testing.T, f files.File, text string) {
	t.Helper()
	_, err := f.WriteAt([]byte(text), 0)
	must(t, err)
}

func syncDir(t *testing.T, s *System, name string) {
	t.Helper()
	f, err := s.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

// tree returns the contents of all files by their paths. A directory's path ends in a slash.
func tree(s *System) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string)
	var walk func(path string, n *inode)
	walk = func(path string, n *inode) {
		if !n.isDir() {
			p := make([]byte, n.size)
			n.readAt(p, 0)
			all[path] = string(p)
			return
		}
		all[path+"/"] = ""
		for name, child := range n.names {
			walk(path+"/"+name, child)
		}
	}
	walk("", s.root)
	return all
}

func wantTree(t *testing.T, s *System, want map[string]string) {
	t.Helper()
	if got := tree(s); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func someRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// A name is durable after the sync of its directory, and contents after the sync of the file.
func TestPowerCut_LosesWhatWasNotSynced(t *testing.T) {
	s := New()
	must(t, s.Mkdir("/dir", 0o777))
	synced, unsynced, unnamed := open(t, s, "/synced"), open(t, s, "/unsynced"), open(t, s, "/dir/unnamed")
	for _, f := range []files.File{synced, unsynced, unnamed} {
		write(t, f, "old")
	}
	must(t, synced.SyncData())
	must(t, unnamed.Sync())
	syncDir(t, s, "/")
	write(t, synced, "newer")
	left := s.PowerCut(NothingLasts, nil)
	wantTree(t, left, map[string]string{"/": "", "/dir/": "", "/synced": "old", "/unsynced": ""})
	wantTree(t, s, map[string]string{"/": "", "/dir/": "", "/dir/unnamed": "old", "/synced": "newer", "/unsynced": "old"})
	wantTree(t, left.PowerCut(NothingLasts, nil), tree(left)) // all of it is durable
}

// What is left and the file system that goes on change apart.
func TestPowerCut_LeavesACopy(t *testing.T) {
	s := New()
	f := open(t, s, "/f")
	write(t, f, "old")
	must(t, f.Sync())
	syncDir(t, s, "/")
	left := s.PowerCut(ContentsLast, nil)
	write(t, f, "new")
	wantTree(t, left, map[string]string{"/": "", "/f": "old"})
	write(t, open(t, left, "/f"), "OLD")
	wantTree(t, s, map[string]string{"/": "", "/f": "new"})
	wantTree(t, s.PowerCut(NothingLasts, nil), map[string]string{"/": "", "/f": "old"})
}

// A removed file is back if its directory was not synced, and has the contents of its last sync.
func TestPowerCut_UndoesRemovesAndRenames(t *testing.T) {
	s := New()
	for _, name := range []string{"/a", "/b", "/c"} {
		f := open(t, s, name)
		write(t, f, name)
		must(t, f.Sync())
	}
	syncDir(t, s, "/")
	must(t, s.Remove("/a"))
	must(t, s.Rename("/b", "/c"))
	must(t, s.Link("/c", "/d"))
	wantTree(t, s.PowerCut(NothingLasts, nil), map[string]string{"/": "", "/a": "/a", "/b": "/b", "/c": "/c"})
	wantTree(t, s.PowerCut(RenamesLast, nil), map[string]string{"/": "", "/a": "/a", "/b": "/b", "/c": "/b"})
	wantTree(t, s, map[string]string{"/": "", "/c": "/b", "/d": "/b"})
}

// Two directories have changed places, and not every old name is durably gone. No directory is
// below itself afterwards.
func TestPowerCut_LeavesNoDirectoryBelowItself(t *testing.T) {
	s := New()
	for _, name := range []string{"/a", "/a/b"} {
		must(t, s.Mkdir(name, 0o777))
		syncDir(t, s, filepath.Dir(name))
	}
	must(t, s.Rename("/a/b", "/b"))
	syncDir(t, s, "/")
	must(t, s.Rename("/a", "/b/a"))
	syncDir(t, s, "/b")
	wantTree(t, s.PowerCut(NothingLasts, nil), map[string]string{"/": "", "/a/": "", "/a/b/": "", "/b/": ""})
	wantTree(t, s, map[string]string{"/": "", "/b/": "", "/b/a/": ""})
}

// A file that is truncated and grows again may have its old end back.
func TestPowerCut_UndoesATruncate(t *testing.T) {
	s := New()
	f := open(t, s, "/f")
	old := string(bytes.Repeat([]byte("old"), pageSize))
	write(t, f, old)
	must(t, f.Sync())
	syncDir(t, s, "/")
	must(t, f.Truncate(5))
	must(t, f.Truncate(2*pageSize))
	wantTree(t, s.PowerCut(NothingLasts, nil), map[string]string{"/": "", "/f": old})
	wantTree(t, s.PowerCut(ContentsLast, nil), map[string]string{"/": "", "/f": "oldol" + string(make([]byte, 2*pageSize-5))})
}

// Two names of one file lead to one file afterwards, in which nobody has a lock.
func TestPowerCut_KeepsLinksAndNoLocks(t *testing.T) {
	s := New()
	f := open(t, s, "/a")
	must(t, f.Lock(false))
	must(t, s.Link("/a", "/b"))
	syncDir(t, s, "/")
	if err := open(t, s, "/b").Lock(true); err != syscall.EWOULDBLOCK {
		t.Errorf("the lock of a file with two names: %v", err)
	}
	left := s.PowerCut(AnythingLasts, someRand())
	a, err := left.Stat("/a")
	must(t, err)
	b, err := left.Stat("/b")
	must(t, err)
	if !files.Same(a, b) || files.Links(a) != 2 {
		t.Errorf("%d links, same: %v", files.Links(a), files.Same(a, b))
	}
	must(t, open(t, left, "/b").Lock(false))
	must(t, f.Close())
}

// Every outcome of a torn write happens, and no other byte than an old or a new one is seen.
func TestPowerCut_TearsWrites(t *testing.T) {
	s := New()
	f := open(t, s, "/f")
	write(t, f, string(bytes.Repeat([]byte("o"), 2*pageSize)))
	must(t, f.Sync())
	syncDir(t, s, "/")
	write(t, f, string(bytes.Repeat([]byte("n"), 3*pageSize)))
	rng, seen := someRand(), make(map[string]int)
	for range 1000 {
		text := tree(s.PowerCut(AnythingLasts, rng))["/f"]
		switch len(text) {
		case 2 * pageSize:
			seen["old size"]++
		case 3 * pageSize:
			seen["new size"]++
		default:
			seen["a size between"]++
		}
		first, last := text[:pageSize], text[2*pageSize:]
		switch n := bytes.Count([]byte(first), []byte("n")); {
		case n == 0:
			seen["old page"]++
		case n == pageSize:
			seen["new page"]++
		case n%sectorSize != 0:
			t.Fatal("a sector is torn")
		case first[0] == 'o':
			seen["any sectors"]++
		default:
			seen["the first sectors, or any"]++
		}
		if bytes.Trim([]byte(first), "on") != nil && len(bytes.Trim([]byte(first), "on")) > 0 {
			t.Fatal("a page has bytes that nobody wrote")
		}
		if len(bytes.Trim([]byte(last), "n\x00")) > 0 {
			t.Fatal("the end has bytes that nobody wrote")
		}
	}
	if len(seen) != 7 {
		t.Errorf("seen: %v", seen)
	}
}

// The same seed makes the same choices.
func TestPowerCut_ByItsSeed(t *testing.T) {
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorker(t, rng)
		for range 100 {
			w.step()
		}
		seed := rng.Uint64()
		cut := func() map[string]string {
			return tree(w.s.PowerCut(AnythingLasts, rand.New(rand.NewPCG(seed, 0))))
		}
		if a, b := cut(), cut(); !maps.Equal(a, b) {
			t.Errorf("%v\n%v", a, b)
		}
	})
}

// A worker changes a few files at random. Beside them it keeps whole copies of what is durable.
type worker struct {
	t     *testing.T
	rng   *rand.Rand
	s     *System
	files map[string]files.File
	data  map[*inode]string            // as synced
	names map[*inode]map[string]*inode // as synced
}

func newWorker(t *testing.T, rng *rand.Rand) *worker {
	w := &worker{t: t, rng: rng, s: New(), files: make(map[string]files.File),
		data: make(map[*inode]string), names: make(map[*inode]map[string]*inode)}
	must(t, w.s.Mkdir("/d", 0o777))
	return w
}

func (w *worker) name() string {
	return []string{"/", "/d/"}[w.rng.IntN(2)] + fmt.Sprint(w.rng.IntN(4))
}

func (w *worker) step() {
	name := w.name()
	f := w.files[name]
	switch op := w.rng.IntN(9); {
	case f == nil:
		w.files[name] = open(w.t, w.s, name)
	case op < 3:
		p := bytes.Repeat([]byte{byte(w.rng.Uint32())}, w.rng.IntN(2*pageSize))
		_, err := f.WriteAt(p, int64(w.rng.IntN(2*pageSize)))
		must(w.t, err)
	case op == 3:
		must(w.t, f.Truncate(int64(w.rng.IntN(4*pageSize))))
	case op == 4:
		must(w.t, errors.Join(f.Close(), w.s.Remove(name)))
		delete(w.files, name)
	case op == 5:
		to := w.name()
		must(w.t, w.s.Rename(name, to))
		delete(w.files, name)
		w.files[to] = f
	case op == 6:
		dir := []string{"/", "/d"}[w.rng.IntN(2)]
		syncDir(w.t, w.s, dir)
		p, err := w.s.find(dir)
		must(w.t, err)
		w.names[p.n] = maps.Clone(p.n.names)
	default:
		must(w.t, f.SyncData())
		n := f.(*handle).inode
		p := make([]byte, n.size)
		n.readAt(p, 0)
		w.data[n] = string(p)
	}
}

// durable is tree for what the copies have.
func (w *worker) durable() map[string]string {
	all := make(map[string]string)
	var walk func(path string, n *inode)
	walk = func(path string, n *inode) {
		if !n.isDir() {
			all[path] = w.data[n]
			return
		}
		all[path+"/"] = ""
		for name, child := range w.names[n] {
			walk(path+"/"+name, child)
		}
	}
	walk("", w.s.root)
	return all
}

// What is durable agrees with whole copies made at every sync.
func TestPowerCut_LeavesWhatCopiesHave(t *testing.T) {
	t.Parallel()
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := newWorker(t, rng)
		for range 300 {
			w.step()
			if got, want := tree(w.s.PowerCut(NothingLasts, nil)), w.durable(); !maps.Equal(got, want) {
				t.Fatalf("names %v, want %v, or their contents", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	})
}

// size returns how many bytes and names a System stores.
func size(s *System) int {
	total, seen := 0, make(map[*inode]bool)
	var walk func(n *inode)
	walk = func(n *inode) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, pages := range []map[int64][]byte{n.pages, n.was} {
			for _, p := range pages {
				total += 1 + len(p)
			}
		}
		for _, names := range []map[string]*inode{n.names, n.had} {
			for _, child := range names {
				total++
				walk(child)
			}
		}
	}
	walk(s.root)
	return total
}

// Work that leaves nothing behind takes no memory, whether it is synced or not.
func TestSystem_DoesNotGrow(t *testing.T) {
	for _, synced := range []bool{false, true} {
		s := New()
		log := open(t, s, "/log")
		turn := func() {
			f := open(t, s, "/new")
			write(t, f, "text")
			write(t, log, string(make([]byte, 5*pageSize)))
			must(t, f.Lock(false))
			if synced {
				must(t, errors.Join(f.Sync(), log.Sync()))
				syncDir(t, s, "/")
			}
			must(t, log.Truncate(pageSize/2))
			must(t, s.Rename("/new", "/newer"))
			must(t, errors.Join(f.Close(), s.Remove("/newer")))
		}
		turn()
		before := size(s)
		for range 100 {
			turn()
		}
		if after := size(s); after != before {
			t.Errorf("synced %v: %d, was %d", synced, after, before)
		}
	}
}
