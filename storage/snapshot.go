package storage

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Snapshot is an image at one point in time. It costs little to take and holds nothing up; while it is open,
// the records it needs stay on disk.
type Snapshot struct {
	// Immutable after Image.Snapshot.
	image   *Image
	store   *store
	applied uint64

	mu struct {
		rank.Mutex[rank.Snapshot]                  // held by WriteTo from beginning to end
		records                   *pebble.Snapshot // nil after Close
	}
}

// Snapshot returns the image as it is now, with everything committed. The caller closes it; Image.Close does so
// for one that was forgotten.
func (i *Image) Snapshot() (*Snapshot, error) {
	if err := i.ready(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.closed {
		return nil, ErrClosed
	}
	s := &Snapshot{image: i, store: i.mu.live.acquire(), applied: i.mu.applied}
	s.mu.records = s.store.db.NewSnapshot()
	i.mu.snapshots[s] = struct{}{}
	return s, nil
}

// Applied returns the index the snapshot has.
func (s *Snapshot) Applied() uint64 { return s.applied }

// stopCheck is how many records pass between two looks at the stop channel.
const stopCheck = 64

// WriteTo writes the snapshot as a stream that Install reads. It returns ErrStopped soon after stop is closed,
// ErrClosed if the image or the snapshot is, the writer's error, or an error about a corrupt file; a stream cut
// short by any of them is refused by Install.
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
	var own error // an error that is not the database's
	err = each(s.mu.records, func(t Table, key, value []byte) error {
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

// stopped returns ErrStopped or ErrClosed if one of the channels is closed.
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

// Close gives up the snapshot. It waits for a WriteTo under way. Further calls return nil.
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
