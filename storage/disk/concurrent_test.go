package disk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
)

// Several workloads run at once. Each uses files of its own and one that all share. Then the switch
// is thrown. No workload may notice. The real directory must be in a state that existed at some
// moment: each worker's own log is a prefix of what the worker wrote.
func TestConcurrentUse(t *testing.T) {
	fds := descriptors(t)
	for round := range 12 {
		d := open(t)
		d.Logs(func(name string) bool { return filepath.Base(name) == "log" || filepath.Base(name) == "shared" })
		var calls atomic.Int64
		d.SetFault(func(Op, string) error {
			if calls.Add(1) == int64(40*round+1) {
				return errInjected
			}
			return nil
		})
		const workers = 6
		shared := must[File](t)(d.Create(filepath.Join(d.Dir(), "shared")))
		var wg sync.WaitGroup
		errs := make(chan error, workers)
		for i := range workers {
			wg.Go(func() { errs <- workload(d, i, shared) })
		}
		wg.Wait()
		for range workers {
			ok(t, <-errs)
		}
		ok(t, shared.Close())
		wantErr(t, d.Err(), errInjected)

		whole := get(t, d, filepath.Join(d.Dir(), "shared"))
		real := must[image](t)(realImage(d.Dir()))
		for i := range workers {
			if want := string(slot(i, workerSteps-1)); whole[i*slotSize:][:slotSize] != want {
				t.Fatalf("slot %d holds %q, want %q", i, whole[i*slotSize:][:slotSize], want)
			}
			log := strings.TrimRight(get(t, d, filepath.Join(d.Dir(), fmt.Sprint("w", i), "log")), "\x00") // it is closed
			if want := workerLog(i); log != want {
				t.Fatalf("worker %d's log holds %q", i, log)
			}
			if got := real[fmt.Sprintf("w%d/log", i)]; !strings.HasPrefix(log, strings.TrimRight(got, "\x00")) {
				t.Fatalf("worker %d's log is on disk as %q", i, got)
			}
		}
	}
	if n := descriptors(t); n != fds {
		t.Fatalf("%d descriptors, %d before", n, fds)
	}
}

const (
	workerSteps = 12
	slotSize    = 8
)

func slot(worker, step int) []byte { return fmt.Appendf(nil, "%3d:%4d", worker, step) }

func workerLog(worker int) (log string) {
	for step := range workerSteps {
		log += string(slot(worker, step))
	}
	return log
}

// workload writes a log, rewrites its slot of the shared file, and swaps a file by rename. It
// checks all of it.
func workload(d *Disk, worker int, shared File) error {
	dir := filepath.Join(d.Dir(), fmt.Sprint("w", worker))
	if err := d.MkdirAll(dir); err != nil {
		return err
	}
	log, err := d.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	for step := range workerSteps {
		if err := workStep(d, dir, log, shared, worker, step); err != nil {
			return err
		}
	}
	return log.Close()
}

