package replica

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// Figures are what monitors ask of a shard. Once its machine is closed they stay as they were.
type Figures struct {
	Applied       uint64 // log index
	Zxid          tree.Zxid
	TreeSize      int64  // see tree.Weight
	OverSoftQuota uint64 // transactions since the start
	Znodes, Size  int    // bytes
}

// Figures are what this node knows of the shard. It waits for nothing.
func (r *Replica) Figures() Figures {
	t := r.tree.Load()
	now := Figures{Applied: r.index.Load(), Zxid: t.Visible(), TreeSize: t.Weight(), OverSoftQuota: r.quotas.count.Load(), Znodes: t.Len(), Size: t.Size()}
	if last := r.lastFigures.Load(); last != nil { // asked last: the tree may have gone meanwhile
		return *last
	}
	return now
}

// Sizes are of things of which the last, the smallest and the largest count. All are zero while there was none.
type Sizes struct{ last, min, max atomic.Int64 }

// note is for one goroutine.
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

// Read returns them.
func (s *Sizes) Read() (last, least, most int64) { return s.last.Load(), s.min.Load(), s.max.Load() }

// Reset begins anew.
func (s *Sizes) Reset() {
	s.last.Store(0)
	s.min.Store(0)
	s.max.Store(0)
}
