package storage

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// waitDurable waits until a flush has covered index n.
func waitDurable(t *testing.T, i *Image, n uint64) {
	t.Helper()
	deadline := time.After(patience)
	for {
		i.mu.Lock()
		durable, progress := i.mu.flow.durable, i.mu.flow.progress
		i.mu.Unlock()
		if durable >= n {
			return
		}
		select {
		case <-progress:
		case <-deadline:
			t.Fatalf("index %d is durable, %d is not", durable, n)
		}
	}
}

// crashed opens what a crash at this moment would leave, in a copy of the directory.
func crashed(t *testing.T, n *node) *Image {
	t.Helper()
	return nodeIn(t, restore(t, instant(t, n.root))).open(t)
}

// C9: Without a Sync, all commits but the newest reach the disk.
func TestFlushBeginsByBytes(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	o := n.options()
	o.FlushBytes, o.FlushInterval = 16<<10, time.Hour
	i := openWith(t, o)
	for k := uint64(1); k <= 100; k++ {
		must(t, h.commit(i, k))
	}
	waitDurable(t, i, 80) // the last 16 KiB may wait
	if c := crashed(t, n); c.Applied() < 80 {
		t.Fatalf("index %d", c.Applied())
	} else {
		h.expect(t, c)
	}
}

// C9: Without a Sync, the newest commits reach the disk soon.
func TestFlushBeginsByTime(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	o := n.options()
	o.FlushInterval = time.Millisecond
	i := openWith(t, o)
	for k := uint64(1); k <= 3; k++ {
		must(t, h.commit(i, k))
		waitDurable(t, i, k)
	}
	c := crashed(t, n)
	if h.expect(t, c); c.Applied() != 3 {
		t.Fatalf("index %d", c.Applied())
	}
}

func TestSyncMakesEverythingCommittedDurable(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	for k := uint64(1); k <= 5; k++ {
		must(t, h.commit(i, k))
		must(t, i.Sync())
		c := crashed(t, n)
		if h.expect(t, c); c.Applied() != k {
			t.Fatalf("index %d after Sync at %d", c.Applied(), k)
		}
		must(t, c.Close())
	}
}

// C9: A Sync without a new commit does no fsync.
func TestSyncWithNothingNewDoesNoWork(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 5))
	must(t, i.Sync())
	before := n.disk.AllSyncs()
	for range 10 {
		must(t, i.Sync())
	}
	if after := n.disk.AllSyncs(); after != before {
		t.Fatalf("%d fsyncs", after-before)
	}
}

// The counts are pinned, so that a change in Pebble or in this package is noticed.
func TestFsyncsAreCounted(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	count := func(what string, most uint64, do func()) {
		before := n.disk.AllSyncs()
		do()
		if got := n.disk.AllSyncs() - before; got > most {
			t.Errorf("%s: %d fsyncs, at most %d were expected", what, got, most)
		} else {
			t.Logf("%s: %d fsyncs", what, got)
		}
	}
	var i *Image
	count("creation", 24, func() { i = n.open(t); h.expect(t, i) })
	count("100 commits", 0, func() { must(t, h.commit(i, 100)) })
	count("Sync", 5, func() { must(t, i.Sync()) })
	count("Close", 1, func() { must(t, i.Close()) })
	count("open, load", 10, func() { i = n.open(t); h.expect(t, i) })
}

var errFault = errors.New("injected")

// C1.3: A failed flush is not silently repeated for ever.
func TestSyncReportsTheDisksFailureAndCloseEnds(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 5))
	n.disk.SetFault(func(op disk.Op, name string) error {
		if op == disk.OpCreate && strings.HasSuffix(name, ".sst") {
			return errFault
		}
		return nil
	})
	if err := i.Sync(); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	must(t, h.commit(i, 50)) // to memory; nobody hears of it
	if err := i.Sync(); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	if err := i.Close(); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
}

// C1.3: If a disk stops answering, a flush never ends.
func TestSyncEndsWhenTheSwitchIsThrownWhileTheDiskHangs(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 5))
	hangs, release := hang(n)
	done := make(chan error, 1)
	go func() { done <- i.Sync() }()
	<-hangs
	n.disk.Fail(errFault)
	select {
	case err := <-done:
		if !errors.Is(err, errFault) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("Sync hangs")
	}
	release()
	i.Close()
}

