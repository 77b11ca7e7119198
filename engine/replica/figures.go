package replica

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/tree"
)

// Figures describe a shard to monitors. After Close they stay as they were.
type Figures struct {
	Applied       uint64 // index in the Raft log
	Zxid          tree.Zxid
	TreeSize      int64  // see tree.Weight
	OverSoftQuota uint64 // transactions since the start of the node
	Znodes, Size  int    // Size is in bytes
}

// Figures returns what this node knows about the shard. It takes no lock.
func (r *Replica) Figures() Figures {
	t := r.tree.Load()
	now := Figures{Applied: r.index.Load(), Zxid: t.Visible(), TreeSize: t.Weight(), OverSoftQuota: r.quotas.count.Load(), Znodes: t.Len(), Size: t.Size()}
	if last := r.lastFigures.Load(); last != nil { // last, because Drop may have dropped the tree meanwhile
		return *last
	}
	return now
}

// Meters time what a replica does.
type Meters struct {
	Applies  meter.Histogram // calls of Apply, of one entry or many
	Bytes    meter.Counter   // of the applied entries
	Installs meter.Histogram // states received and installed

	Installing meter.Work
}

// Counts are those of a shard's session table. Only the home shard has all sessions.
type Counts struct{ Sessions, Ephemerals int }

// TryCount counts what the table has. It returns false if an entry is applied at this moment, or if
// the replica was closed.
func (r *Replica) TryCount() (c Counts, ok bool) {
	if !r.mu.TryLock() {
		return c, false
	}
	defer r.mu.Unlock()
	if r.lastFigures.Load() != nil {
		return c, false
	}
	return Counts{Sessions: r.mu.table.Len(), Ephemerals: r.mu.table.CountEphemerals()}, true
}

// Sizes holds the last, the smallest and the largest of some sizes. All are zero until there is
// one.
type Sizes struct{ last, min, max atomic.Int64 }

// note records a size. Only one goroutine may call it.
func (s *Sizes) note(n int) {
	size := int64(n)
	s.last.Store(size)
	if least := s.min.Load(); least == 0 || size < least {
		s.min.Store(size)
	}
	if size > s.max.Load() {
		s.max.Store(size)
	}
}

// Read returns the last, the smallest and the largest size.
func (s *Sizes) Read() (last, least, most int64) { return s.last.Load(), s.min.Load(), s.max.Load() }

// Reset forgets all sizes.
func (s *Sizes) Reset() {
	s.last.Store(0)
	s.min.Store(0)
	s.max.Store(0)
}
