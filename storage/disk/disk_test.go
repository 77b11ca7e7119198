package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var errInjected = errors.New("injected")

func open(t *testing.T) *Disk {
	t.Helper()
	d, err := Open(files.OS, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	ok      = testkit.Must
	wantErr = testkit.WantErr
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// put writes a file through d.
func put(t *testing.T, d *Disk, name, content string) {
	t.Helper()
	f := must[File](t)(d.Create(name))
	must[int](t)(f.Write([]byte(content)))
	ok(t, f.Sync())
	ok(t, f.Close())
}

func appendTo(t *testing.T, d *Disk, name, content string) {
	t.Helper()
	f := must[File](t)(d.OpenForAppend(name))
	must[int](t)(f.Write([]byte(content)))
	ok(t, f.Close())
}

// get reads a file through d.
func get(t *testing.T, d *Disk, name string) string {
	t.Helper()
	f := must[File](t)(d.OpenForRead(name))
	b := must[[]byte](t)(io.ReadAll(f))
	info := must[os.FileInfo](t)(f.Stat())
	if info.Size() != int64(len(b)) {
		t.Fatalf("%s: Stat says %d bytes, read %d", name, info.Size(), len(b))
	}
	if info.Name() != filepath.Base(name) {
		t.Fatalf("%s: Stat says name %q", name, info.Name())
	}
	ok(t, f.Close())
	return string(b)
}

func wantFile(t *testing.T, d *Disk, name, want string) {
	t.Helper()
	if got := get(t, d, name); got != want {
		t.Fatalf("%s: got %q, want %q", name, got, want)
	}
	info := must[os.FileInfo](t)(d.Stat(name))
	if info.Size() != int64(len(want)) || info.IsDir() || info.Name() != filepath.Base(name) {
		t.Fatalf("%s: Stat says %q, %d bytes, directory %t", name, info.Name(), info.Size(), info.IsDir())
	}
}

func wantList(t *testing.T, d *Disk, name string, want ...string) {
	t.Helper()
	got := must[[]string](t)(d.List(name))
	if !slices.Equal(got, want) {
		t.Fatalf("%s: lists %q, want %q", name, got, want)
	}
}

// image is the contents of a directory: names (with a slash for directories) and data.
type image map[string]string

func (i image) equal(t *testing.T, want image) {
	t.Helper()
	for name, content := range want {
		if got, ok := i[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if got != content {
			t.Errorf("%s holds %.60q, want %.60q", name, got, content)
		}
	}
	for name := range i {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// realImage reads a directory without a Disk.
func realImage(dir string) (image, error) {
	i := make(image)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			i[rel+"/"] = ""
			return nil
		}
		b, err := os.ReadFile(path)
		i[rel] = string(b)
		return err
	})
	return i, err
}

// diskImage reads a directory through its Disk.
func diskImage(d *Disk) (image, error) {
	i := make(image)
	return i, walk(d, d.Dir(), i)
}

func walk(d *Disk, dir string, i image) error {
	names, err := d.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		rel := strings.TrimPrefix(path, d.Dir()+"/")
		info, err := d.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			i[rel+"/"] = ""
			if err := walk(d, path, i); err != nil {
				return err
			}
			continue
		}
		if i[rel], err = content(d, path, info.Size()); err != nil {
			return err
		}
	}
	return nil
}

