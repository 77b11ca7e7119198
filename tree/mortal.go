package tree

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
}

// Mortals calls fn with every Mortal as the newest transaction left it, in no order, until fn returns false. It belongs to
// the writer. The cost grows with their number, not with that of all znodes.
func (t *Tree) Mortals(fn func(Mortal) bool) {
	for e := range t.mortals {
		v := e.newest.Load()
		m := Mortal{
			Path: e.path,
			Seen: v.seen(),
			TTL:  v.more.traits.ttl,
			Used: v.more.created > 0,
			Busy: v.numChildren() > 0,
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
	is := v.isListed()
	if is == v.mortal {
		return
	}
	v.mortal = is
	if is {
		t.mortals[e] = struct{}{}
	} else {
		delete(t.mortals, e)
	}
}
