package tree

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Loader builds a tree from znodes in their durable form. Make one with NewLoader. It is not
// usable after Finish.
type Loader struct {
	t        *Tree
	all      []*entry
	entries  []entry   // unused entries of the present block
	versions []version // unused versions of the present block
	unsorted bool      // all is not sorted by path
	parent   *entry    // parent of the last znode that was joined
}

// NewLoader returns an empty Loader. The schemes are as for New.
func NewLoader(schemes Schemes) *Loader {
	t := &Tree{mortals: map[*entry]time.Duration{}, quotas: map[string]*entry{}}
	t.SetSchemes(schemes)
	return &Loader{t: t}
}

// Add adds one znode. The paths may come in any order; sorted paths are fastest. Add keeps the
// path, and copies the data and the ACL.
//
// Errors wrap ErrCorrupt and name the path. The causes are:
//
//   - an invalid path
//   - a negative create counter, or a TTL out of range
//   - a znode of more than one mode
//   - an initial znode that is not persistent
//   - an ACL that is never stored
//
// An unknown scheme in an ACL, or an id that its scheme refuses, is no error: such an entry permits
// nothing.
func (l *Loader) Add(path string, z Znode) error {
	fault := pathFault(path)
	if fault == "" {
		fault = z.fault(path)
	}
	if fault != "" {
		return corrupt(path, fault)
	}
	z.ACL = cloneACL(z.ACL)
	e, v := l.newEntry(), l.newVersion(newState(&z))
	e.path, v.zxid = path, max(z.Czxid, z.Mzxid, z.Pzxid)
	e.newest.Store(v)
	if n := len(l.all); n > 0 && l.all[n-1].path > path {
		l.unsorted = true
	}
	l.all = append(l.all, e)
	return nil
}

// The sizes of the blocks in which a Loader allocates. They are the largest of at most 512 bytes,
// the size up to which Go keeps a block's pointer bitmap beside it. While loading, nothing on the
// heap is freed, and the garbage collector scans all of it each time it has doubled. With blocks it
// has a third of the objects to mark, and a million znodes load in three quarters of the time.
//
// A block stays in memory as long as one of its znodes or first versions does, and so does
// everything that its other parts point to. So a version that points to much is allocated alone:
// one with more than blockData bytes, or with children. What remains is 112 bytes for each loaded
// znode, and its path and small data, and only once.
const (
	entryBlock   = 16
	versionBlock = 6
	blockData    = 128
)

func (l *Loader) newEntry() *entry {
	if len(l.entries) == 0 {
		l.entries = make([]entry, entryBlock)
	}
	e := &l.entries[0]
	l.entries = l.entries[1:]
	return e
}

func (l *Loader) newVersion(s state) *version {
	if len(s.data) > blockData || s.more != nil {
		return &version{state: s}
	}
	if len(l.versions) == 0 {
		l.versions = make([]version, versionBlock)
	}
	v := &l.versions[0]
	l.versions = l.versions[1:]
	v.state = s
	return v
}

// fault returns what is wrong with a znode by itself, or "".
func (z *Znode) fault(path string) string {
	mortal := z.Container || z.TTL != 0
	switch {
	case isReserved(path) && z.Owner != 0:
		return "is an ephemeral"
	case isReserved(path) && mortal:
		return "is a container or has a TTL"
	case z.Created < 0:
		return "has a negative create counter"
	case z.TTL < 0 || z.TTL > MaxTTL:
		return "has a TTL out of range"
	case z.Container && (z.Owner != 0 || z.TTL != 0):
		return "has more than one mode"
	}
	return aclFault(z.ACL)
}

// Finish returns the tree, with everything visible. Errors wrap ErrCorrupt and name a path. The
// causes are:
//
//   - a znode that was added twice
//   - a znode whose parent is missing or an ephemeral
//   - a znode with more children than were ever created
//   - a zxid later than visible
//   - a missing initial znode
func (l *Loader) Finish(visible Zxid) (*Tree, error) {
	// The children need path order. It also decides which of several faults is reported.
	if l.unsorted {
		slices.SortFunc(l.all, byPath)
	}
	if err := l.index(); err != nil {
		return nil, err
	}
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, ConfigPath} {
		if l.t.index.get(path) == nil {
			return nil, corrupt(path, "is missing")
		}
	}
	for _, e := range l.all {
		if err := l.join(e, visible); err != nil {
			return nil, err
		}
	}
	for _, e := range slices.Backward(l.all) { // children before parents, so that their counts are complete
		if e.parent != nil {
			e.parent.newest.Load().more.below += 1 + e.newest.Load().rest().below
		}
	}
	for _, e := range l.all {
		v := e.newest.Load()
		if r := v.more; r != nil {
			if r.created < math.MaxInt32 && r.numChildren-initialChildren(e.path) > r.created {
				return nil, corrupt(e.path, "has more children than were created")
			}
			r.children = r.children.built()
		}
		l.t.bytes += e.size(v)
		l.t.weight += e.weight(v)
		l.t.markMortal(e, v)
	}
	t := l.t
	t.applied = visible
	t.count = int64(len(l.all))
	t.Publish()
	return t, nil
}

// index builds the index, whose size is known only now.
func (l *Loader) index() error {
	l.t.index = newIndex(len(l.all))
	for i, e := range l.all {
		if i > 0 && l.all[i-1].path == e.path {
			return corrupt(e.path, "was added twice")
		}
		l.t.index.load(e)
		l.t.addQuota(e)
	}
	return nil
}

// join adds an entry to its parent.
func (l *Loader) join(e *entry, visible Zxid) error {
	if z := e.newest.Load().zxid; z > visible {
		return corrupt(e.path, fmt.Sprintf("has zxid %d, later than %d", z, visible))
	}
	if e.path == rootPath {
		return nil
	}
	if parent := Parent(e.path); l.parent == nil || l.parent.path != parent {
		l.parent = l.t.index.get(parent)
	}
	e.parent = l.parent
	if e.parent == nil {
		return corrupt(e.path, "has no parent")
	}
	p := e.parent.newest.Load()
	if p.rest().owner != 0 {
		return corrupt(e.path, "has an ephemeral as parent")
	}
	e.newest.Load().share(p.rest().traits)
	r := p.own()
	r.children.gather(Base(e.path))
	r.numChildren++
	return nil
}

// initialChildren returns how many of a znode's children are initial ones, which no create counter
// has counted.
func initialChildren(path string) int32 {
	switch path {
	case rootPath:
		return 1
	case zookeeperPath:
		return 2
	}
	return 0
}