func content(d *Disk, path string, size int64) (string, error) {
	f, err := d.OpenForRead(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	if err == nil && int64(len(b)) != size {
		err = errors.New(path + ": Stat and content differ in length")
	}
	return string(b), errors.Join(err, f.Close())
}

// descriptors returns how many files the process has open, where the system can tell.
func descriptors(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	f := must[*os.File](t)(os.Open(os.DevNull)) // the runtime's poller has two, from the first open file on
	must[bool](t)(true, f.Close())
	return len(must[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")))
}

func TestOpenMakesDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := must[*Disk](t)(Open(files.OS, dir))
	if d.Dir() != dir {
		t.Fatalf("Dir is %s, want %s", d.Dir(), dir)
	}
	wantList(t, d, dir)
	must[*Disk](t)(Open(files.OS, dir))
	file := filepath.Join(dir, "file")
	put(t, d, file, "x")
	_, err := Open(files.OS, file)
	wantErr(t, err, syscall.ENOTDIR)
	_, err = Open(files.OS, filepath.Join(file, "below"))
	wantErr(t, err, syscall.ENOTDIR)
}

func TestOpenRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	d := must[*Disk](t)(Open(files.OS, "node"))
	if !filepath.IsAbs(d.Dir()) {
		t.Fatalf("Dir is %s", d.Dir())
	}
	put(t, d, filepath.Join(d.Dir(), "f"), "x")
	wantFile(t, d, filepath.Join(d.Dir(), "f"), "x")
}

func TestOutside(t *testing.T) {
	d := open(t)
	for _, d := range []*Disk{d, d.View()} {
		for _, name := range []string{"", "f", "/", "/etc", filepath.Dir(d.Dir()), d.Dir() + "x", d.Dir() + "/../x"} {
			_, err := d.Create(name)
			wantErr(t, err, ErrOutside)
			_, err = d.OpenForAppend(name)
			wantErr(t, err, ErrOutside)
			_, err = d.OpenForRead(name)
			wantErr(t, err, ErrOutside)
			_, err = d.OpenDir(name)
			wantErr(t, err, ErrOutside)
			_, err = d.ReuseForWrite(name, d.Dir()+"/f")
			wantErr(t, err, ErrOutside)
			_, err = d.List(name)
			wantErr(t, err, ErrOutside)
			_, err = d.Stat(name)
			wantErr(t, err, ErrOutside)
			_, err = d.Lock(name)
			wantErr(t, err, ErrOutside)
			wantErr(t, d.Link(d.Dir()+"/f", name), ErrOutside)
			wantErr(t, d.Link(name, d.Dir()+"/f"), ErrOutside)
			wantErr(t, d.Rename(d.Dir()+"/f", name), ErrOutside)
			wantErr(t, d.Rename(name, d.Dir()+"/f"), ErrOutside)
			wantErr(t, d.Remove(name), ErrOutside)
			wantErr(t, d.RemoveAll(name), ErrOutside)
			wantErr(t, d.MkdirAll(name), ErrOutside)
		}
		wantErr(t, d.RemoveAll(d.Dir()), os.ErrInvalid)
		wantErr(t, d.Rename(d.Dir(), d.Dir()+"/f"), os.ErrInvalid)
		ok(t, d.MkdirAll(d.Dir()))
		must[os.FileInfo](t)(d.Stat(d.Dir()))
	}
	if d.Err() != nil {
		t.Fatalf("a wrong name threw the switch: %v", d.Err())
	}
}

// The calls must refuse the same things before the switch, after it, and in a View. The random test
// compares the rest.
func TestAnswersThrowNothing(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	put(t, d, at("file"), "x")
	ok(t, d.MkdirAll(at("dir/sub")))
	frozen := must[*Disk](t)(Open(files.OS, d.Dir()))
	frozen.Fail(errInjected)
	for _, d := range []*Disk{d, d.View(), frozen} {
		before := d.Err()
		_, err := d.Create(at("none/f"))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.Create(at("dir"))
		wantErr(t, err, syscall.EISDIR)
		_, err = d.Create(at("file/f"))
		wantErr(t, err, syscall.ENOTDIR)
		_, err = d.OpenForAppend(at("none"))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.OpenForAppend(at("dir"))
		wantErr(t, err, syscall.EISDIR)
		_, err = d.OpenForRead(at("none"))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.OpenDir(at("file"))
		wantErr(t, err, syscall.ENOTDIR)
		_, err = d.ReuseForWrite(at("none"), at("new"))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.List(at("file"))
		wantErr(t, err, syscall.ENOTDIR)
		_, err = d.List(at("none"))
		wantErr(t, err, os.ErrNotExist)
		wantErr(t, d.Rename(at("none"), at("new")), os.ErrNotExist)
		wantErr(t, d.Rename(at("file"), at("dir")), os.ErrExist)
		wantErr(t, d.Rename(at("dir"), at("file")), syscall.ENOTDIR)
		wantErr(t, d.Rename(at("dir"), at("dir/sub/x")), syscall.EINVAL)
		wantErr(t, d.Link(at("file"), at("dir")), os.ErrExist)
		wantErr(t, d.Link(at("dir"), at("dir2")), os.ErrPermission)
		wantErr(t, d.Remove(at("none")), os.ErrNotExist)
		wantErr(t, d.Remove(at("dir")), syscall.ENOTEMPTY)
		wantErr(t, d.MkdirAll(at("file")), syscall.ENOTDIR)
		wantErr(t, d.MkdirAll(at("file/x")), syscall.ENOTDIR)
		ok(t, d.RemoveAll(at("none/none")))

		f := must[File](t)(d.OpenForRead(at("file")))
		_, err = f.Write([]byte("x"))
		wantErr(t, err, syscall.EBADF)
		_, err = f.WriteAt([]byte("x"), 0)
		wantErr(t, err, syscall.EBADF)
		_, err = f.Seek(-1, io.SeekStart)
		wantErr(t, err, syscall.EINVAL)
		_, err = f.Seek(0, 9)
		wantErr(t, err, syscall.EINVAL)
		_, err = f.ReadAt(make([]byte, 1), -1)
		if err == nil {
			t.Fatal("read at a negative offset")
		}
		ok(t, f.Close())
		wantErr(t, f.Close(), os.ErrClosed)
		wantErr(t, f.Sync(), os.ErrClosed)
		_, err = f.Read(nil)
		wantErr(t, err, os.ErrClosed)
		_, err = f.Write(nil)
		wantErr(t, err, os.ErrClosed)
		_, err = f.Stat()
		wantErr(t, err, os.ErrClosed)
		_, err = f.Seek(0, io.SeekStart)
		wantErr(t, err, os.ErrClosed)

		dir := must[File](t)(d.OpenForRead(at("dir")))
		_, err = dir.Read(make([]byte, 1))
		wantErr(t, err, syscall.EISDIR)
		_, err = dir.ReadAt(make([]byte, 1), 0)
		wantErr(t, err, syscall.EISDIR)
		_, err = dir.Seek(0, io.SeekStart)
		wantErr(t, err, syscall.EISDIR)
		_, err = dir.Write(make([]byte, 1))
		wantErr(t, err, syscall.EBADF)
		_, err = dir.WriteAt(make([]byte, 1), 0)
		wantErr(t, err, syscall.EBADF)
		ok(t, dir.Sync())
		ok(t, dir.Close())
		wantErr(t, dir.Sync(), os.ErrClosed)
		wantErr(t, dir.Close(), os.ErrClosed)
		_, err = dir.Stat()
		wantErr(t, err, os.ErrClosed)
		if d.Err() != before {
			t.Fatalf("a refusal threw the switch: %v", d.Err())
		}
	}
}

func TestCreateNeverSharesBytes(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		d := open(t)
		name := filepath.Join(d.Dir(), "f")
		put(t, d, name, "old")
		old := must[File](t)(d.OpenForAppend(name))
		if frozen {
			d.Fail(errInjected)
		}
		put(t, d, name, "new")
		must[int](t)(old.Write([]byte("er")))
		wantFile(t, d, name, "new")
		b := make([]byte, 5)
		must[int](t)(old.ReadAt(b, 0))
		if string(b) != "older" {
			t.Fatalf("the old file holds %q", b)
		}
		ok(t, old.Close())
	}
}

