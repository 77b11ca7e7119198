package disk

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

var (
	seedFlag = flag.Uint64("seed", 0, "replay one run of the random test")
	runsFlag = flag.Int("runs", 60, "runs of the random test")
)

// TestLikeOperatingSystem makes the same random calls on a Disk, and with package os on another
// directory. At one call the Disk's switch is thrown. All results and both directories must agree.
// The Disk's real directory must stay as it was when the switch was thrown.
func TestLikeOperatingSystem(t *testing.T) {
	fds := descriptors(t)
	rng := testkit.Rand(t)
	for range *runsFlag {
		seed := *seedFlag
		if seed == 0 {
			seed = rng.Uint64()
		}
		twins := newTwins(t, seed)
		if err := twins.run(400); err != nil {
			t.Fatalf("seed %d: %v\nlast calls:\n%s", seed, err, strings.Join(twins.journal, "\n"))
		}
		if *seedFlag != 0 {
			break
		}
	}
	if n := descriptors(t); n != fds {
		t.Fatalf("%d descriptors, %d before", n, fds)
	}
}

// twins are a Disk and a directory of the operating system that receive the same calls.
type twins struct {
	r       *rand.Rand
	d       *Disk
	dir     string // the operating system's directory
	open    []*pair
	left    int // mutating calls before the switch is thrown
	byHand  bool
	frozen  image // the real directory when the switch was thrown; nil before
	fault   error // from reading that image
	journal []string
}

// pair is one file, open in both.
type pair struct {
	name   string
	ours   File
	theirs *os.File
	append bool
	dir    bool
}

func newTwins(t *testing.T, seed uint64) *twins {
	w := &twins{
		r:   rand.New(rand.NewPCG(seed, 1)),
		d:   open(t),
		dir: t.TempDir(),
	}
	w.left = w.r.IntN(150)
	w.byHand = w.r.IntN(4) == 0
	if w.r.IntN(8) == 0 {
		w.fill()
		w.d = w.d.View()
		w.frozen, w.fault = realImage(w.d.Dir())
	}
	w.d.SetFault(func(Op, string) error {
		if w.left--; w.left >= 0 || w.byHand {
			return nil
		}
		w.throw()
		return errInjected
	})
	return w
}

func (w *twins) throw() {
	w.journal = append(w.journal, "-- the switch --")
	w.frozen, w.fault = realImage(w.d.Dir())
}

// fill gives both directories the same initial contents.
func (w *twins) fill() {
	for _, dir := range []string{w.d.Dir(), w.dir} {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if strings.HasSuffix(name, "d") {
				os.MkdirAll(path, 0o777)
			} else if os.MkdirAll(filepath.Dir(path), 0o777) == nil {
				os.WriteFile(path, []byte("content of "+name), 0o666)
			}
		}
	}
}

// names are few, so that calls meet: a to c mostly become files, and d mostly becomes a directory.
var names = []string{"a", "b", "c", "d", "d/a", "d/b", "d/d", "d/d/a", "d/d/b", "e", "e/a", "e/d"}

func (w *twins) name() string { return names[w.r.IntN(len(names))] }

// run makes n calls on both.
func (w *twins) run(n int) error {
	defer func() {
		for _, p := range w.open {
			p.ours.Close()
			p.theirs.Close()
		}
	}()
	for range n {
		if w.byHand && w.frozen == nil {
			if w.left--; w.left < 0 {
				w.throw()
				w.d.Fail(errInjected)
			}
		}
		if err := w.step(); err != nil {
			return err
		}
		if w.fault != nil {
			return w.fault
		}
	}
	return w.compare()
}

// compare checks that both directories have the same names and contents.
func (w *twins) compare() error {
	ours, err := diskImage(w.d)
	if err != nil {
		return err
	}
	theirs, err := realImage(w.dir)
	if err != nil {
		return err
	}
	if err := diff("the directory as the Disk shows it", ours, theirs); err != nil || w.frozen == nil {
		return err
	}
	real, err := realImage(w.d.Dir())
	if err != nil {
		return err
	}
	for _, n := range w.d.nodes.list {
		if err := n.check(); err != nil {
			return err
		}
	}
	return diff("the real directory", real, w.frozen)
}

