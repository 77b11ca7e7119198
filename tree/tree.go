package tree

import (
	"bytes"
	"strings"
	"sync/atomic"
	"time"
)

// A Tree is the znodes of one shard: one writer, any number of readers. Make one with New or a Loader.
//
// Invariants, between two calls of the writer:
//  1. the index holds exactly the znodes that exist, and those the newest transaction deleted;
//  2. every znode but the root is in the children of its parent, and every child is in the index;
//  3. an ephemeral has no children; the znodes that exist from birth exist and are not ephemerals;
//  4. no zxid in the tree is later than applied; visible is applied, or the transaction before it until Publish;
//  5. only versions of the newest transaction have a predecessor, and those that a pin keeps;
//  6. the mortals are the TTL znodes, and the containers without children; an ephemeral is neither, until it lingers;
//  7. the quotas hold every entry of limits in the index;
//  8. every znode counts those below it.
type Tree struct {
	index   *index
	visible atomic.Uint64 // the zxid readers see
	length  atomic.Int64  // znodes that exist at visible
	size    atomic.Int64  // bytes of their paths and data
	pins    pins
	schemes atomic.Pointer[Schemes] // stored by the writer

	visibleWeight atomic.Int64 // see Weight

	// Owned by the writer.
	applied     Zxid                     // the newest transaction that succeeded
	unpublished bool                     // applied is ahead of visible
	edit        uint64                   // counts calls of Apply; pages of this one may be changed in place
	header      Header                   // of the transaction being applied
	touched     []made                   // and staged, in the order they were first touched
	changes     []Change                 // of the newest transaction
	recent      []made                   // by the newest transaction that succeeded, and by those before it if a pin keeps them
	dirty       []*entry                 // touched since the last Drain
	count       int64                    // znodes that exist at applied
	bytes       int64                    // of their paths and data
	weight      int64                    // of all of them
	weightMax   int64                    // see SetWeightMax
	mortals     map[*entry]time.Duration // and when each was written; see At
	now         time.Duration            // see At
	quotas      map[string]*entry        // of the limits, by subtree
	recounted   bool                     // the transaction being applied has created stats
	charged     []string                 // subtrees whose stats the transaction being applied changed
	over        []string                 // see Over
}

// New returns a tree with what a ZooKeeper has from birth: "/", "/zookeeper", "/zookeeper/quota" and
// "/zookeeper/config". They belong to the first Drain. The schemes are those of its ACLs; nil means BuiltinSchemes. At each
// transaction they must be the same on every replica.
func New(schemes Schemes) *Tree {
	l := NewLoader(schemes)
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, configPath} {
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

// initialZnode is a znode as it is from birth. The config's versions are what ZooKeeper's ensembles show; nobody but a super
// identity may write it.
func initialZnode(path string) Znode {
	z := Znode{Data: []byte{}}
	if path == configPath {
		z.Version, z.Aversion = -1, -1
		z.ACL = ReadACL()
	}
	return z
}

// SetSchemes has ACLs judged by other schemes from now on. It belongs to the writer.
func (t *Tree) SetSchemes(schemes Schemes) {
	schemes = schemes.usable()
	t.schemes.Store(&schemes)
}

// Visible returns the zxid of the newest transaction that readers see.
func (t *Tree) Visible() Zxid { return Zxid(t.visible.Load()) }

// Len returns the number of znodes, those that exist from birth included.
func (t *Tree) Len() int { return int(t.length.Load()) }

// Size returns how many bytes the paths and the data of those znodes have.
func (t *Tree) Size() int { return int(t.size.Load()) }

// The reads of Tree ask for no permission; those of a View do.

// Get returns a znode's data and Stat, or ErrNoNode. The data is a copy that belongs to the caller; it is nil if it was
// set to nil.
func (t *Tree) Get(path string) ([]byte, Stat, error) {
	v := t.find(path)
	if v == nil {
		return nil, Stat{}, ErrNoNode
	}
	return bytes.Clone(v.bytes()), v.stat(), nil
}

// Exists returns a znode's Stat, or false if there is no such znode.
func (t *Tree) Exists(path string) (Stat, bool) {
	v := t.find(path)
	if v == nil {
		return Stat{}, false
	}
	return v.stat(), true
}

// Children returns the names of a znode's children in byte order and its Stat, both of the same zxid, or ErrNoNode.
func (t *Tree) Children(path string) ([]string, Stat, error) {
	v := t.find(path)
	if v == nil {
		return nil, Stat{}, ErrNoNode
	}
	return v.names(), v.stat(), nil
}

// Before returns the name of the sibling that comes right before a znode in the order of sequence suffixes: the last ten
// characters of a name if they are digits, names of equal suffix in byte order. With match given, siblings whose name
// contains none of its strings are passed over. It is false if there is none, also if the znode itself has no suffix.
// The error is ErrNoNode if the znode does not exist. All is of one zxid.
//
// The cost grows with the logarithm of the number of siblings and with the number of siblings passed over.
func (t *Tree) Before(path string, match ...string) (name string, ok bool, err error) {
	parent, own := findParent(t.find, path)
	if parent == nil {
		return "", false, ErrNoNode
	}
	return parent.before(own, match)
}

// findParent returns the version of a znode's parent that a reader sees, or nil, and the znode's name. The root is its own
// parent and has no name.
func findParent(find func(string) *version, path string) (parent *version, own string) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 || strings.HasPrefix(path, "//") || slash == len(path)-1 && path != rootPath {
		return nil, ""
	}
	return find(parentOf(path, slash)), path[slash+1:]
}

// before is Before for a child's name; the empty one is the root's own.
func (v *version) before(own string, match []string) (name string, ok bool, err error) {
	if own != "" && !v.rest().children.has(own) {
		return "", false, ErrNoNode
	}
	name, ok = v.rest().children.before(own, match)
	return name, ok, nil
}

// find returns the version of a znode that readers see, or nil.
func (t *Tree) find(path string) *version {
	// The visible zxid comes first. Whatever is looked up after it is that old or newer, and entry.at tells which.
	visible := t.Visible()
	e := t.index.get(path)
	if e == nil {
		return nil
	}
	for {
		v, late := e.at(visible)
		if !late {
			return v
		}
		visible = t.Visible()
	}
}