func TestSyncs(t *testing.T) {
	d := open(t)
	dir := must[File](t)(d.OpenDir(d.Dir()))
	f := must[File](t)(d.Create(filepath.Join(d.Dir(), "f")))
	ok(t, f.Sync())
	ok(t, f.Sync())
	ok(t, dir.Sync())
	check := func() {
		t.Helper()
		if d.Syncs() != 2 || d.AllSyncs() != 3 {
			t.Fatalf("counted %d and %d syncs, want 2 and 3", d.Syncs(), d.AllSyncs())
		}
	}
	check()
	d.SetFault(func(op Op, _ string) error { return errInjected })
	ok(t, f.Sync())
	ok(t, dir.Sync())
	check()
	ok(t, f.Close())
	ok(t, dir.Close())
}

func TestLock(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "LOCK")
	l := must[io.Closer](t)(d.Lock(name))
	_, err := d.Lock(name)
	wantErr(t, err, ErrLocked)
	other := must[*Disk](t)(Open(files.OS, d.Dir()))
	if runtime.GOOS == "linux" {
		_, err = other.Lock(name)
		wantErr(t, err, ErrLocked)
	}
	if d.Err() != nil || other.Err() != nil {
		t.Fatal("a lock that somebody has threw the switch")
	}
	must[io.Closer](t)(d.View().Lock(name))
	ok(t, l.Close())
	ok(t, l.Close())
	l = must[io.Closer](t)(other.Lock(name))
	ok(t, l.Close())

	d.Fail(errInjected)
	fresh := filepath.Join(d.Dir(), "fresh")
	l = must[io.Closer](t)(d.Lock(fresh))
	_, err = d.Lock(fresh)
	wantErr(t, err, ErrLocked)
	wantFile(t, d, fresh, "")
	ok(t, l.Close())
	l = must[io.Closer](t)(d.Lock(fresh))
	ok(t, l.Close())
}

