package tree

import (
	"math"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A pin lets one reader at a time see the tree at one zxid for as long as it takes: while it is taken, the writer keeps
// the versions that are of use at the pinned zxid and after. Its zero value is free.
type pin struct {
	rank.Mutex[rank.Pin]               // held by the reader that has taken it
	after                atomic.Uint64 // the pinned zxid plus one; zero if there is none
}

// take waits for the pin and returns a zxid at which every znode can be read until release.
func (p *pin) take(t *Tree) Zxid {
	p.Lock()
	p.after.Store(uint64(t.Visible()) + 1)
	// Whatever the writer lets go without having seen the pin, it does up to a zxid that was visible by then.
	return t.Visible()
}

func (p *pin) release() {
	p.after.Store(0)
	p.Unlock()
}

// limit is the zxid up to which versions may be relied on to be the oldest of use.
func (p *pin) limit() Zxid {
	if after := p.after.Load(); after > 0 {
		return Zxid(after - 1)
	}
	return math.MaxUint64
}

// findAt returns the version of a znode at a zxid that is pinned, or nil.
func (t *Tree) findAt(path string, pinned Zxid) *version {
	e := t.index.get(path)
	if e == nil {
		return nil
	}
	v, _ := e.at(pinned)
	return v
}

// descendants counts the znodes below a version, at a zxid that is pinned.
func (t *Tree) descendants(path string, v *version, pinned Zxid) int {
	n := v.numChildren()
	if path == rootPath {
		path = ""
	}
	for _, name := range v.names() {
		child := path + "/" + name
		if c := t.findAt(child, pinned); c != nil && c.numChildren() > 0 {
			n += t.descendants(child, c, pinned)
		}
	}
	return n
}
