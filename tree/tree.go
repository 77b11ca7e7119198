package tree

import (
	"bytes"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Tree holds the znodes of one shard. It has one writer and any number of readers. Make one with
// New or a Loader.
//
// Invariants, between two calls of the writer:
//
//  1. The index holds exactly the znodes that exist, and those that the newest transaction deleted.
//  2. Every znode except the root is in the children of its parent, and every child is in the
//     index.
//  3. An ephemeral has no children. The initial znodes exist and are not ephemerals.
//  4. No zxid in the tree is later than applied. visible is applied, or before Publish the previous
//     transaction.
//  5. A version has a predecessor only if the newest transaction made it or a pin keeps it.
//  6. The mortals are the TTL znodes, and the containers without children. An ephemeral is neither,
//     until it lingers.
//  7. The quotas hold every entry of limits in the index.
//  8. Every znode counts the znodes below it.
type Tree struct {
	index   *index
	visible atomic.Uint64 // the zxid that readers see
	length  atomic.Int64  // znodes that exist at visible
	size    atomic.Int64  // bytes of their paths and data
	pins    pins
	schemes atomic.Pointer[Schemes] // stored by the writer

	announced    atomic.Uint64                 // newest zxid that watchers may have heard of
	announcement rank.Mutex[rank.Announcement] // held by the writer from Announce to Publish

	visibleWeight atomic.Int64 // see Weight

	// Owned by the writer.
	applied     Zxid                     // newest successful transaction
	unpublished bool                     // applied is ahead of visible
	announcing  bool                     // the writer holds announcement
	edit        uint64                   // counts transactions; pages of the present one may be changed in place
	header      Header                   // of the transaction being applied
	touched     []made                   // staged versions, in the order of the first change
	changes     []Change                 // of the newest transaction
	recent      []made                   // made by the newest successful transaction, and older ones that a pin keeps
	kept        int64                    // bytes of what recent has replaced
	dirty       []*entry                 // changed since the last Drain
	count       int64                    // znodes that exist at applied
	bytes       int64                    // bytes of their paths and data
	weight      int64                    // of all znodes
	weightMax   int64                    // see SetWeightMax
	mortals     map[*entry]time.Duration // with the time of the last write; see At
	now         time.Duration            // see At
	quotas      map[string]*entry        // limits, by subtree
	recounted   bool                     // the transaction being applied has created stats
	charged     []string                 // subtrees whose stats the transaction being applied changed
	over        []string                 // see Over
}

// New returns a tree with the initial znodes of a ZooKeeper: "/", "/zookeeper", "/zookeeper/quota"
// and "/zookeeper/config". The first Drain includes them. The schemes are those of the tree's ACLs;
// nil means BuiltinSchemes. At each transaction they must be the same on every replica.
func New(schemes Schemes) *Tree {
	l := NewLoader(schemes)
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, ConfigPath} {
		if err := l.Add(path, initialZnode(path)); err != nil {
			panic(err)
		}
	}
	t, err := l.Finish(0)
	if err != nil {
		panic(err)
	}
	for _, e := range t.index.all() {
		t.markDirty(e)
	}
	return t
}

// initialZnode returns one of the initial znodes. The config's versions are those that ZooKeeper's
// ensembles show. Only a super identity may write the config.
func initialZnode(path string) Znode {
	z := Znode{Data: []byte{}}
	if path == ConfigPath {
		z.Version, z.Aversion = configVersion, -1
		z.ACL = ReadACL()
	}
	return z
}

// SetSchemes replaces the schemes that judge ACLs. It belongs to the writer.
func (t *Tree) SetSchemes(schemes Schemes) {
	schemes = schemes.usable()
	t.schemes.Store(&schemes)
}

// Visible returns the zxid of the newest transaction that readers see.
func (t *Tree) Visible() Zxid { return Zxid(t.visible.Load()) }

// Len returns the number of znodes, including the initial ones.
func (t *Tree) Len() int { return int(t.length.Load()) }

// Size returns the bytes of the paths and data of these znodes.
func (t *Tree) Size() int { return int(t.size.Load()) }

// The reads of Tree check no permission; those of a View do.

// Get returns a znode's data and Stat, or ErrNoNode. The data is a copy that belongs to the caller.
// It is nil if it was set to nil.
func (t *Tree) Get(path string) ([]byte, Stat, error) {
	v := t.find(path)
	if v == nil {
		return nil, Stat{}, ErrNoNode
	}
	return bytes.Clone(v.bytes()), v.stat(), nil
}

// Exists returns a znode's Stat, or false if the znode does not exist.
func (t *Tree) Exists(path string) (Stat, bool) {
	v := t.find(path)
	if v == nil {
		return Stat{}, false
	}
	return v.stat(), true
}

// Children returns the names of a znode's children in byte order, and its Stat, or ErrNoNode. Both
// are of the same zxid.
func (t *Tree) Children(path string) ([]string, Stat, error) {
	v := t.find(path)
	if v == nil {
		return nil, Stat{}, ErrNoNode
	}
	return v.names(), v.stat(), nil
}

// Before returns the name of the sibling directly before a znode. Siblings are ordered by sequence
// suffix, the last ten characters of a name if they are digits. Names with equal suffixes are in
// byte order. If match is given, Before skips siblings whose name contains none of its strings.
//
// Before returns false if there is no such sibling, or if the znode has no suffix. It returns
// ErrNoNode if the znode does not exist. It reads everything at one zxid.
//
// The cost grows with the logarithm of the number of siblings, and with the number of skipped
// siblings.
func (t *Tree) Before(path string, match ...string) (name string, ok bool, err error) {
	parent, own := findParent(t.find, path)
	if parent == nil {
		return "", false, ErrNoNode
	}
	return parent.before(own, match)
}

// findParent returns the visible version of a znode's parent, or nil, and the znode's name. The
// root is its own parent and has no name.
func findParent(find func(string) *version, path string) (parent *version, own string) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 || strings.HasPrefix(path, "//") || slash == len(path)-1 && path != rootPath {
		return nil, ""
	}
	return find(parentOf(path, slash)), path[slash+1:]
}

// before is Before for the name of a child; the empty name means the root itself.
func (v *version) before(own string, match []string) (name string, ok bool, err error) {
	if own != "" && !v.rest().children.has(own) {
		return "", false, ErrNoNode
	}
	name, ok = v.rest().children.before(own, match)
	return name, ok, nil
}

// find returns the visible version of a znode, or nil.
func (t *Tree) find(path string) *version {
	// Load the visible zxid first. Everything found afterwards is that old or newer, and entry.at
	// tells which.
	visible := t.Visible()
	e := t.index.get(path)
	if e == nil {
		return nil
	}
	v, newer, late := e.at(visible)
	if newer || rank.Checked {
		v, _, late = e.at(t.settled())
	}
	for late {
		v, _, late = e.at(t.Visible())
	}
	return v
}
