package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble"
)

// installBatch is how many bytes of a stream are committed to the new image at once.
const installBatch = 256 << 10

// Install replaces the image by the contents of the stream. It builds the new image beside the old
// one, which stays in use meanwhile. When the whole stream is verified and the new image is
// durable, the pointer is changed. Any interruption, even a crash, leaves one of the two images
// whole. Load then reads the new records.
//
// It calls accept for each record. If that returns an error, and the stream is whole, Install returns
// the first one and keeps the old image. Nil accepts everything.
//
// It returns ErrCorrupt or ErrNewer for a bad stream, ErrStopped soon after stop is closed,
// ErrClosed, the reader's error, or the disk's cause if the disk has failed. If a Read blocks, the
// caller must end it.
//
// Nothing may be committed while Install runs: it would go to the old image and be lost.
func (i *Image) Install(r io.Reader, stop <-chan struct{}, accept func(t Table, key, value []byte) error) error {
	if err := i.ready(); err != nil {
		return err
	}
	i.installing.Lock()
	defer i.installing.Unlock()
	if err := stopped(stop, i.closing); err != nil {
		return err
	}
	in, index, err := newStreamReader(r)
	if err != nil {
		return err
	}
	name, err := i.layout.unused()
	if err != nil {
		return err
	}
	fresh, err := openStore(i.o, i.layout.path(name), createNew)
	if err != nil {
		return fmt.Errorf("%s: %w", i.layout.path(name), err)
	}
	old, err := i.replaceBy(fresh, name, in, index, stop, accept)
	if err != nil {
		old = fresh
	}
	// The discarded store is garbage, so a failure here does not matter. The next start removes
	// what is left of it.
	old.superseded.Store(true)
	if err := old.release(); err != nil {
		i.o.Logger.Warn("an image that is no longer needed could not be removed", "dir", old.dir, "cause", err)
	}
	return err
}

// replaceBy fills fresh from the stream and makes it the live store. It returns the previous one.
func (i *Image) replaceBy(fresh *store, name string, in *streamReader, index uint64, stop <-chan struct{}, accept func(t Table, key, value []byte) error) (*store, error) {
	if err := i.receive(fresh, in, stop, accept); err != nil {
		return nil, err
	}
	var last pebble.Batch
	if err := commitTo(fresh, &last, index); err != nil {
		return nil, err
	}
	if err := i.flushFresh(fresh, stop); err != nil {
		return nil, err
	}
	return i.swap(fresh, name, index)
}

// receive fills the store with the stream's records. It returns after it has verified the stream.
func (i *Image) receive(s *store, in *streamReader, stop <-chan struct{}, accept func(t Table, key, value []byte) error) error {
	var refused error
	var ops pebble.Batch
	var key []byte
	unflushed := 0
	for {
		err := in.next()
		if err == nil {
			key = append(append(key[:0], byte(in.table)), in.key...)
			err = ops.Set(key, in.value, nil)
			if accept != nil && refused == nil {
				refused = accept(in.table, in.key, in.value)
			}
		}
		if err != nil && err != io.EOF {
			return err
		}
		done := err == io.EOF
		if ops.Len() < installBatch && !done {
			continue
		}
		unflushed += weight(&ops)
		if err := errors.Join(s.db.Apply(&ops, pebble.NoSync), stopped(stop, i.closing)); err != nil || done {
			return errors.Join(err, refused)
		}
		ops.Reset()
		if unflushed >= memtableLen {
			if err := i.flushFresh(s, stop); err != nil {
				return err
			}
			unflushed = 0
		}
	}
}

// flushFresh flushes s, which is not yet live, and waits until it is durable.
func (i *Image) flushFresh(s *store, stop <-chan struct{}) error {
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

// swap makes s the live store, on disk first. It returns the previous one.
func (i *Image) swap(s *store, name string, index uint64) (*store, error) {
	i.pointing.Lock()
	defer i.pointing.Unlock()
	// The name of the new image must be durable before the pointer that names it.
	if err := syncDir(i.o.Disk, i.o.Dir); err != nil {
		return nil, err
	}
	p := pointer{image: name, state: stateLive, synced: index}
	if err := errors.Join(i.layout.writePointer(p), i.o.Disk.Err()); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.mu.live
	i.mu.live, i.mu.pointer, i.mu.applied, i.mu.flow = s, p, index, newFlow(index)
	return old, nil
}
