package disk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
)

// exercise is a workload like that of a log and an image. It makes every mutating call, keeps
// handles open over many calls, swaps a current file by rename, and builds a directory beside
// another and renames it. It checks what it reads, so it fails if it notices that the switch was
// thrown.
func exercise(t *testing.T, d *Disk) {
	t.Helper()
	root := filepath.Join(d.Dir(), "script")
	at := func(name string) string { return filepath.Join(root, name) }
	ok(t, d.MkdirAll(at("db")))
	dir := must[File](t)(d.OpenForRead(at("db")))
	ok(t, dir.Sync())
	lock := must[io.Closer](t)(d.Lock(at("db/LOCK")))

	log := must[File](t)(d.Create(at("db/1.log")))
	must[int](t)(log.Write([]byte("one ")))
	must[int](t)(log.Write([]byte("two ")))
	ok(t, log.Sync())
	reader := must[File](t)(d.OpenForRead(at("db/1.log")))
	for i := range 3 {
		put(t, d, at("db/CURRENT.tmp"), fmt.Sprint("manifest ", i))
		ok(t, d.Rename(at("db/CURRENT.tmp"), at("db/CURRENT")))
		ok(t, dir.Sync())
		wantFile(t, d, at("db/CURRENT"), fmt.Sprint("manifest ", i))
	}
	must[int](t)(log.WriteAt([]byte("ONE"), 0))
	wantFile(t, d, at("db/1.log"), "ONE two ")
	b := make([]byte, 7)
	must[int](t)(io.ReadFull(reader, b))
	if string(b) != "ONE two" {
		t.Fatalf("the log reads %q", b)
	}

	ok(t, d.MkdirAll(at("snap.tmp/a")))
	put(t, d, at("snap.tmp/a/data"), "snapshot")
	appendTo(t, d, at("snap.tmp/a/data"), " chunk")
	ok(t, d.Rename(at("snap.tmp"), at("snap")))
	wantList(t, d, root, "db", "snap")
	wantFile(t, d, at("snap/a/data"), "snapshot chunk")
	ok(t, d.Link(at("snap/a/data"), at("db/ingested")))
	wantFile(t, d, at("db/ingested"), "snapshot chunk")
	ok(t, d.RemoveAll(at("snap")))
	_, err := d.Stat(at("snap/a/data"))
	wantErr(t, err, os.ErrNotExist)

	recycled := must[File](t)(d.ReuseForWrite(at("db/1.log"), at("db/2.log")))
	must[int](t)(recycled.Write([]byte("three")))
	ok(t, recycled.Sync())
	ok(t, recycled.Close())
	must[int](t)(log.Write([]byte("four")))
	wantFile(t, d, at("db/2.log"), "threewo four")
	put(t, d, at("db/4.log"), "torn off")
	ok(t, d.Truncate(at("db/4.log"), 4))
	wantFile(t, d, at("db/4.log"), "torn")
	ok(t, d.Remove(at("db/4.log")))
	if info := must[os.FileInfo](t)(log.Stat()); info.Size() != 12 {
		t.Fatalf("the log has %d bytes", info.Size())
	}
	ok(t, d.Remove(at("db/CURRENT")))
	ok(t, d.Remove(at("db/ingested")))
	wantList(t, d, at("db"), "2.log", "LOCK")
	if pos := must[int64](t)(reader.Seek(0, io.SeekCurrent)); pos != 7 {
		t.Fatalf("the reader is at %d", pos)
	}
	if rest := must[[]byte](t)(io.ReadAll(reader)); string(rest) != " four" {
		t.Fatalf("the reader goes on with %q", rest)
	}
	ok(t, reader.Close())
	ok(t, log.Close())
	ok(t, lock.Close())
	ok(t, dir.Close())
}

