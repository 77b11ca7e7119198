package watch

// Figures count what a registry has and did.
type Figures struct {
	Streams int // that are live
	Marks   int // of clients: one for each path in each table
	// Since the registry was made:
	Events    uint64 // that were queued, one for each stream or client
	Overflows uint64 // streams that ended with ErrOverflow
	Gaps      uint64 // streams that ended with a *GapError
}

// TryFigures returns the figures, and false if the registry is busy at this moment.
func (r *Registry) TryFigures() (f Figures, ok bool) {
	if !r.mu.TryLock() {
		return f, false
	}
	defer r.mu.Unlock()
	f = r.counts
	f.Streams, f.Marks = r.n, r.clients.n
	f.Events += r.clients.events
	return f, true
}

// noteEndLocked counts the end of a stream.
func (r *Registry) noteEndLocked(err error) {
	if err == nil {
		return
	}
	if _, gap := err.(*GapError); gap {
		r.counts.Gaps++
	}
	if err == ErrOverflow {
		r.counts.Overflows++
	}
}
