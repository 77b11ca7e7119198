package tree

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Pin shows a tree at one zxid, for a read of many znodes. Meanwhile the writer continues, and
// keeps the versions that are needed at that zxid or after it. So a pin costs memory in proportion
// to what is written. Any number of goroutines may use a Pin until Release.
type Pin struct {
	tree *Tree
	zxid Zxid
}

// Pin pins the newest visible zxid. If a transaction has been announced, Pin waits until it is
// visible. The caller must call Release.
func (t *Tree) Pin() *Pin {
	t.settled()
	return &Pin{t, t.pins.acquire(t)}
}

// Release ends the pin. Afterwards it must not be used for reading.
func (p *Pin) Release() { p.tree.pins.release(p.zxid) }

// Zxid returns the pinned zxid.
func (p *Pin) Zxid() Zxid { return p.zxid }

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
	v, _, _ := e.at(p.zxid)
	return v
}

// pins is the set of pinned zxids. The zero value is empty.
type pins struct {
	mu    rank.Mutex[rank.Pin]
	held  []Zxid        // sorted
	after atomic.Uint64 // the least pinned zxid plus one, or less; zero if there is none
}

func (p *pins) acquire(t *Tree) Zxid {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		p.after.Store(uint64(t.Visible()) + 1)
	}
	// Read the visible zxid again. If the writer has not seen the pin, it drops only versions that
	// a reader at this zxid or later does not need.
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

// limit returns the newest zxid whose versions' predecessors may be dropped.
func (p *pins) limit() Zxid {
	if after := p.after.Load(); after > 0 {
		return Zxid(after - 1)
	}
	return math.MaxUint64
}
