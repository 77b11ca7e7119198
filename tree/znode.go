package tree

import (
	"bytes"
	"slices"
	"sync/atomic"
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
	TTL       int64 // milliseconds if it is of a TTL mode, else 0
}

// An entry is what the index holds for a path: the chain of versions its znode has gone through of late.
type entry struct {
	// Immutable once it is in the index. The parent's entry outlives this one, whatever transactions do to both: a parent
	// goes after its children and comes before them. Only the writer uses it.
	path   string
	parent *entry // nil for the root

	// Stored by the writer, loaded by readers. Nil until the first version is installed.
	newest atomic.Pointer[version]

	// Owned by the writer.
	staged *version // of the transaction being applied; nil if it has not touched the znode
	dirty  bool     // touched since the last Drain
	mortal bool     // among the tree's mortals
}

// A version is the state of a znode from one transaction to the next that touches it.
//
// Invariants:
//  1. once it is installed nothing in it changes but prev;
//  2. prev is older, or nil if there was no znode before, or trimmed once every reader may see this version.
type version struct {
	prev atomic.Pointer[version]
	zxid Zxid // the transaction that made this version
	state
}

// A state is what a version says of its znode: the Znode and the children. Together with the rest of a version it takes
// 128 bytes, a size that Go allocates without waste; a tree has as many of them as znodes.
type state struct {
	czxid, mzxid, pzxid Zxid
	ctime, mtime        int64
	version, aversion   int32
	created             int32
	numChildren         int32 // gone if the znode does not exist
	owner               SessionID
	data                []byte
	children            children
	traits              *traits
}

// gone is the number of children of a znode that does not exist.
const gone = -1

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
	if own := s.traits; own != nil && near != nil {
		s.traits = newTraits(own.acl, own.ttl, own.container, near)
	}
}

// trimmed is the end of a chain whose older versions have been let go.
var trimmed = new(version)

// newState is a znode without its children, which shares the data and the ACL.
func newState(z *Znode) state {
	return state{
		czxid: z.Czxid, mzxid: z.Mzxid, pzxid: z.Pzxid,
		ctime: z.Ctime, mtime: z.Mtime,
		version: z.Version, aversion: z.Aversion,
		created: z.Created,
		owner:   z.Owner,
		data:    z.Data,
		traits:  newTraits(z.ACL, z.TTL, z.Container, nil),
	}
}

// znode is the durable form, which shares the data and the ACL.
func (s *state) znode() Znode {
	z := Znode{
		Czxid: s.czxid, Mzxid: s.mzxid, Pzxid: s.pzxid,
		Ctime: s.ctime, Mtime: s.mtime,
		Version: s.version, Aversion: s.aversion,
		Created: s.created,
		Owner:   s.owner,
		Data:    s.data,
	}
	if s.traits != nil {
		z.ACL, z.TTL, z.Container = s.traits.acl, s.traits.ttl, s.traits.container
	}
	return z
}

func (s *state) exists() bool { return s.numChildren != gone }

func (s *state) acl() []ACL {
	if s.traits == nil {
		return nil
	}
	return s.traits.acl
}

// isMortal reports whether the znode is one that a reaper may remove.
func (s *state) isMortal() bool {
	return s.traits != nil && (s.traits.container || s.traits.ttl > 0)
}

// isListed reports whether the znode is a Mortal. Containers with children are not: they are many, and their age says nothing.
func (v *version) isListed() bool {
	return v.isMortal() && (v.numChildren == 0 || v.traits.ttl > 0)
}

// current is the version the writer works on: that of the transaction being applied, else the newest. It is nil if the
// znode does not exist.
func (e *entry) current() *version {
	if e.staged != nil {
		return e.staged.orNil()
	}
	return e.before()
}

// before is the version that the transactions before the one being applied left; nil if the znode did not exist.
func (e *entry) before() *version { return e.newest.Load().orNil() }

// orNil returns the version, or nil if it says that the znode does not exist.
func (v *version) orNil() *version {
	if v == nil || !v.exists() {
		return nil
	}
	return v
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

// clone copies data, keeping nil and empty apart.
func clone(data []byte) []byte { return bytes.Clone(data) }
