package storage

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Snapshot is an image at one point in time. It is cheap to create and delays nobody. While it is
// open, the records it needs stay on disk.
type Snapshot struct {
	// Immutable after Image.Snapshot.
	image     *Image
	store     *store
	applied   uint64
	committed int64 // bytes that the store had been given

	mu struct {
		rank.Mutex[rank.Snapshot]                  // held by WriteTo throughout
		records                   *pebble.Snapshot // nil after Close
	}
}

// Snapshot returns the image in its present state, with everything committed. The caller must close
// it. Image.Close closes a snapshot that was forgotten.
func (i *Image) Snapshot() (*Snapshot, error) {
	if err := i.ready(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.closed {
		return nil, ErrClosed
	}
	s := &Snapshot{image: i, store: i.mu.live.acquire(), applied: i.mu.applied, committed: i.mu.flow.committed}
	s.mu.records = s.store.db.NewSnapshot()
	i.mu.snapshots[s] = struct{}{}
	return s, nil
}

// Applied returns the snapshot's index.
func (s *Snapshot) Applied() uint64 { return s.applied }

// Behind returns about how many bytes were committed to the image since the snapshot. The disk may
// have to keep as much for it.
func (s *Snapshot) Behind() int64 {
	i := s.image
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.live != s.store {
		return i.mu.flow.committed // an Install began to count anew
	}
	return i.mu.flow.committed - s.committed
}

// Scan calls fn with the records of a table whose keys are from or later, in order, until fn
// returns false. Key and value are valid until fn returns. Close waits for Scan, so fn must not
// block. Scan returns ErrClosed, or an error about a corrupt file.
func (s *Snapshot) Scan(t Table, from []byte, fn func(key, value []byte) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.records == nil {
		return ErrClosed
	}
	bounds := &pebble.IterOptions{LowerBound: append([]byte{byte(t)}, from...), UpperBound: []byte{byte(t) + 1}}
	enough := false
	err := each(s.mu.records, bounds, func(_ Table, key, value []byte) error {
		if !fn(key, value) {
			enough = true
			return errEnough
		}
		return nil
	})
	if err != nil && !enough {
		return diagnose(s.store.disk, s.store.dir, err)
	}
	return nil
}

// errEnough ends a Scan.
var errEnough = errors.New("enough")

// stopCheck is how many records are written between two checks of the stop channel.
const stopCheck = 64

// WriteTo writes the snapshot as a stream that Install can read. It returns ErrStopped soon after
// stop is closed, ErrClosed if the image or the snapshot is closed, the writer's error, or an error
// about a corrupt file. Install refuses a stream that any of these errors cut short.
func (s *Snapshot) WriteTo(w io.Writer, stop <-chan struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.records == nil {
		return ErrClosed
	}
	out, err := newStreamWriter(w, s.applied)
	if err != nil {
		return err
	}
	var own error // an error from outside the database
	err = each(s.mu.records, nil, func(t Table, key, value []byte) error {
		if out.count%stopCheck == 0 {
			if own = stopped(stop, s.image.closing); own != nil {
				return own
			}
		}
		own = out.record(t, key, value)
		return own
	})
	if own != nil {
		return own
	}
	if err != nil {
		return diagnose(s.store.disk, s.store.dir, err)
	}
	return out.finish()
}

// stopped returns ErrStopped or ErrClosed if one of the channels is closed, else nil.
func stopped(stop, closing <-chan struct{}) error {
	select {
	case <-stop:
		return ErrStopped
	case <-closing:
		return ErrClosed
	default:
		return nil
	}
}

// Close releases the snapshot. It waits for a WriteTo in progress. Further calls return nil.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	records := s.mu.records
	s.mu.records = nil
	s.mu.Unlock()
	if records == nil {
		return nil
	}
	s.image.mu.Lock()
	delete(s.image.mu.snapshots, s)
	s.image.mu.Unlock()
	return errors.Join(records.Close(), s.store.release())
}
