package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble"
)

// A Batch collects changes to an image. Only one goroutine at a time may use it. It may be used
// again after Commit, and keeps up to 1 MiB of memory for that.
type Batch struct {
	image *Image
	ops   pebble.Batch // not tied to a database, so it survives an install
	key   []byte
	err   error // for the first record that was refused
}

// NewBatch returns an empty batch.
func (i *Image) NewBatch() *Batch { return &Batch{image: i} }

// Put stores the value under the key. Both are copied.
func (b *Batch) Put(t Table, key, value []byte) {
	if b.fits(t, key, value) {
		b.note(b.ops.Set(b.prefixed(t, key), value, nil))
	}
}

// Delete removes the key if it exists.
func (b *Batch) Delete(t Table, key []byte) {
	if b.fits(t, key, nil) {
		b.note(b.ops.Delete(b.prefixed(t, key), nil))
	}
}

func (b *Batch) fits(t Table, key, value []byte) bool {
	if !t.known() {
		b.note(fmt.Errorf("a record in unknown %v", t))
	}
	if len(key) > keyLenMax || len(value) > valueLenMax {
		b.note(fmt.Errorf("%w: %v: a key of %d bytes, a value of %d bytes", ErrTooLarge, t, len(key), len(value)))
	}
	return b.err == nil
}

func (b *Batch) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Batch) prefixed(t Table, key []byte) []byte {
	b.key = append(append(b.key[:0], byte(t)), key...)
	return b.key
}

// Commit applies the batch and the index together, and empties the batch. It waits for the disk
// only when too much is unflushed. That wait is bounded, and ends at once if the disk fails.
//
// It returns ErrTooLarge if a record was too large, ErrClosed, or an error if the index is below
// the last one. On an error nothing is applied.
func (b *Batch) Commit(applied uint64) error {
	defer b.reset()
	i := b.image
	if b.err != nil {
		return b.err
	}
	if err := i.ready(); err != nil {
		return err
	}
	i.waitForRoom()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.closed {
		return ErrClosed
	}
	if applied < i.mu.applied {
		return fmt.Errorf("commit at index %d after index %d", applied, i.mu.applied)
	}
	size := weight(&b.ops) // before Apply: Pebble keeps the buffer of a large batch
	if err := commitTo(i.mu.live, &b.ops, applied); err != nil {
		return err
	}
	i.mu.applied = applied
	i.committed(size)
	return nil
}

func (b *Batch) reset() {
	b.ops.Reset()
	b.err = nil
}

// commitTo is the only place where records enter a database, so every batch has its index.
func commitTo(s *store, ops *pebble.Batch, applied uint64) error {
	var index [8]byte
	binary.BigEndian.PutUint64(index[:], applied)
	if err := ops.Set(appliedKey, index[:], nil); err != nil {
		return err
	}
	return s.db.Apply(ops, pebble.NoSync)
}

// entryOverhead is roughly what a memtable adds to each record.
const entryOverhead = 64

// weight estimates the memory that a batch occupies until it is flushed.
func weight(ops *pebble.Batch) int { return ops.Len() + int(ops.Count())*entryOverhead }
