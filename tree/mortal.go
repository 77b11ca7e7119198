package tree

import "time"

// Seen is what a reaper saw of a znode. It changes with every transaction that replaces the znode,
// writes its data, or creates or deletes a child.
type Seen struct{ Czxid, Mzxid, Pzxid Zxid }

// A Mortal is a TTL znode, or a container without children. A lingering znode is a TTL znode.
type Mortal struct {
	Path string
	Seen
	TTL  int64 // milliseconds; 0 for a container
	Used bool  // the znode has had a child
	Busy bool  // a TTL znode with children: it ages, but cannot be reaped now

	// Since is when the data was last written, or when the znode began to linger, on the clock of
	// At.
	Since time.Duration
}

// At sets the time on the caller's own clock, which may start anywhere, for all later transactions.
// Everything before the first call, loading included, counts as zero. Only Mortals uses this time.
// It is not part of the state that replicas share, and never goes back.
func (t *Tree) At(now time.Duration) { t.now = now }

// Mortals calls fn for every Mortal as the newest transaction left it, in no order, until fn
// returns false. It belongs to the writer, who may apply and publish transactions inside fn.
// Mortals that appear or disappear in such a transaction may or may not be included. The cost grows
// with the number of mortals, not of znodes.
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

// Reap removes a container or TTL znode that has not changed since a reaper saw it. Reap is a
// transaction of its own, like Apply with one operation, and checks no permission. The errors are
// ErrNoNode; ErrBadVersion if anything in seen differs, or the znode is neither a container nor a
// TTL znode; and ErrNotEmpty.
//
// ZooKeeper's reaper checks only that there are no children. So a write between its look and its
// delete does not save the znode there; here it does.
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

// markMortal updates the set of mortals after a transaction that made the version.
func (t *Tree) markMortal(e *entry, v *version) {
	was := v.mortal
	switch v.mortal = v.isListed(); {
	case v.mortal && (!was || v.mzxid == t.header.Zxid):
		// As in ZooKeeper, only writes make a TTL znode younger. Children that came and went do
		// not.
		t.mortals[e] = t.now
	case was && !v.mortal:
		delete(t.mortals, e)
	}
}
