package tree

import (
	"slices"
	"sync/atomic"
	"unsafe"
)

// A Znode is a znode in its durable form: everything but its children, which follow from the paths.
type Znode struct {
	Czxid, Mzxid, Pzxid Zxid  // as in Stat
	Ctime, Mtime        int64 // Unix milliseconds
	Version, Aversion   int32 // as in Stat
	Created             int32 // create counter: children ever created, up to 2147483647; the next sequence suffix
	Owner               SessionID
	Data                []byte // nil and empty are kept apart

	ACL       []ACL // nil: OpenACL, which is never stored as such
	Container bool  // of the mode Container
	TTL       int64 // milliseconds if it is of a TTL mode, or an ephemeral that is to linger or lingers, else 0
}

// An entry is what the index holds for a path: the chain of versions its znode has gone through of late. It takes 32 bytes.
type entry struct {
	// Immutable once it is in the index. The parent's entry outlives this one, whatever transactions do to both: a parent
	// goes after its children and comes before them. Only the writer uses it.
	path   string
	parent *entry // nil for the root

	// Stored by the writer, loaded by readers. Nil until the first version is staged. The staged one is later than visible.
	newest atomic.Pointer[version]
}

// A version is the state of a znode from one transaction to the next that touches it.
//
// Invariants:
//  1. once it is installed nothing in it changes but prev and the writer's marks;
//  2. prev is older, or nil if there was no znode before, or trimmed once every reader may see this version.
type version struct {
	prev atomic.Pointer[version]
	zxid Zxid // the transaction that made this version
	state
}

// A state is what a version says of its znode: the Znode and the children. Together with the rest of a version it takes
// 80 bytes, a size that Go allocates without waste; a tree has as many of them as znodes. It was 128 with what is in rest, and
// with data as a slice, which has a capacity.
type state struct {
	czxid, mzxid Zxid
	ctime, mtime int64
	data         string
	version      int32
	null         bool // the data is nil
	marks
	more *rest // nil: pzxid is czxid, and the others are zero
}

// marks are the writer's own, of a znode's newest version. Readers do not look at them.
type marks struct {
	staged bool // of the transaction being applied
	dirty  bool // touched since the last Drain
	mortal bool // among the tree's mortals
}

// The rest is what most znodes, which never had a child and no owner, have not got. Each version has its own.
type rest struct {
	pzxid       Zxid
	owner       SessionID
	created     int32
	aversion    int32
	numChildren int32 // gone if the znode does not exist
	below       int32 // how many znodes there are below it, at any depth
	children    children
	traits      *traits
}

// gone is the number of children of a znode that does not exist.
const gone = -1

// absent is the rest of a znode that does not exist, none of one that has none of its own.
var absent, none = &rest{numChildren: gone}, &rest{}

// rest is what there is to read of it, but for pzxid.
func (s *state) rest() *rest {
	if s.more == nil {
		return none
	}
	return s.more
}

// own is the rest of a version that is being made, to be written.
func (s *state) own() *rest {
	if s.more == nil {
		s.more = &rest{pzxid: s.czxid}
	}
	return s.more
}

func (s *state) pzxid() Zxid {
	if s.more == nil {
		return s.czxid
	}
	return s.more.pzxid
}

// bytes is the data where it lies: nobody may change it.
func (s *state) bytes() []byte {
	switch {
	case s.null:
		return nil
	case s.data == "":
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s.data), len(s.data)) // a copy here was one more for each record of the image
}

// setData has the state keep a copy of the data.
func (s *state) setData(data []byte) { s.data, s.null = string(data), data == nil }

// traits are what few znodes have. They are immutable and may be shared; nil is an ordinary znode with an open ACL.
type traits struct {
	acl       []ACL
	ttl       int64
	container bool
}

// newTraits returns the traits of a znode whose parent has those of near. Of what is equal there is one copy, so a million
// znodes under one ACL cost no more than a million open ones. It keeps the list; see keepACL.
func newTraits(acl []ACL, ttl int64, container bool, near *traits) *traits {
	if near != nil && slices.Equal(acl, near.acl) {
		if near.ttl == ttl && near.container == container {
			return near
		}
		acl = near.acl
	}
	if acl == nil && ttl == 0 && !container {
		return nil
	}
	return &traits{acl: acl, ttl: ttl, container: container}
}

