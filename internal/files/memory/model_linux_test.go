package memory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
)

// The same random calls get the same answers from the operating system, down to the texts of
// errors.
func TestLikeOperatingSystem(t *testing.T) {
	t.Parallel()
	seeds(t, func(t *testing.T, rng *rand.Rand) {
		w := &twins{t: t, rng: rng, dir: t.TempDir(), memory: New()}
		must(t, mkdirAll(w.memory, w.dir))
		for range 600 {
			if w.step(); t.Failed() {
				t.Log("last calls:\n" + strings.Join(w.journal[max(0, len(w.journal)-20):], "\n"))
				break
			}
		}
		for _, p := range w.open {
			must(t, p[0].Close())
			must(t, p[1].Close())
		}
	})
}

func mkdirAll(s *System, dir string) error {
	if dir == filepath.Dir(dir) {
		return nil
	}
	if err := mkdirAll(s, filepath.Dir(dir)); err != nil {
		return err
	}
	return s.Mkdir(dir, 0o777)
}

// twins are both file systems, which get the same calls below one directory.
type twins struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	memory  *System
	open    [][2]files.File
	journal []string
}

// name returns one of a few names, of which some are below others.
func (w *twins) name() string {
	parts := []string{w.dir}
	for range 1 + w.rng.IntN(3) {
		parts = append(parts, string(rune('a'+w.rng.IntN(3))))
	}
	return strings.Join(parts, "/")
}

// both makes a call on both file systems. The answers must agree.
func (w *twins) both(what string, call func(s files.System) (any, error)) {
	w.t.Helper()
	theirs, theirErr := call(files.OS)
	ours, ourErr := call(w.memory)
	w.compare(what, ours, ourErr, theirs, theirErr)
}

// each makes a call on one open file in both file systems.
func (w *twins) each(what string, call func(f files.File) (any, error)) {
	w.t.Helper()
	if len(w.open) == 0 {
		return
	}
	i := w.rng.IntN(len(w.open))
	theirs, theirErr := call(w.open[i][0])
	ours, ourErr := call(w.open[i][1])
	w.compare(fmt.Sprintf("file %d: %s", i, what), ours, ourErr, theirs, theirErr)
}

func (w *twins) compare(what string, ours any, ourErr error, theirs any, theirErr error) {
	w.t.Helper()
	a, b := fmt.Sprint(ours, " ", ourErr), fmt.Sprint(theirs, " ", theirErr)
	w.journal = append(w.journal, what+": "+b)
	if a != b {
		w.t.Errorf("%s: %s\nthe operating system: %s", what, a, b)
	}
}

func (w *twins) step() {
	switch w.rng.IntN(14) {
	case 0, 1:
		w.openFile()
	case 2:
		name := w.name()
		w.both("mkdir "+name, func(s files.System) (any, error) { return nil, s.Mkdir(name, 0o777) })
	case 3:
		name := w.name()
		w.both("remove "+name, func(s files.System) (any, error) { return nil, s.Remove(name) })
	case 4:
		from, to := w.name(), w.name()
		w.both("rename "+from+" "+to, func(s files.System) (any, error) { return nil, s.Rename(from, to) })
	case 5:
		from, to := w.name(), w.name()
		w.both("link "+from+" "+to, func(s files.System) (any, error) { return nil, s.Link(from, to) })
	case 6:
		name := w.name()
		w.both("stat "+name, func(s files.System) (any, error) { return described(s.Stat(name)) })
		w.both("lstat "+name, func(s files.System) (any, error) { return described(s.Lstat(name)) })
		w.both("resolve "+name, func(s files.System) (any, error) {
			resolved, err := s.Resolve(name)
			return fmt.Sprint(resolved, err == nil), nil
		})
	case 7:
		a, b := w.name(), w.name()
		w.both("same "+a+" "+b, func(s files.System) (any, error) {
			one, err := s.Stat(a)
			two, err2 := s.Stat(b)
			return err == nil && err2 == nil && files.Same(one, two), nil
		})
	default:
		w.use()
	}
}

