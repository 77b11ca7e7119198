package replica

import "sync/atomic"

// Sizes are of things of which the last, the smallest and the largest count. All are zero while there was none.
type Sizes struct{ last, least, most atomic.Int64 }

// note is for one goroutine.
func (s *Sizes) note(n int) {
	size := int64(n)
	s.last.Store(size)
	if least := s.least.Load(); least == 0 || size < least {
		s.least.Store(size)
	}
	if size > s.most.Load() {
		s.most.Store(size)
	}
}

// Read returns them.
func (s *Sizes) Read() (last, least, most int64) { return s.last.Load(), s.least.Load(), s.most.Load() }

// Reset begins anew.
func (s *Sizes) Reset() {
	s.last.Store(0)
	s.least.Store(0)
	s.most.Store(0)
}
