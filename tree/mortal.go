package tree

import "time"

// Seen is what a reaper saw of a znode: every transaction that makes it another znode, writes its data, or creates or
// deletes a child moves one of them.
type Seen struct{ Czxid, Mzxid, Pzxid Zxid }

// A Mortal is a TTL znode, or a container that has no children. An ephemeral that lingers is a TTL znode.
type Mortal struct {
	Path string
	Seen
	TTL  int64 // milliseconds; 0: a container
	Used bool  // it has had a child
	Busy bool  // a TTL znode that has children: its age counts, but it cannot be reaped now

	// Since is when its data was written last, or when it began to linger, as At has told.
	Since time.Duration
}

// At tells the time of the caller's own clock, from any zero, for what is applied from now on. All
// before it was at zero, and so was what was loaded. Mortals count by it, and nothing else does: it
// is no part of the state that replicas share, and never moves back.
func (t *Tree) At(now time.Duration) { t.now = now }

// Mortals calls fn with every Mortal as the newest transaction left it, in no order, until fn returns false. It belongs to
// the writer, who may apply and publish transactions while fn runs: of those who come or go by them it is
// open whether fn is called. The cost grows with their number, not with that of all znodes.
func (t *Tree) Mortals(fn func(Mortal) bool) {
	for e, since := range t.mortals {
		v := e.newest.Load()
		m := Mortal{
			Path: e.path,
			Seen: v.seen(),
			TTL:  v.more.traits.ttl,
			Used: v.more.created > 0,
			Busy: v.numChildren() > 0,

			Since: since,
		}
		if !fn(m) {
			return
		}
	}
}

// Reap removes a container or TTL znode that is still as a reaper saw it. It is a transaction of its own, as Apply of one
// operation is, and asks for no permission. The errors are ErrNoNode; ErrBadVersion if anything of seen differs or the
// znode is neither a container nor a TTL znode; ErrNotEmpty.
//
// ZooKeeper's reaper only asks for no children. A write that comes between its look and its delete does not save the
// znode there; here it does.
func (t *Tree) Reap(h Header, path string, seen Seen) error {
	t.begin(&h)
	if err := t.reap(path, seen); err != nil {
		t.abort()
		return err
	}
	t.install()
	return nil
}

func (t *Tree) reap(path string, seen Seen) error {
	e := t.index.get(path)
	if e == nil || e.current() == nil {
		return ErrNoNode
	}
	v := e.current()
	if !v.isMortal() || v.seen() != seen {
		return ErrBadVersion
	}
	if v.numChildren() > 0 {
		return ErrNotEmpty
	}
	t.removeZnode(e)
	return nil
}

func (s *state) seen() Seen { return Seen{s.czxid, s.mzxid, s.pzxid()} }

// markMortal keeps the set of mortals, after a transaction that made the version.
func (t *Tree) markMortal(e *entry, v *version) {
	was := v.mortal
	switch v.mortal = v.isListed(); {
	case v.mortal && (!was || v.mzxid == t.header.Zxid):
		// Children that came and went do not make a TTL znode younger, as in ZooKeeper: only writes do.
		t.mortals[e] = t.now
	case was && !v.mortal:
		delete(t.mortals, e)
	}
}
