package tree

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Loader makes a tree of znodes in their durable form. Make one with NewLoader; it is of no use after Finish.
type Loader struct {
	t   *Tree
	all []*entry
}

// NewLoader returns a Loader that has been given nothing.
func NewLoader() *Loader { return &Loader{t: new(Tree)} }

// Add gives the loader one znode, in any order of paths; path order is fastest. It copies the data. Errors wrap
// ErrCorrupt and name the path: it is not valid, was given before, or cannot be deleted and yet is an ephemeral, or the
// create counter is negative.
func (l *Loader) Add(path string, z Znode) error {
	switch {
	case pathFault(path) != "":
		return corrupt(path, pathFault(path))
	case l.t.index.get(path) != nil:
		return corrupt(path, "is there twice")
	case isReserved(path) && z.Owner != 0:
		return corrupt(path, "is an ephemeral")
	case z.Created < 0:
		return corrupt(path, "has a negative create counter")
	}
	z.Data = clone(z.Data)
	e := &entry{path: strings.Clone(path)}
	e.newest.Store(&version{zxid: max(z.Czxid, z.Mzxid, z.Pzxid), Znode: z})
	l.t.index.add(e)
	l.all = append(l.all, e)
	return nil
}

// Finish returns the tree, with all of it visible. Errors wrap ErrCorrupt and name a path: a znode whose parent is
// missing or an ephemeral, that has more children than were ever created, or a zxid later than visible; a znode missing
// that exists from birth.
func (l *Loader) Finish(visible Zxid) (*Tree, error) {
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, configPath} {
		if l.t.index.get(path) == nil {
			return nil, corrupt(path, "is missing")
		}
	}
	// Path order fills the pages of children best, and decides which of several faults is found.
	slices.SortFunc(l.all, byPath)
	for _, e := range l.all {
		if err := l.join(e, visible); err != nil {
			return nil, err
		}
	}
	for _, e := range l.all {
		if v := e.newest.Load(); v.Created < math.MaxInt32 && v.numChildren-bornChildren(e.path) > v.Created {
			return nil, corrupt(e.path, "has more children than were created")
		}
	}
	t := l.t
	t.applied = visible
	t.count = int64(len(l.all))
	t.Publish()
	return t, nil
}

// join makes an entry known to its parent.
func (l *Loader) join(e *entry, visible Zxid) error {
	if z := e.newest.Load().zxid; z > visible {
		return corrupt(e.path, fmt.Sprintf("is of zxid %d, later than %d", z, visible))
	}
	if e.path == rootPath {
		return nil
	}
	e.parent = l.t.index.get(Parent(e.path))
	if e.parent == nil {
		return corrupt(e.path, "has no parent")
	}
	p := e.parent.newest.Load()
	if p.Owner != 0 {
		return corrupt(e.path, "has an ephemeral as parent")
	}
	p.children = p.children.add(Base(e.path), l.t.edit)
	p.numChildren++
	return nil
}

// bornChildren is the number of children a znode has from birth, which no create counter has counted.
func bornChildren(path string) int32 {
	switch path {
	case rootPath:
		return 1
	case zookeeperPath:
		return 2
	}
	return 0
}