func diff(what string, got, want image) error {
	for name := range want {
		if _, ok := got[name]; !ok {
			return fmt.Errorf("%s has no %s", what, name)
		}
	}
	for name, content := range got {
		if w, ok := want[name]; !ok || w != content {
			return fmt.Errorf("%s has %s with %q, want %t, %q", what, name, content, ok, w)
		}
	}
	return nil
}

// step makes one call on both and compares the results.
func (w *twins) step() error {
	if len(w.open) > 8 {
		return w.close()
	}
	switch w.r.IntN(18) {
	case 0, 1:
		return w.opening("create", w.name(), w.d.Create, func(name string) (*os.File, error) {
			if info, err := os.Lstat(name); err == nil && info.IsDir() {
				return nil, syscall.EISDIR
			}
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			return os.Create(name)
		})
	case 2:
		return w.opening("append", w.name(), w.d.OpenForAppend, func(name string) (*os.File, error) {
			return os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
		})
	case 3:
		return w.opening("read", w.name(), w.d.OpenForRead, os.Open)
	case 4:
		old := w.name()
		return w.opening("reuse "+old, w.name(), func(name string) (File, error) {
			return w.d.ReuseForWrite(filepath.Join(w.d.Dir(), old), name)
		}, func(name string) (*os.File, error) {
			if err := os.Rename(filepath.Join(w.dir, old), name); err != nil {
				return nil, err
			}
			return os.OpenFile(name, os.O_RDWR, 0)
		})
	case 5:
		return w.two("rename", w.d.Rename, os.Rename)
	case 6:
		return w.two("link", w.d.Link, os.Link)
	case 7:
		return w.one("remove", w.d.Remove, os.Remove)
	case 8:
		if w.r.IntN(3) > 0 {
			return w.one("remove", w.d.Remove, os.Remove)
		}
		return w.one("removeall", w.d.RemoveAll, os.RemoveAll)
	case 9:
		return w.one("mkdirall",
			func(name string) error { return w.d.MkdirAll(name) },
			func(name string) error { return os.MkdirAll(name, 0o777) })
	case 10:
		return w.look()
	case 12:
		size := int64(w.r.IntN(200))
		return w.one(fmt.Sprint("truncate to ", size), func(name string) error { return w.d.Truncate(name, size) }, func(name string) error {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			if info, err := f.Stat(); err != nil || info.Size() <= size {
				return err
			}
			return f.Truncate(size)
		})
	case 11:
		return w.close()
	}
	return w.use()
}

func (w *twins) log(format string, args ...any) {
	w.journal = append(w.journal, fmt.Sprintf(format, args...))
	if len(w.journal) > 60 {
		w.journal = w.journal[1:]
	}
}

// agree compares two errors by what a caller can tell apart.
func agree(ours, theirs error) error {
	if class(ours) != class(theirs) {
		return fmt.Errorf("the Disk says %v, the operating system %v", ours, theirs)
	}
	return nil
}

func class(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case err == io.EOF:
		return "eof"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}

func (w *twins) one(op string, ours, theirs func(string) error) error {
	name := w.name()
	w.log("%s %s", op, name)
	return agree(ours(filepath.Join(w.d.Dir(), name)), theirs(filepath.Join(w.dir, name)))
}

func (w *twins) two(op string, ours, theirs func(a, b string) error) error {
	a, b := w.name(), w.name()
	w.log("%s %s %s", op, a, b)
	return agree(ours(filepath.Join(w.d.Dir(), a), filepath.Join(w.d.Dir(), b)),
		theirs(filepath.Join(w.dir, a), filepath.Join(w.dir, b)))
}

func (w *twins) opening(op, name string, ours func(string) (File, error), theirs func(string) (*os.File, error)) error {
	w.log("%s %s as %d", op, name, len(w.open))
	f, err := ours(filepath.Join(w.d.Dir(), name))
	g, gerr := theirs(filepath.Join(w.dir, name))
	if err := agree(err, gerr); err != nil {
		if f != nil {
			f.Close()
		}
		return errors.Join(err, g.Close())
	}
	if err != nil {
		return nil
	}
	info, err := g.Stat()
	w.open = append(w.open, &pair{name, f, g, op == "append", err == nil && info.IsDir()})
	return err
}

func (w *twins) close() error {
	if len(w.open) == 0 {
		return nil
	}
	i := w.r.IntN(len(w.open))
	p := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	w.log("close %d", i)
	return agree(p.ours.Close(), p.theirs.Close())
}

