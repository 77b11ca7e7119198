package tree

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Loader makes a tree of znodes in their durable form. Make one with NewLoader; it is of no use after Finish.
type Loader struct {
	t        *Tree
	all      []*entry
	entries  []entry   // free ones of a block
	versions []version // likewise
	unsorted bool      // all is not in order of the paths
	parent   *entry    // of the last that was joined
}

// NewLoader returns a Loader that has been given nothing. The schemes are as for New.
func NewLoader(schemes Schemes) *Loader {
	t := &Tree{mortals: map[*entry]time.Duration{}, quotas: map[string]*entry{}}
	t.SetSchemes(schemes)
	return &Loader{t: t}
}

// Add gives the loader one znode, in any order of paths; path order is fastest. It keeps the path, and copies the data and the ACL. Errors
// wrap ErrCorrupt and name the path: it is not valid, or cannot be deleted and yet does not live for ever; the create counter is negative, the TTL is out of range, the znode is of more than one mode, or the ACL is one
// that is never stored. That an ACL names a scheme which is not there, or an id that it would refuse, is no error: the
// entry allows nobody anything.
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

// The blocks in which a Loader allocates: the largest of at most 512 bytes, the size to which Go keeps a block's bitmap of pointers beside
// it. A load only adds to the heap, and the garbage collector goes through all of it each time that it has doubled: with blocks
// it has a third of the objects to mark, which takes a quarter off the time to load a million znodes.
//
// A block stays while one of its znodes does, or one of its first versions, and so does all that those beside it point to. So
// what points to much is allocated by itself: a version with more than blockData bytes, or with children. What is left is
// 112 bytes for a znode that was loaded, its path and small data, and only once.
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

// fault says what is wrong with a znode by itself, or "".
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
		return "is of two modes"
	}
	return aclFault(z.ACL)
}

// Finish returns the tree, with all of it visible. Errors wrap ErrCorrupt and name a path: a znode that was given twice, or whose parent is
// missing or an ephemeral, that has more children than were ever created, or a zxid later than visible; a znode missing
// that exists from birth.
func (l *Loader) Finish(visible Zxid) (*Tree, error) {
	// Path order is that of the children, and decides which of several faults is found.
	if l.unsorted {
		slices.SortFunc(l.all, byPath)
	}
	if err := l.index(); err != nil {
		return nil, err
	}
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, configPath} {
		if l.t.index.get(path) == nil {
			return nil, corrupt(path, "is missing")
		}
	}
	for _, e := range l.all {
		if err := l.join(e, visible); err != nil {
			return nil, err
		}
	}
	for _, e := range slices.Backward(l.all) { // what is below a znode has been counted before it is
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

// index makes the index, once it is known how large.
func (l *Loader) index() error {
	l.t.index = newIndex(len(l.all))
	for i, e := range l.all {
		if i > 0 && l.all[i-1].path == e.path {
			return corrupt(e.path, "is there twice")
		}
		l.t.index.load(e)
		l.t.addQuota(e)
	}
	return nil
}

// join makes an entry known to its parent.
func (l *Loader) join(e *entry, visible Zxid) error {
	if z := e.newest.Load().zxid; z > visible {
		return corrupt(e.path, fmt.Sprintf("is of zxid %d, later than %d", z, visible))
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

// initialChildren is the number of children a znode has from birth, which no create counter has counted.
func initialChildren(path string) int32 {
	switch path {
	case rootPath:
		return 1
	case zookeeperPath:
		return 2
	}
	return 0
}
