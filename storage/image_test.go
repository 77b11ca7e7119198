package storage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/storage/disk"
)

func TestImageKeepsWhatWasCommittedAndItsIndex(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	for round := range 5 {
		i := n.open(t)
		h.expect(t, i)
		must(t, h.commit(i, uint64(10*(round+1))))
		h.expect(t, i)
		must(t, i.Close())
		index, exists, err := Peek(n.options())
		if err != nil || !exists || index != uint64(10*(round+1)) {
			t.Fatalf("Peek: %d, %v, %v", index, exists, err)
		}
	}
}

func TestCommitWithoutRecordsMovesTheIndex(t *testing.T) {
	n := newNode(t)
	i := n.open(t)
	must(t, i.NewBatch().Commit(41))
	must(t, i.Close())
	if i = n.open(t); i.Applied() != 41 {
		t.Fatalf("index %d", i.Applied())
	}
}

// Pebble keeps the buffer of a large batch until it is flushed. Later records must not be written
// into that buffer.
func TestBatchIsUsedAgainAfterALargeCommit(t *testing.T) {
	n := newNode(t)
	i := n.open(t)
	flush := make(chan struct{})
	defer close(flush)
	b := i.NewBatch()
	must(t, b.Commit(1)) // also opens the image for writing
	n.disk.SetFault(func(op disk.Op, name string) error {
		if op == disk.OpCreate && strings.HasSuffix(name, ".sst") {
			<-flush
		}
		return nil
	})
	const records = 20_000 // a few bytes each: many for a memtable, few for the buffer
	before := i.mu.flow.committed
	for n := range records {
		b.Put(Znodes, fmt.Appendf(nil, "a%d", n), []byte("first"))
	}
	size := int64(weight(&b.ops))
	must(t, b.Commit(2))
	if got := i.mu.flow.committed - before; got < size {
		t.Errorf("%d bytes are counted of at least %d", got, size)
	}
	for n := range records {
		b.Put(Znodes, fmt.Appendf(nil, "b%d", n), []byte("other"))
	}
	seen := make(map[string]int)
	must(t, i.Load(func(_ Table, key, value []byte) error {
		seen[string(key[:1])+string(value)]++
		return nil
	}))
	if seen["afirst"] != records || len(seen) != 1 {
		t.Errorf("the image has %v, want %d of a with first", seen, records)
	}
}

func TestCommitRefusesAnIndexThatGoesBack(t *testing.T) {
	i := newNode(t).open(t)
	b := i.NewBatch()
	must(t, b.Commit(5))
	b.Put(Meta, []byte("k"), []byte("v"))
	if err := b.Commit(4); err == nil {
		t.Fatal("committed")
	}
	if got, err := load(i); err != nil || len(got) != 0 || i.Applied() != 5 {
		t.Fatal(got, i.Applied(), err)
	}
}

func TestCommitRefusesWhatNoStreamCouldCarry(t *testing.T) {
	i := newNode(t).open(t)
	b := i.NewBatch()
	b.Put(Znodes, []byte("fits"), nil)
	b.Put(Znodes, make([]byte, keyLenMax+1), nil)
	if err := b.Commit(1); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	b.Put(Znodes, []byte("k"), make([]byte, valueLenMax+1))
	if err := b.Commit(1); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	b.Put(Table(9), []byte("k"), nil)
	if err := b.Commit(1); err == nil {
		t.Fatal("committed to a table that is none")
	}
	if got, err := load(i); err != nil || len(got) != 0 || i.Applied() != 0 {
		t.Fatal(got, i.Applied(), err)
	}
	must(t, b.Commit(1)) // the batch is empty again
}

// A batch larger than a memtable takes another path through Pebble.
func TestCommitTakesABatchLargerThanAMemtable(t *testing.T) {
	n := newNode(t)
	i := n.open(t)
	value := bytes.Repeat([]byte("v"), 3*memtableLen)
	b := i.NewBatch()
	for k := range 3 {
		b.Put(Znodes, fmt.Appendf(nil, "small-%d", k), []byte("v"))
		b.Put(Znodes, fmt.Appendf(nil, "large-%d", k), value)
		must(t, b.Commit(uint64(k+1)))
	}
	must(t, i.Close())
	i = n.open(t)
	if got, err := load(i); err != nil || len(got) != 6 || got["\x01large-2"] != string(value) || i.Applied() != 3 {
		t.Fatal(len(got), i.Applied(), err)
	}
}

func TestBatchCopiesWhatItIsGiven(t *testing.T) {
	i := newNode(t).open(t)
	key, value := []byte("key"), []byte("value")
	b := i.NewBatch()
	b.Put(Meta, key, value)
	copy(key, "XXX")
	copy(value, "XXXXX")
	must(t, b.Commit(1))
	if got, err := load(i); err != nil || !got.equal(contents{"\x04key": "value"}) {
		t.Fatal(got, err)
	}
}

func TestLoadReturnsTheCallersErrorAndLeavesTheDirectory(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 10))
	must(t, i.Close())
	before := filesIn(t, n.root)
	mine := errors.New("not a tree")
	i = n.open(t)
	if err := i.Load(func(Table, []byte, []byte) error { return mine }); err != mine {
		t.Fatal(err)
	}
	if !sameFiles(before, filesIn(t, n.root)) {
		t.Fatal("the directory was changed before Load was through")
	}
	h.expect(t, i)
	if sameFiles(before, filesIn(t, n.root)) {
		t.Fatal("the image was not opened for writing")
	}
}

func TestOpenAndCloseLeaveTheDirectoryAlone(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 10))
	must(t, i.Close())
	before := filesIn(t, n.root)
	must(t, n.open(t).Close())
	if !sameFiles(before, filesIn(t, n.root)) {
		t.Fatal("the directory was changed")
	}
}

func TestEveryMethodWorksWithoutLoad(t *testing.T) {
	for name, use := range map[string]func(i *Image) error{
		"Commit":   func(i *Image) error { return i.NewBatch().Commit(i.Applied() + 1) },
		"Sync":     func(i *Image) error { return i.Sync() },
		"Snapshot": func(i *Image) error { return writeSnapshot(i, new(bytes.Buffer)) },
		"Install":  func(i *Image) error { return i.Install(bytes.NewReader(encodeStream(t, 77, sample...)), nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for range 2 { // first new, then existing
				i := n.open(t)
				must(t, use(i))
				must(t, i.Close())
			}
		})
	}
}

func TestEveryMethodRefusesAfterClose(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		i := newNode(t).open(t)
		if loaded {
			must(t, i.Load(func(Table, []byte, []byte) error { return nil }))
		}
		must(t, i.Close())
		must(t, i.Close())
		for name, err := range map[string]error{
			"Commit":  i.NewBatch().Commit(1),
			"Sync":    i.Sync(),
			"Install": i.Install(bytes.NewReader(nil), nil, nil),
			"Load":    i.Load(func(Table, []byte, []byte) error { return nil }),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("loaded %v: %s: %v", loaded, name, err)
			}
		}
		if _, err := i.Snapshot(); !errors.Is(err, ErrClosed) {
			t.Errorf("loaded %v: Snapshot: %v", loaded, err)
		}
	}
}

func writeSnapshot(i *Image, w *bytes.Buffer) error {
	s, err := i.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.WriteTo(w, nil)
}
