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

// A Watched is a path that streams watch, and how many do so in each mode.
type Watched struct {
	Path                        string
	Once, Persistent, Recursive int
}

// Streams looks at up to n streams and returns what they watch, in no order. It reports whether there
// are more streams.
func (r *Registry) Streams(n int) (list []Watched, more bool) {
	at := make(map[string]int) // in list
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range []lists{r.exact, r.recursive} {
		for path, s := range l {
			for ; s != nil; s = s.next {
				if n--; n < 0 {
					return list, true
				}
				i, known := at[path]
				if !known {
					i = len(list)
					at[path], list = i, append(list, Watched{Path: path})
				}
				switch s.mode {
				case Once:
					list[i].Once++
				case Persistent:
					list[i].Persistent++
				default:
					list[i].Recursive++
				}
			}
		}
	}
	return list, false
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
