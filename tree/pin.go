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
	most int64 // see PinWithin; 0: no bound
	lost atomic.Bool
}

// Pin pins the newest visible zxid. If a transaction has been announced, Pin waits until it is
// visible. The caller must call Release, soon.
func (t *Tree) Pin() *Pin { return t.PinWithin(0) }

// PinWithin is Pin for a reader that may take its time. What the tree keeps for the pin is bounded by
// what the tree itself takes, as Weight counts, and most more. When more is written, the oldest pins are
// lost, and a Walk fails with ErrPinLost. Only Walk looks for that.
func (t *Tree) PinWithin(most int64) *Pin {
	t.settled()
	p := &Pin{tree: t, most: most}
	t.pins.acquire(p)
	return p
}

// Release ends the pin. Afterwards it must not be used for reading.
func (p *Pin) Release() { p.tree.pins.release(p) }

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

// pins is the set of pins. The zero value is empty.
type pins struct {
	mu    rank.Mutex[rank.Pin]
	held  []*Pin        // sorted by zxid
	after atomic.Uint64 // the least pinned zxid plus one, or less; zero if there is none
}

func (p *pins) acquire(pin *Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		p.after.Store(uint64(pin.tree.Visible()) + 1)
	}
	// Read the visible zxid again. If the writer has not seen the pin, it drops only versions that
	// a reader at this zxid or later does not need.
	pin.zxid = pin.tree.Visible()
	p.held = append(p.held, pin)
}

func (p *pins) release(pin *Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.held, pin); i >= 0 {
		p.removeLocked(i)
	}
}

// lose loses the oldest pin if it may keep less. It returns false if it does not.
func (p *pins) lose(kept, weight int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 || p.held[0].most == 0 || kept <= p.held[0].most+weight {
		return false
	}
	p.held[0].lost.Store(true) // before the writer drops what it needs
	p.removeLocked(0)
	return true
}

func (p *pins) removeLocked(i int) {
	p.held = slices.Delete(p.held, i, i+1)
	switch {
	case len(p.held) == 0:
		p.held = nil
		p.after.Store(0)
	case i == 0:
		p.after.Store(uint64(p.held[0].zxid) + 1)
	}
}

// limit returns the newest zxid whose versions' predecessors may be dropped.
func (p *pins) limit() Zxid {
	if after := p.after.Load(); after > 0 {
		return Zxid(after - 1)
	}
	return math.MaxUint64
}