// C1.4: TestFaultAtEveryCall makes each mutating call of the workload fail, one at a time. The
// workload must not notice. The directory must stay as it was at that instant.
func TestFaultAtEveryCall(t *testing.T) {
	fds := descriptors(t)
	total := 0
	for n := 1; ; n++ {
		d := open(t)
		d.Logs(func(name string) bool { return strings.HasSuffix(name, ".log") })
		var calls int
		var atSwitch image
		d.SetFault(func(op Op, name string) error {
			if calls++; calls < n {
				return nil
			}
			if calls > n {
				t.Errorf("%v of %s reached the disk after the switch", op, name)
			}
			atSwitch = must[image](t)(realImage(d.Dir()))
			return errInjected
		})
		exercise(t, d)
		if calls < n {
			total = calls
			break
		}
		wantErr(t, d.Err(), errInjected)
		<-d.Failed()
		must[image](t)(realImage(d.Dir())).equal(t, atSwitch)
	}
	t.Logf("%d calls", total)
	if total < 30 {
		t.Fatalf("the workload has only %d calls that can fail", total)
	}
	if n := descriptors(t); n != fds {
		t.Fatalf("%d descriptors, %d before", n, fds)
	}
}

// If a write fails halfway, the part on disk stays there, and readers see the whole.
func TestPartialWrite(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "log")
	f := must[File](t)(d.Create(name))
	must[int](t)(f.Write([]byte("whole ")))
	d.SetFault(func(op Op, _ string) error {
		w := must[*os.File](t)(os.OpenFile(name, os.O_RDWR, 0))
		must[int](t)(w.WriteAt([]byte("pa"), 6))
		ok(t, w.Close())
		return syscall.ENOSPC
	})
	if n := must[int](t)(f.Write([]byte("partial"))); n != 7 {
		t.Fatalf("wrote %d bytes", n)
	}
	wantErr(t, d.Err(), syscall.ENOSPC)
	must[int](t)(f.Write([]byte(" more")))
	wantFile(t, d, name, "whole partial more")
	ok(t, f.Close())
	must[image](t)(realImage(d.Dir())).equal(t, image{"log": "whole pa"})
	wantFile(t, must[*Disk](t)(Open(files.OS, d.Dir())), name, "whole pa")
}

// C1.1: The kernel itself refuses a write.
func TestRealFailure(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full")
	}
	d := open(t)
	name := filepath.Join(d.Dir(), "full")
	ok(t, os.Symlink("/dev/full", name))
	f := must[File](t)(d.OpenForAppend(name))
	must[int](t)(f.Write([]byte("hello")))
	wantErr(t, d.Err(), syscall.ENOSPC)
	b := make([]byte, 5)
	must[int](t)(f.ReadAt(b, 0))
	if string(b) != "hello" {
		t.Fatalf("read %q", b)
	}
	ok(t, f.Sync())
	ok(t, f.Close())
}

// C1.1: If a call failed but took effect all the same, it is not repeated in memory, where it would
// be refused.
func TestFailureThatLanded(t *testing.T) {
	for op, want := range map[Op][]string{OpRename: {"b"}, OpRemove: {}, OpLink: {"a", "b"}} {
		d := open(t)
		put(t, d, filepath.Join(d.Dir(), "a"), "x")
		c := changing(d, op)
		real := c.real
		c.real = func() error { ok(t, real()); return syscall.EIO }
		ok(t, d.do(c))
		wantErr(t, d.Err(), syscall.EIO)
		wantList(t, d, d.Dir(), want...)
	}
}

// A directory that was renamed or removed by a call that failed is not missed.
func TestFailureThatLanded_Directory(t *testing.T) {
	for op, want := range map[Op][]string{OpRename: {"b"}, OpRemove: {}} {
		d := open(t)
		ok(t, d.MkdirAll(filepath.Join(d.Dir(), "a")))
		c := changing(d, op)
		real := c.real
		c.real = func() error {
			ok(t, real())
			d.made(filepath.Join(d.Dir(), "a")) // as a call does that failed
			return syscall.EIO
		}
		ok(t, d.do(c))
		wantList(t, d, d.Dir(), want...)
		_, err := d.Stat(filepath.Join(d.Dir(), "a"))
		wantErr(t, err, os.ErrNotExist)
	}
}