// look compares Stat and List of one name.
func (w *twins) look() error {
	name := w.name()
	if w.r.IntN(8) == 0 {
		name = "."
	}
	w.log("look at %s", name)
	ourName, theirName := filepath.Join(w.d.Dir(), name), filepath.Join(w.dir, name)
	info, err := w.d.Stat(ourName)
	ginfo, gerr := os.Stat(theirName)
	if err := agree(err, gerr); err != nil || gerr != nil {
		return err
	}
	if err := sameInfo(info, ginfo, name == "."); err != nil {
		return err
	}
	list, err := w.d.List(ourName)
	entries, gerr := os.ReadDir(theirName)
	if err := agree(err, gerr); err != nil {
		return err
	}
	var glist []string
	for _, e := range entries {
		glist = append(glist, e.Name())
	}
	if !slices.Equal(list, glist) {
		return fmt.Errorf("the Disk lists %q, the operating system %q", list, glist)
	}
	return nil
}

func sameInfo(ours, theirs os.FileInfo, top bool) error {
	switch {
	case ours.IsDir() != theirs.IsDir() || ours.Mode().IsDir() != theirs.IsDir():
		return fmt.Errorf("directory: the Disk says %t, the operating system %t", ours.IsDir(), theirs.IsDir())
	case !top && ours.Name() != theirs.Name():
		return fmt.Errorf("name: the Disk says %q, the operating system %q", ours.Name(), theirs.Name())
	case !ours.IsDir() && ours.Size() != theirs.Size():
		return fmt.Errorf("size: the Disk says %d, the operating system %d", ours.Size(), theirs.Size())
	case ours.ModTime().IsZero():
		return errors.New("the Disk says no time")
	}
	return nil
}

// use makes a call on an open file.
func (w *twins) use() error {
	if len(w.open) == 0 {
		return nil
	}
	i := w.r.IntN(len(w.open))
	p := w.open[i]
	b := bytes.Repeat([]byte{byte('a' + w.r.IntN(26))}, w.r.IntN(30))
	off := int64(w.r.IntN(80))
	op := w.r.IntN(9)
	w.log("use %d (%s): %d, %d bytes at %d", i, p.name, op, len(b), off)
	switch {
	case op == 0:
		return p.ours.Sync()
	case op == 1:
		info, err := p.ours.Stat()
		ginfo, gerr := p.theirs.Stat()
		if err := agree(err, gerr); err != nil {
			return err
		}
		return sameInfo(info, ginfo, false)
	case p.dir:
		return nil // file systems differ in how they read a directory
	case op == 2:
		n, err := p.ours.Seek(off, io.SeekStart)
		gn, gerr := p.theirs.Seek(off, io.SeekStart)
		return same(n, gn, err, gerr)
	case op == 3:
		whence := w.r.IntN(2) + 1
		n, err := p.ours.Seek(off-40, whence)
		gn, gerr := p.theirs.Seek(off-40, whence)
		return same(n, gn, err, gerr)
	case op == 4:
		return w.read(p.ours.Read, p.theirs.Read, len(b))
	case op == 5:
		return w.read(
			func(b []byte) (int, error) { return p.ours.ReadAt(b, off) },
			func(b []byte) (int, error) { return p.theirs.ReadAt(b, off) }, len(b))
	case op == 6 && !p.append && len(b) > 0:
		n, err := p.ours.WriteAt(b, off)
		gn, gerr := p.theirs.WriteAt(b, off)
		return same(int64(n), int64(gn), err, gerr)
	}
	n, err := p.ours.Write(b)
	gn, gerr := p.theirs.Write(b)
	return same(int64(n), int64(gn), err, gerr)
}

func (w *twins) read(ours, theirs func([]byte) (int, error), length int) error {
	b, gb := bytes.Repeat([]byte{'!'}, length), make([]byte, length)
	n, err := ours(b)
	gn, gerr := theirs(gb)
	if !bytes.Equal(b[:n], gb[:gn]) {
		return fmt.Errorf("the Disk reads %q, the operating system %q", b[:n], gb[:gn])
	}
	return same(int64(n), int64(gn), err, gerr)
}

func same(n, gn int64, err, gerr error) error {
	if err := agree(err, gerr); err != nil {
		return err
	}
	if n != gn {
		return fmt.Errorf("the Disk says %d, the operating system %d", n, gn)
	}
	return nil
}
