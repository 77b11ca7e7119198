package tree

import (
	"slices"
	"sync/atomic"
	"unsafe"
)

// A Znode is a znode in its durable form: everything except its children, which follow from the
// paths.
type Znode struct {
	Czxid, Mzxid, Pzxid Zxid  // as in Stat
	Ctime, Mtime        int64 // Unix milliseconds
	Version, Aversion   int32 // as in Stat
	Created             int32 // children ever created, up to 2147483647; the next suffix
	Owner               SessionID
	Data                []byte // nil and empty are kept apart

	ACL       []ACL // nil: OpenACL, which is never stored as such
	Container bool  // of the mode Container
	// TTL is in milliseconds. It is 0 unless the znode has a TTL mode, or was created as an
	// ephemeral with a TTL.
	TTL int64
}

// An entry is what the index holds for a path: the chain of the znode's latest versions. It
// occupies 32 bytes.
type entry struct {
	// Immutable once it is in the index; used by the writer only. The parent's entry outlives this
	// one: transactions create a parent before its children and delete it after them.
	path   string
	parent *entry // nil for the root

	// Stored by the writer, loaded by readers. Nil until the first version is staged. A staged
	// version is later than visible.
	newest atomic.Pointer[version]
}

// A version is the state of a znode from one transaction to the next that changes it.
//
// Invariants:
//
//  1. Once installed, a version does not change, except for prev and the writer's marks.
//  2. prev is an older version. It is nil if there was no znode before, or trimmed once every
//     reader may see this version.
type version struct {
	prev atomic.Pointer[version]
	zxid Zxid // the transaction that made this version
	state
}

// A state is what a version holds of its znode: the Znode and the children. A version with its
// state occupies 80 bytes, a size that Go allocates without waste, and a tree has one for each
// znode. With the fields of rest, and with data as a slice instead of a string, it was 128 bytes.
type state struct {
	czxid, mzxid Zxid
	ctime, mtime int64
	data         string
	version      int32
	null         bool // the data is nil, not empty
	marks
	more *rest // nil: pzxid is czxid, and all other fields are zero
}

// marks belong to the writer. They describe a znode's newest version. Readers ignore them.
type marks struct {
	staged bool // by the transaction being applied
	dirty  bool // changed since the last Drain
	mortal bool // among the tree's mortals
}

// A rest holds the fields that are zero for most znodes, which never had a child and have no owner.
// Each version has its own.
type rest struct {
	pzxid       Zxid
	owner       SessionID
	created     int32
	aversion    int32
	numChildren int32 // gone if the znode does not exist
	below       int32 // znodes below it, at any depth
	children    children
	traits      *traits
}

// gone is the number of children that marks a znode as absent.
const gone = -1

// absent is the rest of a znode that does not exist. none is the rest of a znode without one.
var absent, none = &rest{numChildren: gone}, &rest{}

// rest returns the state's rest for reading, but without a valid pzxid.
func (s *state) rest() *rest {
	if s.more == nil {
		return none
	}
	return s.more
}

// own returns the state's rest for writing, and creates it if needed. The version must be
// unfinished.
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

// bytes returns the data without copying it. Nobody may change it.
func (s *state) bytes() []byte {
	switch {
	case s.null:
		return nil
	case s.data == "":
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s.data), len(s.data)) // copying would copy every record of the image once more
}

// setData stores a copy of the data.
func (s *state) setData(data []byte) { s.data, s.null = string(data), data == nil }

// traits are the properties that few znodes have. They are immutable and may be shared. Nil means
// an ordinary znode with an open ACL.
type traits struct {
	acl       []ACL
	ttl       int64
	container bool
}

// newTraits returns traits for a znode; near are those of its parent. It shares whatever is equal,
// so a million znodes under one ACL cost no more than a million open ones. It keeps the list; see
// keepACL.
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

// keepACL returns a list that may be kept: the one in near if it is equal, else a copy.
func keepACL(acl []ACL, near *traits) []ACL {
	if near != nil && slices.Equal(acl, near.acl) {
		return near.acl
	}
	return cloneACL(acl)
}

// share replaces the state's traits, or only its ACL, by those of near if they are equal.
func (s *state) share(near *traits) {
	if own := s.rest().traits; own != nil && near != nil {
		s.more.traits = newTraits(own.acl, own.ttl, own.container, near)
	}
}

// trimmed marks the end of a chain whose older versions were dropped.
var trimmed = new(version)

// newState returns the state of a znode without its children. It shares the ACL.
func newState(z *Znode) state {
	s := state{czxid: z.Czxid, mzxid: z.Mzxid, ctime: z.Ctime, mtime: z.Mtime, version: z.Version}
	s.setData(z.Data)
	r := rest{pzxid: z.Pzxid, owner: z.Owner, created: z.Created, aversion: z.Aversion, traits: newTraits(z.ACL, z.TTL, z.Container, nil)}
	if r != (rest{pzxid: z.Czxid}) {
		more := r // a copy, so that r stays on the stack: most znodes need none
		s.more = &more
	}
	return s
}

// znode returns the durable form, which shares the data and the ACL.
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

// below returns how many znodes are below this one, at any depth.
func (s *state) below() int { return int(s.rest().below) }

// names returns the names of the children, in order.
func (s *state) names() []string { return s.rest().children.list(s.numChildren()) }

func (s *state) acl() []ACL {
	if traits := s.rest().traits; traits != nil {
		return traits.acl
	}
	return nil
}

// isMortal reports whether a reaper may remove the znode. It is false for every ephemeral, even one
// with a TTL.
func (s *state) isMortal() bool {
	r := s.rest()
	return r.traits != nil && r.owner == 0 && (r.traits.container || r.traits.ttl > 0)
}

// isListed reports whether the znode is a Mortal. Containers with children are not: there are many,
// and their age does not matter.
func (v *version) isListed() bool {
	return v.isMortal() && (v.numChildren() == 0 || v.more.traits.ttl > 0)
}

// isCount reports whether only the number of znodes below differs from the previous version. That
// number is not part of the durable form, so the znode need not be stored again.
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

// current returns the version that the writer works on: the staged one if there is one, else the
// newest. It returns nil if the znode does not exist.
func (e *entry) current() *version { return e.newest.Load().orNil() }

// before returns the version from before the transaction being applied, or nil if the znode did not
// exist.
func (e *entry) before() *version {
	v := e.newest.Load()
	if v != nil && v.staged {
		v = v.prev.Load()
	}
	return v.orNil()
}

// orNil returns the version, or nil if the version says that the znode does not exist.
func (v *version) orNil() *version {
	if v == nil || !v.exists() {
		return nil
	}
	return v
}

// size returns the bytes of path and data in one version, or 0 if the znode does not exist in it.
func (e *entry) size(v *version) int64 {
	if v.orNil() == nil {
		return 0
	}
	return int64(len(e.path) + len(v.data))
}

// at returns the version visible at a zxid, or nil if the znode did not exist then. It sets newer
// if there is a later version, and late if the chain no longer goes back as far as the zxid.
func (e *entry) at(visible Zxid) (v *version, newer, late bool) {
	for v = e.newest.Load(); v != nil; v = v.prev.Load() {
		switch {
		case v == trimmed:
			return nil, newer, true
		case v.zxid > visible:
			newer = true
			continue
		}
		return v.orNil(), newer, false
	}
	return nil, newer, false
}
