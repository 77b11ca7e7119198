package tree

import (
	"bytes"
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
}

// A version is the state of a znode from one transaction to the next that touches it.
//
// Invariants:
//  1. once it is installed nothing in it changes but prev;
//  2. prev is older, or nil if there was no znode before, or trimmed once every reader may see this version.
type version struct {
	prev atomic.Pointer[version]
	zxid Zxid // the transaction that made this version

	Znode
	children    children
	numChildren int32
	deleted     bool // the znode does not exist from zxid on
}

// trimmed is the end of a chain whose older versions have been let go.
var trimmed = new(version)

// current is the version the writer works on: that of the transaction being applied, else the newest. It is nil if the
// znode does not exist.
func (e *entry) current() *version {
	v := e.staged
	if v == nil {
		v = e.newest.Load()
	}
	if v == nil || v.deleted {
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
		case v.deleted:
			return nil, false
		}
		return v, false
	}
	return nil, false
}

// clone copies data, keeping nil and empty apart.
func clone(data []byte) []byte { return bytes.Clone(data) }