// hang makes the next creation of a table block until release is called. It closes hangs when that
// creation begins.
func hang(n *node) (hangs <-chan struct{}, release func()) {
	began, end := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	n.disk.SetFault(func(op disk.Op, name string) error {
		if op == disk.OpCreate && strings.HasSuffix(name, ".sst") && once.CompareAndSwap(false, true) {
			close(began)
			<-end
		}
		return nil
	})
	return began, func() { close(end) }
}

// A flush of the replaced image says nothing about the image that was installed meanwhile.
func TestFlushThatAnInstallOvertakesDoesNotCount(t *testing.T) {
	n, h, mine := newNode(t), newHistory(t), newHistory(t)
	stream := streamOf(t, h, 50)
	o := n.options()
	o.FlushInterval = time.Hour // only the flush below
	i := openWith(t, o)
	mine.expect(t, i)
	must(t, mine.commit(i, 30))
	hangs, release := hang(n)
	release = sync.OnceFunc(release)
	t.Cleanup(release) // runs before the image is closed
	flushed := make(chan error, 1)
	go func() { flushed <- i.flush() }()
	<-hangs
	must(t, i.Install(bytes.NewReader(stream), nil, nil))
	release()
	must(t, <-flushed)
	i.mu.Lock()
	f, applied := i.mu.flow, i.mu.applied
	i.mu.Unlock()
	if applied != 50 || f.durable != 50 || f.flushed != 0 || f.committed != 0 {
		t.Errorf("index %d is applied, %d durable, %d of %d bytes flushed", applied, f.durable, f.flushed, f.committed)
	}
	// What is committed next counts from zero.
	must(t, h.commit(i, 51))
	must(t, i.Sync())
	waitDurable(t, i, 51)
	c := crashed(t, n)
	if h.expect(t, c); c.Applied() != 51 {
		t.Errorf("index %d after a crash", c.Applied())
	}
}

func TestCommitWaitsWhenTooMuchIsUnflushed(t *testing.T) {
	for name, c := range map[string]struct {
		wait time.Duration
		end  func(n *node, i *Image, release func())
	}{
		"until it is flushed":  {time.Hour, func(_ *node, _ *Image, release func()) { release() }},
		"until the disk fails": {time.Hour, func(n *node, _ *Image, _ func()) { n.disk.Fail(errFault) }},
		"until it is closed":   {time.Hour, func(_ *node, i *Image, _ func()) { go i.Close() }},
		"for a bounded time":   {time.Nanosecond, func(*node, *Image, func()) {}},
	} {
		t.Run(name, func(t *testing.T) {
			n, h := newNode(t), newHistory(t)
			o := n.options()
			o.FlushBytes, o.UnflushedMax, o.CommitWait = 1<<10, 8<<10, c.wait
			i := openWith(t, o)
			h.expect(t, i)
			hangs, release := hang(n)
			release = sync.OnceFunc(release)
			t.Cleanup(release) // runs before the image is closed
			// The first batch starts a flush, which hangs. The following batches use up the
			// allowance.
			b := i.NewBatch()
			commit := func(k uint64) error {
				b.Put(Znodes, []byte("k"), make([]byte, 2<<10))
				return b.Commit(k)
			}
			must(t, commit(1))
			<-hangs
			for k := uint64(2); k <= 4; k++ {
				must(t, commit(k))
			}
			done := make(chan error, 1)
			go func() {
				commit(5)
				done <- commit(6)
			}()
			if c.wait == time.Hour {
				for range 1000 {
					runtime.Gosched()
				}
				select {
				case <-done:
					t.Fatal("it did not wait")
				default:
				}
			}
			c.end(n, i, release)
			select {
			case err := <-done:
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Fatal(err)
				}
			case <-time.After(patience):
				t.Fatal("it waits for ever")
			}
		})
	}
}

// If a read fails during Pebble's background work, no caller would hear of it. So it throws the
// switch.
func TestDamageFoundInTheBackgroundThrowsTheSwitch(t *testing.T) {
	n := newNode(t)
	o := n.options()
	i := openWith(t, o)
	b := i.NewBatch()
	put := func(k uint64) {
		b.Put(Znodes, []byte("first"), make([]byte, 64<<10))
		b.Put(Znodes, []byte("last"), make([]byte, 64<<10))
		must(t, b.Commit(k))
		if err := i.Sync(); err != nil && n.disk.Err() == nil {
			t.Fatal(err)
		}
	}
	put(1)
	for name, data := range filesIn(t, n.dir()) {
		if strings.HasSuffix(name, ".sst") {
			must(t, os.WriteFile(n.dir()+"/"+name, make([]byte, len(data)), 0o644))
		}
	}
	for k := uint64(2); k < 30 && n.disk.Err() == nil; k++ {
		put(k) // until a compaction reads the damaged table
	}
	select {
	case <-n.disk.Failed():
	case <-time.After(patience):
		t.Fatal("nobody noticed")
	}
	if err := i.Close(); err == nil {
		t.Fatal("Close says nothing")
	}
}

