package replication

import (
	"errors"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// How much log a replica keeps, in bytes of commands, with entryCost for each.
const (
	// keepBytes of the newest log stay when it is cut. So a member that was away for a while gets
	// the entries it missed and not the whole state.
	keepBytes = 64 << 20
	// After snapshotBytes more, the replica cuts its log. Both together bound a busy log at about
	// twice 64 MiB and one file of tan's.
	snapshotBytes = 64 << 20
	// After snapshotEntries more, it does so too. A start reads the log after its newest snapshot,
	// and each entry takes tens of microseconds.
	snapshotEntries = 50_000
	// markBytes is how exactly the place of a cut is known.
	markBytes = keepBytes / 64
	// entryCost is roughly the cost of a record without its command.
	entryCost = 64
)

// retention decides when a shard's log is cut, and where. It counts what was applied since the
// start. Of the log before that, only the number of entries is known.
type retention struct {
	mu struct {
		rank.Mutex[rank.Retention]
		due     bool   // a snapshot is to be requested
		since   uint64 // bytes applied since the last time it was due
		entries int    // entries applied since then
		total   uint64 // bytes applied since the start
		marks   []mark // oldest first; the second one, if any, is less than keepBytes old
	}
}

// mark says how many bytes had been applied at an index.
type mark struct{ index, total uint64 }

// grow counts applied entries up to index. It reports whether a snapshot is due now.
func (r *retention) grow(entries, bytes int, index uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.since += uint64(bytes)
	r.mu.entries += entries
	r.mu.total += uint64(bytes)
	if n := len(r.mu.marks); n == 0 || r.mu.total-r.mu.marks[n-1].total >= markBytes {
		r.mu.marks = append(r.mu.marks, mark{index: index, total: r.mu.total})
	}
	for len(r.mu.marks) > 1 && r.mu.total-r.mu.marks[1].total >= keepBytes {
		r.mu.marks = r.mu.marks[1:]
	}
	if r.mu.since >= snapshotBytes || r.mu.entries >= snapshotEntries {
		r.mu.since, r.mu.entries, r.mu.due = 0, 0, true
	}
	return r.mu.due
}

func (r *retention) setDue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.due = true
}

func (r *retention) clearDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.mu.due
	r.mu.due = false
	return due
}

// cut returns the newest index known to have at least keep bytes after it, or zero.
func (r *retention) cut(keep uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range slices.Backward(r.mu.marks) {
		if r.mu.total-m.total >= keep {
			return m.index
		}
	}
	return 0
}

const (
	// keepEntries is how many entries stay when their size is unknown.
	keepEntries = 10_000
	// snapshotTimeout is how long dragonboat remembers a request in order to report on it.
	snapshotTimeout = time.Minute
	// snapshotRetry is the wait after a shard could not accept a request.
	snapshotRetry = time.Second
)

// RequestSnapshot makes the state of a shard durable and cuts its log, except what is kept for
// members that lag. It does not wait. It does nothing if nothing was applied since the last time.
func (h *Host) RequestSnapshot(id ShardID) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	return h.call(func() error {
		s.log.setDue()
		h.wakeCompaction()
		return nil
	})
}

// compactLoop requests the snapshots that are due, because dragonboat's workers may not call the
// NodeHost themselves. If a shard is not ready or already makes a snapshot, the loop asks again
// later. It ends with the host.
func (h *Host) compactLoop() {
	var retry <-chan time.Time
	for {
		select {
		case <-h.grown:
		case <-retry:
		case <-h.done:
			return
		}
		retry = nil
		for _, s := range h.shards {
			if !s.log.clearDue() {
				continue
			}
			if err := h.cutLog(s); errors.Is(err, ErrBusy) || errors.Is(err, ErrNoLeader) {
				s.log.setDue()
				retry = time.After(snapshotRetry)
			}
		}
	}
}

// wakeCompaction makes compactLoop look at all shards. It does not block.
func (h *Host) wakeCompaction() {
	select {
	case h.grown <- struct{}{}:
	default:
	}
}

// cutLog starts a snapshot. Afterwards dragonboat cuts the log.
func (h *Host) cutLog(s *shard) error {
	opt := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionOverhead: h.keepEntries}
	if cut := s.log.cut(h.keepBytes); h.keepBytes > 0 && cut > 0 {
		opt = dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: cut}
	}
	return h.call(func() error {
		_, err := h.nh.RequestSnapshot(uint64(s.id), opt, snapshotTimeout)
		if err == nil {
			s.meters.Cuts.Inc()
		}
		return translate(err)
	})
}
