package storage

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// backTo waits until the process has at most the given numbers of goroutines and open files. It
// reports whether that happened.
func backTo(goroutines, descriptors int) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if runtime.NumGoroutine() <= goroutines && openFiles() <= descriptors {
			return true
		}
	}
	return false
}

func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

func TestCloseLeavesNoGoroutineAndNoOpenFile(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	stream := streamOf(t, newHistory(t), 5)
	must(t, n.open(t).Close())
	goroutines, descriptors := runtime.NumGoroutine(), openFiles()
	for round := range uint64(50) {
		i, err := Open(n.options())
		must(t, err)
		if round%5 == 0 { // never used
			must(t, i.Close())
			continue
		}
		must(t, h.commit(i, i.Applied()+1))
		s, err := i.Snapshot()
		must(t, err)
		if round%7 == 0 {
			must(t, i.Install(bytes.NewReader(stream), nil, nil))
		}
		if err := i.Install(bytes.NewReader(stream[:100]), nil, nil); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if round%2 == 0 {
			must(t, s.Close())
		}
		must(t, i.Close())
	}
	if !backTo(goroutines, descriptors) {
		buf := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, %d files; before %d, %d\n%s", runtime.NumGoroutine(), openFiles(), goroutines, descriptors, buf[:runtime.Stack(buf, true)])
	}
}

// The same for images that are refused, and for a disk that fails at some point.
func TestFailureLeavesNoGoroutineAndNoOpenFile(t *testing.T) {
	s := newSpecimen(t)
	run := func(at int) {
		root := scratch(t)
		os.RemoveAll(root)
		must(t, os.CopyFS(root, os.DirFS(restore(t, s.files))))
		n := nodeIn(t, root)
		c := &cutter{sys: n.sys, at: at}
		n.disk.SetFault(func(op disk.Op, name string) error { return c.cut(op, name) })
		i, err := Open(n.options())
		must(t, err)
		s.history.commit(i, i.Applied()+3)
		i.Sync()
		i.Close()
	}
	refused := func() {
		bad := nodeIn(t, restore(t, s.files))
		must(t, os.WriteFile(bad.root+"/"+s.tables()[0], []byte("x"), 0o644))
		if _, err := Open(bad.options()); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
	run(1)
	refused()
	goroutines, descriptors := runtime.NumGoroutine(), openFiles()
	for at := 1; at < 60; at += 3 {
		run(at)
		refused()
	}
	if !backTo(goroutines, descriptors) {
		buf := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, %d files; before %d, %d\n%s", runtime.NumGoroutine(), openFiles(), goroutines, descriptors, buf[:runtime.Stack(buf, true)])
	}
}