func TestViewLeavesDirectoryAlone(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	ok(t, d.MkdirAll(at("dir/sub")))
	for _, name := range []string{"a", "dir/b", "dir/sub/c"} {
		put(t, d, at(name), "content of "+name)
	}
	before := must[image](t)(realImage(d.Dir()))
	fds := descriptors(t)
	v := d.View()
	must[image](t)(diskImage(v))
	exercise(t, v)
	appendTo(t, v, at("a"), " and more")
	wantFile(t, v, at("a"), "content of a and more")
	ok(t, v.Rename(at("dir"), at("moved")))
	wantFile(t, v, at("moved/sub/c"), "content of dir/sub/c")
	wantList(t, v, d.Dir(), "a", "moved", "script")
	must[image](t)(realImage(d.Dir())).equal(t, before)
	must[image](t)(diskImage(d)).equal(t, before)
	if v.Err() != nil {
		t.Fatalf("a view failed: %v", v.Err())
	}
	select {
	case <-v.Failed():
		t.Fatal("a view says it failed")
	default:
	}
	v.Fail(errInjected)
	<-v.Failed()
	wantErr(t, v.Err(), errInjected)
	if d.Err() != nil {
		t.Fatal("a view's failure reached its disk")
	}
	if n := descriptors(t); n != fds {
		t.Fatalf("%d descriptors, %d before", n, fds)
	}
}

func TestOpNames(t *testing.T) {
	seen := make(map[string]bool)
	for op := OpCreate; op <= OpTruncate; op++ {
		if s := op.String(); s == "unknown" || seen[s] {
			t.Errorf("operation %d is called %q", op, s)
		}
		seen[op.String()] = true
	}
	if s := Op(0).String(); s != "unknown" {
		t.Errorf("operation 0 is called %q", s)
	}
}

// What nobody needs and cannot be removed does not throw the switch, and the rest of it goes. The same
// removal as a part of something does.
func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	d := must[*Disk](t)(Open(sticky{files.OS}, dir))
	at := func(name string) string { return filepath.Join(dir, name) }
	fill := func() {
		ok(t, d.MkdirAll(at("old/sub")))
		for _, name := range []string{"old/a", "old/sub/sticky", "old/z"} {
			put(t, d, at(name), "x")
		}
	}
	fill()
	wantErr(t, d.Discard(at("old")), syscall.EPERM)
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	if got := must[[]string](t)(d.List(at("old"))); !slices.Equal(got, []string{"sub"}) {
		t.Errorf("left: %v", got)
	}
	put(t, d, at("new"), "x")
	ok(t, d.Discard(at("none")))
	ok(t, d.Discard(at("new")))
	ok(t, d.RemoveAll(at("old"))) // in memory
	if !errors.Is(d.Err(), syscall.EPERM) {
		t.Errorf("after RemoveAll: %v", d.Err())
	}
}

// A sticky system cannot remove files of that name.
type sticky struct{ files.System }

func (s sticky) Remove(name string) error {
	if filepath.Base(name) == "sticky" {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.EPERM}
	}
	return s.System.Remove(name)
}