func workStep(d *Disk, dir string, log, shared File, worker, step int) error {
	p := slot(worker, step)
	if _, err := log.Write(p); err != nil {
		return err
	}
	if err := log.Sync(); err != nil {
		return err
	}
	if _, err := shared.WriteAt(p, int64(worker*slotSize)); err != nil {
		return err
	}
	b := make([]byte, slotSize)
	if n, err := shared.ReadAt(b, int64(worker*slotSize)); n != slotSize || !bytes.Equal(b, p) {
		return fmt.Errorf("worker %d, step %d: slot reads %q (%v)", worker, step, b, err)
	}
	tmp, cur := filepath.Join(dir, "tmp"), filepath.Join(dir, "cur")
	f, err := d.Create(tmp)
	if err != nil {
		return err
	}
	if _, err := f.Write(p); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := d.Rename(tmp, cur); err != nil {
		return err
	}
	if f, err = d.OpenForRead(cur); err != nil {
		return err
	}
	if b, err = io.ReadAll(f); err != nil || !bytes.Equal(b, p) {
		return fmt.Errorf("worker %d, step %d: file reads %q (%v)", worker, step, b, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	names, err := d.List(dir)
	if err != nil || fmt.Sprint(names) != "[cur log]" {
		return fmt.Errorf("worker %d, step %d: lists %q (%v)", worker, step, names, err)
	}
	return nil
}

// Handles of one file see each other's writes. They were opened before and after the switch, under
// several names.
func TestHandlesShareAFile(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	put(t, d, at("a"), "0123456789")
	ok(t, d.Link(at("a"), at("b")))
	before := must[File](t)(d.OpenForAppend(at("a")))
	reader := must[File](t)(d.OpenForRead(at("b")))
	d.Fail(errInjected)
	must[int](t)(before.WriteAt([]byte("AB"), 0))
	wantFile(t, d, at("b"), "AB23456789")
	ok(t, d.Rename(at("b"), at("c")))
	after := must[File](t)(d.OpenForAppend(at("c")))
	must[int](t)(after.Write([]byte("!")))
	must[int](t)(before.Write([]byte("?")))
	for _, f := range []File{before, reader, after} {
		b := make([]byte, 13)
		n, err := f.ReadAt(b, 0)
		if err != io.EOF || string(b[:n]) != "AB23456789!?" {
			t.Fatalf("reads %q (%v)", b[:n], err)
		}
	}
	for _, f := range []File{before, reader, after} {
		ok(t, f.Close())
	}
	wantFile(t, d, at("a"), "AB23456789!?")
	wantFile(t, d, at("c"), "AB23456789!?")
	must[image](t)(realImage(d.Dir())).equal(t, image{"a": "0123456789", "b": "0123456789"})
}

// Renaming one name of a file onto another does nothing, as in the operating system.
func TestRenameOverSameFile(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	put(t, d, at("a"), "x")
	ok(t, d.Link(at("a"), at("b")))
	v := d.View()
	ok(t, v.Link(at("a"), at("c")))
	put(t, v, at("m"), "y")
	ok(t, v.Link(at("m"), at("n")))
	for _, two := range [][2]string{{"a", "a"}, {"a", "b"}, {"c", "b"}, {"m", "m"}, {"m", "n"}} {
		ok(t, v.Rename(at(two[0]), at(two[1])))
	}
	wantList(t, v, d.Dir(), "a", "b", "c", "m", "n")
	ok(t, v.Rename(at("a"), at("m")))
	wantFile(t, v, at("m"), "x")
	wantFile(t, v, at("n"), "y")
}

// A file that was removed while it was open lives on only in its handles, before and after the
// switch.
func TestRemovedWhileOpen(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	var handles []File
	for _, name := range []string{"before", "after"} {
		put(t, d, at(name), name)
		handles = append(handles, must[File](t)(d.OpenForAppend(at(name))))
	}
	ok(t, d.Remove(at("before")))
	d.Fail(errInjected)
	ok(t, d.Remove(at("after")))
	wantList(t, d, d.Dir())
	for i, want := range []string{"before!", "after!"} {
		must[int](t)(handles[i].Write([]byte("!")))
		b := must[[]byte](t)(io.ReadAll(io.NewSectionReader(handles[i], 0, 99)))
		if string(b) != want {
			t.Fatalf("reads %q, want %q", b, want)
		}
		ok(t, handles[i].Close())
	}
	if _, err := d.Stat(at("after")); !os.IsNotExist(err) {
		t.Fatalf("still there: %v", err)
	}
}

// When all handles are closed, a file without writes in memory is forgotten.
func TestNodesAreForgotten(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "f")
	put(t, d, name, "x")
	get(t, d, name)
	if n := len(d.nodes.list); n != 0 {
		t.Fatalf("%d nodes are kept before the switch", n)
	}
	d.Fail(errInjected)
	get(t, d, name)
	if n := len(d.nodes.list); n != 0 {
		t.Fatalf("%d nodes are kept after the switch", n)
	}
	appendTo(t, d, name, "y")
	wantFile(t, d, name, "xy")
	if n := len(d.nodes.list); n != 1 {
		t.Fatalf("%d nodes are kept, want the one that was written", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			d, err := Open(files.OS, b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			f, err := d.Create(filepath.Join(d.Dir(), "f"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			p := make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.WriteAt(p, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