// If a call failed and memory refuses its repetition, the caller learns of the refusal. Reporting
// success would say that a file has a name which it does not have.
func TestFailureThatDidNotLand(t *testing.T) {
	for _, c := range []struct {
		name  string
		op    Op
		files []string
		want  error
	}{
		{"link to a name that another file has", OpLink, []string{"a", "b"}, os.ErrExist},
		{"link of a missing file", OpLink, nil, os.ErrNotExist},
		{"rename of a missing file", OpRename, []string{"b"}, os.ErrNotExist},
		{"rename to a directory's name", OpRename, []string{"a", "b/c"}, os.ErrExist},
		{"remove of a directory with a file", OpRemove, []string{"a/c"}, syscall.ENOTEMPTY},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			for _, name := range c.files {
				ok(t, d.MkdirAll(filepath.Dir(filepath.Join(d.Dir(), name))))
				put(t, d, filepath.Join(d.Dir(), name), name)
			}
			failing := changing(d, c.op)
			failing.real = func() error { return syscall.EIO }
			wantErr(t, d.do(failing), c.want)
			wantErr(t, d.Err(), syscall.EIO)
			for _, name := range c.files {
				wantFile(t, d, filepath.Join(d.Dir(), name), name)
			}
		})
	}
}

// changing returns a change of the file a, whose other name is b.
func changing(d *Disk, op Op) change {
	a, b := filepath.Join(d.Dir(), "a"), filepath.Join(d.Dir(), "b")
	switch op {
	case OpRename:
		return d.renaming(a, b, "a", "b")
	case OpRemove:
		return d.removing(a, "a")
	}
	return d.linking(a, b, "a", "b")
}

// A call of several steps takes no further step after the switch was thrown.
func TestLongCallsStopAtSwitch(t *testing.T) {
	for _, op := range []Op{OpRemoveAll, OpMkdir, OpCreate} {
		d := open(t)
		at := func(name string) string { return filepath.Join(d.Dir(), name) }
		ok(t, d.MkdirAll(at("dir/sub")))
		put(t, d, at("dir/f"), "old")
		before := must[image](t)(realImage(d.Dir()))
		d.SetFault(func(Op, string) error {
			d.Fail(errInjected) // after this call has checked the switch
			return nil
		})
		switch op {
		case OpRemoveAll:
			ok(t, d.RemoveAll(at("dir")))
			wantList(t, d, d.Dir())
		case OpMkdir:
			ok(t, d.MkdirAll(at("new/sub")))
			wantList(t, d, at("new"), "sub")
		case OpCreate:
			put(t, d, at("dir/f"), "new")
			wantFile(t, d, at("dir/f"), "new")
		}
		must[image](t)(realImage(d.Dir())).equal(t, before)
	}
}

// If the disk knows nothing about a name (here, a link to itself), a mutating call must still
// succeed. A read of the name is an error.
func TestUnreadableNames(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	for _, name := range []string{"dir", "log", "old", "gone", "linked", "moved"} {
		ok(t, os.Symlink(name, at(name)))
	}
	before := must[[]string](t)(d.List(d.Dir()))
	d.Fail(errInjected)
	put(t, d, at("dir/f"), "x")
	wantFile(t, d, at("dir/f"), "x")
	ok(t, d.MkdirAll(at("dir/sub")))
	f := must[File](t)(d.OpenForAppend(at("log")))
	must[int](t)(f.Write([]byte("x")))
	ok(t, f.Close())
	ok(t, d.Rename(at("old"), at("new")))
	ok(t, d.Link(at("log"), at("linked")))
	ok(t, d.Rename(at("dir"), at("moved")))
	wantFile(t, d, at("moved/f"), "x")
	ok(t, d.Remove(at("gone")))
	_, err := d.Stat(at("gone"))
	wantErr(t, err, os.ErrNotExist)
	_, err = d.OpenForRead(at("log"))
	wantErr(t, err, syscall.ELOOP)
	_, err = d.OpenForRead(at("new"))
	wantErr(t, err, syscall.ELOOP)
	wantList(t, must[*Disk](t)(Open(files.OS, d.Dir())), d.Dir(), before...)
}

