package replication

import (
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
)

// How much log a replica keeps. Bytes are those of commands; what Raft adds to each is counted as entryCost.
const (
	// keepBytes of the newest log stay when it is cut, so that a member that was away for a while gets the
	// entries it missed and not the whole state.
	keepBytes = 64 << 20
	// snapshotBytes more make the replica cut its log.
	snapshotBytes = 64 << 20
	// entryCost is about what a record costs besides its command.
	entryCost = 64
	// marks is how many positions a replica remembers within what it keeps.
	marks = 64
)

// retention decides when a shard's log is cut, and where. It counts what was applied since the start; what the
// log held before that is cut at the first request.
type retention struct {
	wake chan struct{} // holds a token while due

	mu struct {
		sync.Mutex
		since uint64 // bytes applied since the last cut
		total uint64 // bytes applied since the start
		marks []mark // oldest first, at most keepBytes/marks apart, plus one that is older than keepBytes
	}
}

// mark says how many bytes had been applied at an index.
type mark struct{ index, total uint64 }

// grown counts applied commands up to index. The apply worker calls it; it does not block.
func (r *retention) grown(bytes int, index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(bytes + entryCost)
	r.mu.since += size
	r.mu.total += size
	if n := len(r.mu.marks); n == 0 || r.mu.total-r.mu.marks[n-1].total >= keepBytes/marks {
		r.mu.marks = append(r.mu.marks, mark{index: index, total: r.mu.total})
	}
	for len(r.mu.marks) > 1 && r.mu.total-r.mu.marks[1].total > keepBytes {
		r.mu.marks = r.mu.marks[1:]
	}
	if r.mu.since >= snapshotBytes {
		r.mu.since = 0
		r.ask()
	}
}

func (r *retention) ask() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// cut is the newest index that may go: everything after it is within keepBytes. Zero: nothing may.
func (r *retention) cut() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.marks) == 0 || r.mu.total-r.mu.marks[0].total < keepBytes {
		return 0
	}
	return r.mu.marks[0].index
}

// RequestSnapshot asks for the state of a shard to be made durable and its log to be cut, as far as it is not
// kept for members that lag. It does not wait. ErrBusy if one is under way.
func (h *Host) RequestSnapshot(id ShardID) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	opt := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionOverhead: compactionOverhead}
	if cut := s.log.cut(); cut > 0 {
		opt = dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: cut}
	}
	return h.call(func() error {
		_, err := h.nh.RequestSnapshot(uint64(id), opt, snapshotTimeout)
		return translate(err)
	})
}

const (
	// compactionOverhead is how many entries stay when nothing is known of their size.
	compactionOverhead = 10_000
	// snapshotTimeout is how long dragonboat remembers a request in order to report on it.
	snapshotTimeout = time.Minute
	// snapshotRetry is the wait after a request that found another under way.
	snapshotRetry = time.Second
)

// compactLoop asks for snapshots when logs have grown. The apply worker may not call the NodeHost itself. It
// ends with the host.
func (h *Host) compactLoop() {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(h.done)}}
	for _, s := range h.shards {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.log.wake)})
	}
	for {
		chosen, _, _ := reflect.Select(cases)
		if chosen == 0 {
			return
		}
		s := h.shards[chosen-1]
		if err := h.RequestSnapshot(s.id); errors.Is(err, ErrBusy) && h.sleep(snapshotRetry) {
			s.log.ask()
		}
	}
}

// sleep waits for d and says whether the host is still open then.
func (h *Host) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.done:
		return false
	}
}
