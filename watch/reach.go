package watch

import "github.com/vivarium-go/vivarium/tree"

// reaching are those who wait until readers see a transaction, each with its zxid. It is guarded by
// the registry's lock. The zero value is empty.
type reaching map[chan struct{}]tree.Zxid

// Reached returns a channel that is closed once readers see transaction z or a later one, or once
// the registry is closed. The caller calls stop when it no longer waits.
func (r *Registry) Reached(z tree.Zxid) (reached <-chan struct{}, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{})
	if r.zxid >= z || r.isClosed {
		close(c)
		return c, func() {}
	}
	if r.reaching == nil {
		r.reaching = make(reaching)
	}
	r.reaching[c] = z
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.reaching, c)
	}
}

// tellUpTo tells those who wait for a transaction up to z.
func (w reaching) tellUpTo(z tree.Zxid) {
	for c, at := range w {
		if at <= z {
			close(c)
			delete(w, c)
		}
	}
}
