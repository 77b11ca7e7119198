package tree

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Pin is a tree at one zxid for as long as it takes to read it. Meanwhile the writer goes on, and keeps
// the versions that are of use at that zxid and after: to hold a pin costs memory by what is written.
// Any number of goroutines may use it, until Release.
type Pin struct {
	tree *Tree
	zxid Zxid
}

// Pin pins the newest zxid that readers see. It waits for nobody. The caller must Release it.
func (t *Tree) Pin() *Pin { return &Pin{t, t.pins.acquire(t)} }

// Release lets the writer go on without the pin. Nothing may be read by it any more.
func (p *Pin) Release() { p.tree.pins.release(p.zxid) }

// Exists is Tree.Exists at the pinned zxid.
func (p *Pin) Exists(path string) (Stat, bool) {
	v := p.find(path)
	if v == nil {
		return Stat{}, false
	}
	return v.stat(), true
}

// As is Tree.As at the pinned zxid.
func (p *Pin) As(who []Identity) View { return View{tree: p.tree, who: who, pin: p} }

// find returns the version of a znode at the pinned zxid, or nil.
func (p *Pin) find(path string) *version {
	e := p.tree.index.get(path)
	if e == nil {
		return nil
	}
	v, _ := e.at(p.zxid)
	return v
}

// pins are the zxids that are pinned. The zero value has none.
type pins struct {
	mu    rank.Mutex[rank.Pin]
	held  []Zxid        // in order
	after atomic.Uint64 // the least of them plus one, or less; zero if there is none
}

func (p *pins) acquire(t *Tree) Zxid {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		p.after.Store(uint64(t.Visible()) + 1)
	}
	// Whatever the writer lets go without having seen the pin, it does up to a zxid that was visible by then.
	z := t.Visible()
	p.held = append(p.held, z)
	return z
}

func (p *pins) release(z Zxid) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.held, z)
	p.held = slices.Delete(p.held, i, i+1)
	if i > 0 {
		return
	}
	if len(p.held) == 0 {
		p.held = nil
		p.after.Store(0)
		return
	}
	p.after.Store(uint64(p.held[0]) + 1)
}

// limit is the zxid up to which versions may be relied on to be the oldest of use.
func (p *pins) limit() Zxid {
	if after := p.after.Load(); after > 0 {
		return Zxid(after - 1)
	}
	return math.MaxUint64
}