func TestReadFailureThrowsNothing(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "loop")
	ok(t, os.Symlink("loop", name))
	_, err := d.OpenForRead(name)
	wantErr(t, err, syscall.ELOOP)
	_, err = d.Stat(name)
	wantErr(t, err, syscall.ELOOP)
	if d.Err() != nil {
		t.Fatalf("a failed read threw the switch: %v", d.Err())
	}
}

func TestFailTellsInOrder(t *testing.T) {
	d := open(t)
	closed := func() bool {
		select {
		case <-d.Failed():
			return true
		default:
			return false
		}
	}
	var told []string
	for _, name := range []string{"first", "second"} {
		d.OnFail(func() {
			if closed() {
				t.Error("Failed was closed before everybody was told")
			}
			if d.Err() == nil {
				t.Error("told without a cause")
			}
			told = append(told, name)
			d.Fail(io.EOF) // a second cause, from inside, changes nothing and does not block
		})
	}
	d.SetFault(func(Op, string) error { return errInjected })
	f := must[File](t)(d.Create(filepath.Join(d.Dir(), "f")))
	if got := strings.Join(told, " "); got != "first second" {
		t.Fatalf("told %q before the failing call returned", got)
	}
	if !closed() {
		t.Fatal("the failing call returned before Failed was closed")
	}
	d.Fail(io.ErrUnexpectedEOF)
	wantErr(t, d.Err(), errInjected)
	called := false
	d.OnFail(func() { called = true })
	if !called {
		t.Fatal("not told at once though the switch was thrown")
	}
	ok(t, f.Close())

	d = open(t)
	d.Fail(nil)
	if d.Err() == nil {
		t.Fatal("failed without a cause")
	}
}

// No call with effect in memory only may return before all OnFail functions have returned.
func TestNothingReturnsBeforeTold(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	f := must[File](t)(d.Create(at("f")))
	calls := map[string]func() error{
		"write": func() error { _, err := f.Write([]byte("x")); return err },
		"sync":  f.Sync,
		"mkdir": func() error { return d.MkdirAll(at("dir")) },
	}
	var guarded atomic.Bool
	results := make(chan error, len(calls))
	d.OnFail(func() {
		var began sync.WaitGroup
		for name, call := range calls {
			began.Add(1)
			go func() {
				began.Done()
				err := call()
				if !guarded.Load() {
					err = fmt.Errorf("%s returned before OnFail did", name)
				}
				results <- err
			}()
		}
		began.Wait()
		for range 1000 {
			runtime.Gosched()
		}
		guarded.Store(true)
	})
	d.Fail(errInjected)
	for range calls {
		ok(t, <-results)
	}
	ok(t, f.Close())
}

// C1.4: A call that hangs in the kernel delays no other file before the switch, and nothing after
// it.
func TestHungCallDelaysNobody(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	put(t, d, at("old"), "x")
	hung := must[File](t)(d.Create(at("hung")))
	must[int](t)(hung.Write([]byte("before ")))
	entered, release := make(chan Op), make(chan struct{})
	d.SetFault(func(op Op, name string) error {
		if name != at("hung") && name != at("renamed") {
			return nil
		}
		entered <- op
		<-release
		return nil
	})
	results := make(chan error)
	go func() { results <- hung.Sync() }()
	<-entered
	go func() { _, err := hung.Write([]byte("late")); results <- err }()
	<-entered
	go func() { results <- d.Rename(at("old"), at("renamed")) }()
	<-entered
	// By now the hung calls hold all locks that they take.
	exercise(t, d)
	ok(t, d.RemoveAll(at("script")))
	d.Fail(errInjected)
	exercise(t, d)
	must[int](t)(hung.Write([]byte("after")))
	b := []byte("not what it reads")[:16]
	must[int](t)(hung.ReadAt(b, 0))
	if string(b) != "before \x00\x00\x00\x00after" {
		t.Fatalf("read %q", b)
	}
	wantList(t, d, d.Dir(), "hung", "old", "script")
	close(release)
	for range 3 {
		ok(t, <-results)
	}
	wantFile(t, d, at("hung"), "before lateafter")
	wantList(t, d, d.Dir(), "hung", "renamed", "script")
	wantFile(t, d, at("renamed"), "x")
	ok(t, hung.Close())
}