// C1.3: If the MANIFEST cannot be written, Pebble ends the process. If a table cannot be written,
// Pebble tries again and again. Here the call that failed throws the switch before Pebble hears of
// it. Then Sync and Close return the cause.
func TestFailureOfAnyFileOfPebbleEndsInTheSwitch(t *testing.T) {
	for part, ops := range map[string][]disk.Op{
		"MANIFEST": {disk.OpWrite, disk.OpSync},
		".sst":     {disk.OpCreate, disk.OpWrite, disk.OpSync},
	} {
		for _, op := range ops {
			t.Run(op.String()+" "+part, func(t *testing.T) {
				n, h := newNode(t), newHistory(t)
				i := n.open(t)
				must(t, h.commit(i, 5))
				n.disk.SetFault(func(o disk.Op, name string) error {
					if o == op && strings.Contains(name, part) {
						return errFault
					}
					return nil
				})
				if err := i.Sync(); !errors.Is(err, errFault) {
					t.Fatal(err)
				}
				if err := i.Close(); !errors.Is(err, errFault) {
					t.Fatal(err)
				}
				if err := n.disk.Err(); !strings.HasPrefix(err.Error(), op.String()+" ") {
					t.Errorf("the switch was thrown by %v", err)
				}
			})
		}
	}
}

// C1.3: An error on which Pebble would end the process ends the node.
func TestWhatIsFatalToPebbleThrowsTheSwitch(t *testing.T) {
	n := newNode(t)
	o := pebbleOptions(n.options().withDefaults(), "", nil, createNew)
	o.Logger.Fatalf("MANIFEST %s", "is gone")
	if err := n.disk.Err(); err == nil || !strings.Contains(err.Error(), "MANIFEST is gone") {
		t.Fatal(err)
	}
}

// C1.3: If Pebble itself stalls a commit behind a flush or a compaction that does not end, the
// commit waits under a lock that Close needs. Nothing can interrupt it. So Pebble must stall none,
// however much is unflushed or not compacted.
func TestCommitIsNeverStalledByPebble(t *testing.T) {
	for worker, commit := range map[string]func(i *Image, k uint64) error{
		"flush1": func(i *Image, k uint64) error { // many memtables
			b := i.NewBatch()
			b.Put(Znodes, []byte("k"), make([]byte, memtableLen/2))
			return b.Commit(k)
		},
		"compact1": func(i *Image, k uint64) error { // many tables that were never merged
			b := i.NewBatch()
			b.Put(Znodes, []byte("a"), []byte{byte(k)})
			b.Put(Znodes, []byte("z"), []byte{byte(k)})
			return errors.Join(b.Commit(k), i.Sync())
		},
	} {
		t.Run(worker, func(t *testing.T) {
			n, h := newNode(t), newHistory(t)
			o := n.options()
			o.UnflushedMax = 1 << 30
			i := openWith(t, o)
			h.expect(t, i)
			hangs, end := make(chan struct{}), make(chan struct{})
			var once sync.Once
			n.disk.SetFault(func(op disk.Op, name string) error {
				if op == disk.OpCreate && strings.HasSuffix(name, ".sst") && calledBy("(*DB)."+worker) {
					once.Do(func() { close(hangs) })
					<-end
				}
				return nil
			})
			defer close(end) // before the image is closed
			committed := make(chan error, 1)
			go func() {
				var err error
				for k := uint64(1); k <= 24 && err == nil; k++ {
					err = commit(i, k)
				}
				committed <- err
			}()
			<-hangs
			select {
			case err := <-committed:
				must(t, err)
			case <-time.After(patience):
				t.Fatal("a commit waits for what does not end")
			}
		})
	}
}

// calledBy reports whether the given method of Pebble is on the stack.
func calledBy(method string) bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "pebble."+method) {
			return true
		}
		if !more {
			return false
		}
	}
}