func (w *twins) openFile() {
	name := w.name()
	flag := []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY}[w.rng.IntN(3)]
	for _, more := range []int{os.O_CREATE, os.O_EXCL | os.O_CREATE, os.O_TRUNC} {
		if w.rng.IntN(3) == 0 {
			flag |= more
		}
	}
	if flag&(os.O_TRUNC|os.O_RDWR|os.O_WRONLY) == os.O_TRUNC {
		return // unspecified
	}
	var pair [2]files.File
	w.both(fmt.Sprintf("open %s %#x", name, flag), func(s files.System) (any, error) {
		f, err := s.OpenFile(name, flag, 0o666)
		pair[0], pair[1] = pair[1], f
		return nil, err
	})
	if pair[0] != nil {
		w.open = append(w.open, pair)
	}
}

// use makes a call on an open file.
func (w *twins) use() {
	off, size := int64(w.rng.IntN(3*pageSize)-2), w.rng.IntN(2*pageSize)
	switch w.rng.IntN(9) {
	case 0, 1:
		p := make([]byte, size)
		for i := range p {
			p[i] = byte(w.rng.Uint32())
		}
		w.each(fmt.Sprintf("write %d at %d", size, off), func(f files.File) (any, error) { return f.WriteAt(p, off) })
	case 2, 3:
		w.each(fmt.Sprintf("read %d at %d", size, off), func(f files.File) (any, error) {
			p := make([]byte, size)
			n, err := f.ReadAt(p, off)
			return fmt.Sprintf("%d bytes %x", n, sha256.Sum256(p[:n])), err
		})
	case 4:
		w.each(fmt.Sprintf("truncate %d", off), func(f files.File) (any, error) { return nil, f.Truncate(off) })
	case 5:
		w.each("stat", func(f files.File) (any, error) { return described(f.Stat()) })
	case 6:
		shared := w.rng.IntN(2) == 0
		w.each(fmt.Sprint("lock ", shared), func(f files.File) (any, error) { return nil, f.Lock(shared) })
	case 7:
		w.list()
	default:
		w.finish()
	}
}

// list lists a directory. Their order is the operating system's own.
func (w *twins) list() {
	name := w.name()
	w.both("list "+name, func(s files.System) (any, error) {
		f, err := s.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.IsDir() {
			return "no directory", err
		}
		var names []string
		for err == nil {
			var more []string
			more, err = f.Readdirnames(1)
			names = append(names, more...)
		}
		slices.Sort(names)
		return names, err
	})
}

// finish syncs, closes, or uses a closed file.
func (w *twins) finish() {
	switch w.rng.IntN(3) {
	case 0:
		w.each("sync", func(f files.File) (any, error) { return nil, f.Sync() })
	case 1:
		w.each("sync data", func(f files.File) (any, error) { return nil, f.SyncData() })
	case 2:
		if len(w.open) == 0 {
			return
		}
		i := w.rng.IntN(len(w.open))
		p := w.open[i]
		w.open = slices.Delete(w.open, i, i+1)
		must(w.t, errors.Join(p[0].Close(), p[1].Close()))
		for _, call := range []func(f files.File) error{
			files.File.Close, files.File.Sync,
			func(f files.File) error { return f.Lock(true) },
			func(f files.File) error { return f.Truncate(1) },
			func(f files.File) error { _, err := f.Stat(); return err },
			func(f files.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
			func(f files.File) error { _, err := f.WriteAt(make([]byte, 1), 0); return err },
		} {
			w.compare("closed", nil, call(p[1]), nil, call(p[0]))
		}
	}
}

// described returns what both file systems must agree on. Only a file has a size and a number of
// names that mean the same everywhere.
func described(info os.FileInfo, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return info.Name() + " is a directory", nil
	}
	return fmt.Sprint(info.Name(), info.Mode().Type(), info.Size(), files.Links(info)), nil
}

// A file is read to its end, and a hole in it reads as zeros.
func TestReadAt_AHole(t *testing.T) {
	f, err := New().OpenFile("/f", os.O_RDWR|os.O_CREATE, 0o666)
	must(t, err)
	_, err = f.WriteAt([]byte{1}, 1<<40)
	must(t, err)
	p := []byte{9, 9, 9}
	if n, err := f.ReadAt(p, 1<<40-2); n != 3 || err != nil || !slices.Equal(p, []byte{0, 0, 1}) {
		t.Errorf("%v, %v, %v", p, n, err)
	}
	if n, err := f.ReadAt(p, 1<<40); n != 1 || err != io.EOF {
		t.Errorf("%v, %v", n, err)
	}
}