// C10.1, C10.2: On any file system there are zeros behind a log's end on disk, and readers do not
// see them.
func TestLogs(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	d.Logs(func(name string) bool { return strings.HasSuffix(name, ".log") })
	onDisk := func(name string, want string, ahead int) {
		t.Helper()
		if got := string(must[[]byte](t)(os.ReadFile(at(name)))); got != want+strings.Repeat("\x00", ahead) {
			t.Fatalf("%s is %d bytes on disk and ends in %q, want %q and %d zeros", name, len(got), strings.TrimRight(got, "\x00"), want, ahead)
		}
	}
	seen := func(name string, f File, want string) {
		t.Helper()
		wantFile(t, d, at(name), want)
		if info := must[os.FileInfo](t)(d.Stat(at(name))); info.Size() != int64(len(want)) {
			t.Errorf("%s has %d bytes, want %d", name, info.Size(), len(want))
		}
		if info := must[os.FileInfo](t)(f.Stat()); info.Size() != int64(len(want)) {
			t.Errorf("the open %s has %d bytes, want %d", name, info.Size(), len(want))
		}
		if n, err := f.ReadAt(make([]byte, 1), int64(len(want))); n != 0 || err != io.EOF {
			t.Errorf("at its end %s has %d bytes and %v", name, n, err)
		}
		if end := must[int64](t)(f.Seek(0, io.SeekEnd)); end != int64(len(want)) {
			t.Errorf("%s ends at %d, want %d", name, end, len(want))
		}
	}

	put(t, d, at("x.sst"), "x")
	onDisk("x.sst", "x", 0)

	log := must[File](t)(d.Create(at("1.log")))
	must[int](t)(log.Write([]byte("one ")))
	onDisk("1.log", "one ", aheadStep)
	seen("1.log", log, "one ")
	must[int](t)(log.Write([]byte("two ")))
	onDisk("1.log", "one two ", aheadStep-4)
	appending := must[File](t)(d.OpenForAppend(at("1.log"))) // while another handle is open
	must[int](t)(appending.Write([]byte("three")))
	seen("1.log", log, "one two three")
	seen("1.log", appending, "one two three")
	all := "one two three"
	for range aheadStep/(bulky-1) + 1 { // past the end of the present zeros
		part := strings.Repeat("x", bulky-1)
		must[int](t)(log.Write([]byte(part)))
		all += part
	}
	ok(t, log.Sync())
	seen("1.log", log, all)
	if info := must[os.FileInfo](t)(os.Stat(at("1.log"))); info.Size() <= int64(len(all)) {
		t.Error("no new zeros behind the end")
	}
	bulk := strings.Repeat("y", aheadStep)
	must[int](t)(log.Write([]byte(bulk)))
	all += bulk
	onDisk("1.log", all, 0) // such writes need no zeros
	must[int](t)(log.Write([]byte("z")))
	onDisk("1.log", all+"z", aheadStep)
	ok(t, log.Close())
	seen("1.log", appending, all+"z")
	d.Fail(errInjected)
	seen("1.log", appending, all+"z")
	must[int](t)(appending.Write([]byte("in memory")))
	wantFile(t, d, at("1.log"), all+"zin memory")
	onDisk("1.log", all+"z", aheadStep)
	ok(t, appending.Close())
}

// The zeros of one writer never overwrite the bytes of another.
func TestLogs_SeveralWriters(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "1.log")
	d.Logs(func(string) bool { return true })
	put(t, d, name, "")
	const writers, records, size = 4, 200, 8 << 10
	var wg sync.WaitGroup
	files := make([]File, writers)
	for i := range files {
		files[i] = must[File](t)(d.OpenForAppend(name))
	}
	for _, f := range files {
		wg.Go(func() {
			for range records {
				must[int](t)(f.Write(bytes.Repeat([]byte{'x'}, size)))
			}
			ok(t, f.Close())
		})
	}
	wg.Wait()
	got := strings.TrimRight(get(t, d, name), "\x00")
	if len(got) != writers*records*size || strings.Contains(got, "\x00") {
		t.Errorf("of %d bytes %d are there, with %d zeros among them", writers*records*size, len(got), strings.Count(got, "\x00"))
	}
}

