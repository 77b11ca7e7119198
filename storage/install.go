package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble"
)

// installBatch is how many bytes of a stream enter the new image at once.
const installBatch = 256 << 10

// Install replaces the image by what the stream holds. The new image is built beside the old one, which stays in
// use until the stream has been read to its end and found right and the new image is durable; then the pointer
// moves. Whatever interrupts it, a crash included, leaves one of the two whole. Load gives the new records.
//
// It returns ErrCorrupt or ErrNewer for a bad stream, ErrStopped soon after stop is closed (a Read that blocks is
// the caller's to end), ErrClosed, the reader's error, or the disk's cause if it has failed.
//
// Nothing may be committed while it runs: that would go to the old image and be lost with it.
func (i *Image) Install(r io.Reader, stop <-chan struct{}) error {
	if err := i.ready(); err != nil {
		return err
	}
	i.installing.Lock()
	defer i.installing.Unlock()
	if err := stopped(stop, i.closing); err != nil {
		return err
	}
	name, err := i.layout.unused()
	if err != nil {
		return err
	}
	fresh, err := openStore(i.o.Disk, i.layout.path(name), createNew, i.o.Logger)
	if err != nil {
		return fmt.Errorf("%s: %w", i.layout.path(name), err)
	}
	index, err := i.receive(fresh, r, stop)
	if err == nil {
		err = i.swap(fresh, name, index)
	}
	if err != nil {
		fresh.superseded.Store(true)
		return errors.Join(err, fresh.release())
	}
	return nil
}

// receive fills the store from the stream and returns when it is verified and durable.
func (i *Image) receive(s *store, r io.Reader, stop <-chan struct{}) (uint64, error) {
	in, index, err := newStreamReader(r)
	if err != nil {
		return 0, err
	}
	var ops pebble.Batch
	unflushed := 0
	for {
		switch err := in.next(); {
		case err == io.EOF:
			if err := commitTo(s, &ops, index); err != nil {
				return 0, err
			}
			return index, i.settle(s, stop)
		case err != nil:
			return 0, err
		}
		key := append(append(make([]byte, 0, 1+len(in.key)), byte(in.table)), in.key...)
		if err := ops.Set(key, in.value, nil); err != nil {
			return 0, err
		}
		if ops.Len() < installBatch {
			continue
		}
		unflushed += weight(&ops)
		if err := s.db.Apply(&ops, pebble.NoSync); err != nil {
			return 0, err
		}
		ops.Reset()
		if err := stopped(stop, i.closing); err != nil {
			return 0, err
		}
		if unflushed >= memtableLen {
			if err := i.settle(s, stop); err != nil {
				return 0, err
			}
			unflushed = 0
		}
	}
}

// settle waits until everything in s is durable.
func (i *Image) settle(s *store, stop <-chan struct{}) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return i.o.Disk.Err()
	case <-i.o.Disk.Failed():
		return i.o.Disk.Err()
	case <-stop:
		return ErrStopped
	case <-i.closing:
		return ErrClosed
	}
}

// swap makes s the live store, on disk first.
func (i *Image) swap(s *store, name string, index uint64) error {
	i.pointing.Lock()
	defer i.pointing.Unlock()
	// The new image's own name must be durable before the pointer that names it.
	if err := i.layout.syncDir(i.o.Dir); err != nil {
		return err
	}
	p := pointer{image: name, state: stateLive, synced: index}
	if err := errors.Join(i.layout.writePointer(p), i.o.Disk.Err()); err != nil {
		return err
	}
	i.mu.Lock()
	old := i.mu.live
	i.mu.live, i.mu.pointer, i.mu.applied, i.mu.flow = s, p, index, newFlow(index)
	i.mu.Unlock()
	old.superseded.Store(true)
	return old.release()
}