// keepACL returns a list that may be kept: that of near if it is equal, else a copy.
func keepACL(acl []ACL, near *traits) []ACL {
	if near != nil && slices.Equal(acl, near.acl) {
		return near.acl
	}
	return cloneACL(acl)
}

// share gives the state the traits of near, or its ACL, if they are equal.
func (s *state) share(near *traits) {
	if own := s.rest().traits; own != nil && near != nil {
		s.more.traits = newTraits(own.acl, own.ttl, own.container, near)
	}
}

// trimmed is the end of a chain whose older versions have been let go.
var trimmed = new(version)

// newState is a znode without its children, which shares the ACL.
func newState(z *Znode) state {
	s := state{czxid: z.Czxid, mzxid: z.Mzxid, ctime: z.Ctime, mtime: z.Mtime, version: z.Version}
	s.setData(z.Data)
	r := rest{pzxid: z.Pzxid, owner: z.Owner, created: z.Created, aversion: z.Aversion, traits: newTraits(z.ACL, z.TTL, z.Container, nil)}
	if r != (rest{pzxid: z.Czxid}) {
		more := r // of its own: r stays on the stack, and most znodes need none
		s.more = &more
	}
	return s
}

// znode is the durable form, which shares the data and the ACL.
func (s *state) znode() Znode {
	r := s.rest()
	z := Znode{
		Czxid: s.czxid, Mzxid: s.mzxid, Pzxid: s.pzxid(),
		Ctime: s.ctime, Mtime: s.mtime,
		Version: s.version, Aversion: r.aversion,
		Created: r.created,
		Owner:   r.owner,
		Data:    s.bytes(),
	}
	if r.traits != nil {
		z.ACL, z.TTL, z.Container = r.traits.acl, r.traits.ttl, r.traits.container
	}
	return z
}

func (s *state) exists() bool { return s.rest().numChildren != gone }

func (s *state) numChildren() int { return int(s.rest().numChildren) }

// below is how many znodes there are below it, at any depth.
func (s *state) below() int { return int(s.rest().below) }

// names are those of the children, in order.
func (s *state) names() []string { return s.rest().children.list(s.numChildren()) }

func (s *state) acl() []ACL {
	if traits := s.rest().traits; traits != nil {
		return traits.acl
	}
	return nil
}

// isMortal reports whether the znode is one that a reaper may remove. An ephemeral is none, whatever it has been given for later.
func (s *state) isMortal() bool {
	r := s.rest()
	return r.traits != nil && r.owner == 0 && (r.traits.container || r.traits.ttl > 0)
}

// isListed reports whether the znode is a Mortal. Containers with children are not: they are many, and their age says nothing.
func (v *version) isListed() bool {
	return v.isMortal() && (v.numChildren() == 0 || v.more.traits.ttl > 0)
}

// isCount reports whether a version differs from the one before only in how many znodes are below
// it. That is not in the durable form of the znode, so it need not be stored anew.
func (v *version) isCount() bool {
	old := v.prev.Load().orNil()
	if old == nil || old.more == nil || v.more == nil {
		return false
	}
	was, rest := old.state, *old.more
	was.marks, was.more = v.marks, v.more
	rest.below = v.more.below
	return was == v.state && rest == *v.more
}

// current is the version the writer works on: that of the transaction being applied, else the newest. It is nil if the
// znode does not exist.
func (e *entry) current() *version { return e.newest.Load().orNil() }

// before is the version that the transactions before the one being applied left; nil if the znode did not exist.
func (e *entry) before() *version {
	v := e.newest.Load()
	if v != nil && v.staged {
		v = v.prev.Load()
	}
	return v.orNil()
}

// orNil returns the version, or nil if it says that the znode does not exist.
func (v *version) orNil() *version {
	if v == nil || !v.exists() {
		return nil
	}
	return v
}

// size is the bytes of the znode's path and data in one of its versions; nothing where it does not exist.
func (e *entry) size(v *version) int64 {
	if v.orNil() == nil {
		return 0
	}
	return int64(len(e.path) + len(v.data))
}

// at returns the version that is visible at a zxid, nil if the znode did not exist then; late is set if the chain no
// longer goes back that far.
func (e *entry) at(visible Zxid) (v *version, late bool) {
	for v = e.newest.Load(); v != nil; v = v.prev.Load() {
		switch {
		case v == trimmed:
			return nil, true
		case v.zxid > visible:
			continue
		}
		return v.orNil(), false
	}
	return nil, false
}