// A reader of a log never sees the zeros that a write is about to replace. It may read beyond the
// record it looks for, as tan does.
func TestLogs_ReadWhileWriting(t *testing.T) {
	for _, opening := range []func(*Disk, string) (File, error){(*Disk).Create, (*Disk).OpenForAppend} {
		d := open(t)
		d.Logs(func(string) bool { return true })
		name := filepath.Join(d.Dir(), "1.log")
		put(t, d, name, "")
		log := must[File](t)(opening(d, name))
		must[int](t)(log.Write([]byte("one ")))
		reader := must[File](t)(d.OpenForRead(name))
		d.SetFault(func(Op, string) error {
			b := make([]byte, 8)
			if n, err := reader.ReadAt(b, 0); string(b[:n]) != "one " || err != io.EOF {
				t.Errorf("before a write has landed the log reads %q, %v", b[:n], err)
			}
			if info := must[os.FileInfo](t)(reader.Stat()); info.Size() != 4 {
				t.Errorf("before a write has landed the log has %d bytes", info.Size())
			}
			return nil
		})
		must[int](t)(log.Write([]byte("two ")))
		d.SetFault(nil)
		wantFile(t, d, name, "one two ")
		ok(t, log.Close())
		ok(t, reader.Close())
	}
}

// A log that is truncated in memory at its end loses its zeros. They do not show either when all
// handles were closed and the log is opened again.
func TestLogs_TruncatedInMemory(t *testing.T) {
	d := open(t)
	d.Logs(func(string) bool { return true })
	name := filepath.Join(d.Dir(), "1.log")
	log := must[File](t)(d.Create(name))
	must[int](t)(log.Write([]byte("one ")))
	d.Fail(errInjected)
	ok(t, d.Truncate(name, 4))
	ok(t, log.Close())
	wantFile(t, d, name, "one ")
	if info := must[os.FileInfo](t)(d.Stat(name)); info.Size() != 4 {
		t.Errorf("it has %d bytes", info.Size())
	}
	appendTo(t, d, name, "two")
	wantFile(t, d, name, "one two")
}

// If the switch is thrown while a call waits for another writer of the log, the call does not
// change the file.
func TestLogs_SwitchWhileWaiting(t *testing.T) {
	for op, call := range map[Op]func(*Disk, File, string) error{
		OpTruncate: func(d *Disk, _ File, name string) error { return d.Truncate(name, 4) },
		OpWrite:    func(_ *Disk, log File, _ string) error { _, err := log.WriteAt([]byte("ONE "), 0); return err },
	} {
		d := open(t)
		d.Logs(func(string) bool { return true })
		name := filepath.Join(d.Dir(), "1.log")
		log := must[File](t)(d.Create(name))
		must[int](t)(log.Write([]byte("one two ")))
		before := must[image](t)(realImage(d.Dir()))
		entered := make(chan struct{})
		d.SetFault(func(o Op, _ string) error {
			if o == op {
				close(entered)
			}
			return nil
		})
		n := log.(*file).node
		n.writer.Lock() // as a write that hangs does
		done := make(chan error)
		go func() { done <- call(d, log, name) }()
		<-entered
		d.Fail(errInjected)
		n.writer.Unlock()
		ok(t, <-done)
		must[image](t)(realImage(d.Dir())).equal(t, before)
		wantFile(t, d, name, map[Op]string{OpTruncate: "one ", OpWrite: "ONE two "}[op])
		ok(t, n.check())
		ok(t, log.Close())
	}
}

// A Sync that runs into the file's Close is refused, but does not throw the switch.
func TestSyncDuringClose(t *testing.T) {
	d := open(t)
	f := must[File](t)(d.Create(filepath.Join(d.Dir(), "f")))
	d.SetFault(func(Op, string) error { return f.Close() })
	wantErr(t, f.Sync(), os.ErrClosed)
	if d.Err() != nil {
		t.Errorf("the switch was thrown: %v", d.Err())
	}
}
