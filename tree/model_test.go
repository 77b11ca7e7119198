package tree

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
)

// A model is a tree as simple as can be: a map, copied whole for every transaction. Children are found by looking at
// every path, and counts are kept in the plainest way there is.
type model struct {
	znodes  map[string]modelZnode
	changes []Change
	touched map[string]bool // since the last drain
	applied Zxid
}

type modelZnode struct {
	Znode
	cversion int32 // counted up by creates and deletes, not derived
}

func newModel() *model {
	m := &model{znodes: map[string]modelZnode{}, touched: map[string]bool{}}
	for path, cversion := range map[string]int32{"/": -1, "/zookeeper": -2, "/zookeeper/quota": 0, "/zookeeper/config": 0} {
		z := modelZnode{Znode: Znode{Data: []byte{}}, cversion: cversion}
		if path == "/zookeeper/config" {
			z.Version, z.Aversion = -1, -1
		}
		m.znodes[path] = z
		m.touched[path] = true
	}
	return m
}

// clone returns a copy that shares nothing that changes.
func (m *model) clone() *model {
	return &model{maps.Clone(m.znodes), slices.Clone(m.changes), maps.Clone(m.touched), m.applied}
}

// apply returns the model after the transaction; if it fails, the same model without its changes.
func (m *model) apply(h Header, ops []Op) (*model, []Result, error) {
	next := m.clone()
	next.changes = nil
	var results []Result
	for i, op := range ops {
		r, err := next.applyOp(h, op)
		if err != nil {
			failed := m.clone()
			failed.changes = nil
			if len(ops) == 1 {
				return failed, nil, err
			}
			return failed, nil, &MultiError{i, err}
		}
		r.Kind = op.Kind
		results = append(results, r)
	}
	next.applied = h.Zxid
	return next, results, nil
}

func (m *model) applyOp(h Header, op Op) (Result, error) {
	switch op.Kind {
	case KindCreate:
		return m.create(h, op)
	case KindSet:
		return m.set(h, op)
	case KindDelete:
		return Result{}, m.delete(h, op)
	case KindCheck:
		return Result{}, m.check(op)
	}
	return Result{}, ErrInvalidKind
}

func (m *model) create(h Header, op Op) (Result, error) {
	if op.Mode > 3 || op.Mode%2 == 1 && h.Session == 0 {
		return Result{}, ErrInvalidMode
	}
	if !strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return Result{}, ErrInvalidPath
	}
	parentPath := op.Path[:strings.LastIndex(op.Path, "/")]
	if parentPath == "" {
		parentPath = "/"
	}
	parent, ok := m.znodes[parentPath]
	if !ok {
		return Result{}, ErrNoNode
	}
	path := op.Path
	if op.Mode >= 2 {
		path += fmt.Sprintf("%010d", parent.Created)
	}
	if !modelValid(path) {
		return Result{}, ErrInvalidPath
	}
	if _, ok := m.znodes[path]; ok {
		return Result{}, ErrNodeExists
	}
	if parent.Owner != 0 {
		return Result{}, ErrNoChildrenForEphemerals
	}
	z := modelZnode{Znode: Znode{Czxid: h.Zxid, Mzxid: h.Zxid, Pzxid: h.Zxid, Ctime: h.Time, Mtime: h.Time, Data: clone(op.Data)}}
	if op.Mode%2 == 1 {
		z.Owner = h.Session
	}
	m.znodes[path] = z
	if parent.Created == math.MaxInt32 {
		parent.cversion--
	} else {
		parent.Created++
		parent.cversion++
		parent.Pzxid = h.Zxid
	}
	m.znodes[parentPath] = parent
	m.change(Created, path, z.Owner, parentPath)
	return Result{Path: path, Stat: m.stat(path, m.children(path))}, nil
}

func (m *model) set(h Header, op Op) (Result, error) {
	if err := m.check(op); err != nil {
		return Result{}, err
	}
	z := m.znodes[op.Path]
	z.Mzxid, z.Mtime, z.Data = h.Zxid, h.Time, clone(op.Data)
	z.Version++
	if z.Version == -1 {
		z.Version = 0
	}
	m.znodes[op.Path] = z
	m.change(DataChanged, op.Path, z.Owner)
	return Result{Stat: m.stat(op.Path, m.children(op.Path))}, nil
}

func (m *model) delete(h Header, op Op) error {
	if !strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return ErrInvalidPath
	}
	if slices.Contains([]string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}, op.Path) {
		return ErrInvalidPath
	}
	z, ok := m.znodes[op.Path]
	if !ok {
		return ErrNoNode
	}
	if op.Version != -1 && op.Version != z.Version {
		return ErrBadVersion
	}
	if len(m.children(op.Path)) > 0 {
		return ErrNotEmpty
	}
	delete(m.znodes, op.Path)
	parentPath := modelParent(op.Path)
	parent := m.znodes[parentPath]
	parent.cversion++
	parent.Pzxid = h.Zxid
	m.znodes[parentPath] = parent
	m.change(Deleted, op.Path, z.Owner, parentPath)
	return nil
}

func (m *model) check(op Op) error {
	if !modelValid(op.Path) {
		return ErrInvalidPath
	}
	z, ok := m.znodes[op.Path]
	if !ok {
		return ErrNoNode
	}
	if op.Version != -1 && op.Version != z.Version {
		return ErrBadVersion
	}
	return nil
}

func (m *model) change(c ChangeType, path string, owner SessionID, also ...string) {
	m.changes = append(m.changes, Change{c, path, owner})
	for _, p := range append(also, path) {
		m.touched[p] = true
	}
}

// children returns the sorted names of a path's children.
func (m *model) children(path string) []string {
	names := []string{}
	for p := range m.znodes {
		if p != "/" && modelParent(p) == path {
			names = append(names, p[strings.LastIndex(p, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

// allChildren is children for every path at once.
func (m *model) allChildren() map[string][]string {
	all := map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(m.znodes)) {
		if p != "/" {
			all[modelParent(p)] = append(all[modelParent(p)], p[strings.LastIndex(p, "/")+1:])
		}
	}
	return all
}

// before looks among the names of the siblings.
func (m *model) before(path string, siblings, match []string) (string, bool, error) {
	if _, ok := m.znodes[path]; !ok {
		return "", false, ErrNoNode
	}
	if path == "/" {
		return "", false, nil
	}
	own := path[strings.LastIndex(path, "/")+1:]
	best, found := "", false
	for _, name := range siblings {
		if modelSuffix(own) == "" || modelSuffix(name) == "" || !modelMatches(name, match) {
			continue
		}
		key := func(s string) string { return modelSuffix(s) + s }
		if key(name) < key(own) && (!found || key(name) > key(best)) {
			best, found = name, true
		}
	}
	return best, found, nil
}

// stat is the Stat of a znode with children of the names.
func (m *model) stat(path string, names []string) Stat {
	z := m.znodes[path]
	v := version{Znode: z.Znode}
	s := v.stat()
	s.Cversion = z.cversion
	s.NumChildren = int32(len(names))
	return s
}

func modelMatches(name string, match []string) bool {
	for _, s := range match {
		if strings.Contains(name, s) {
			return true
		}
	}
	return len(match) == 0
}

func modelSuffix(name string) string {
	digits := 0
	for i := len(name) - 1; i >= 0 && digits < 10 && strings.Contains("0123456789", name[i:i+1]); i-- {
		digits++
	}
	if digits < 10 {
		return ""
	}
	return name[len(name)-10:]
}

func modelParent(path string) string {
	i := strings.LastIndex(path, "/")
	if i == 0 {
		return "/"
	}
	return path[:i]
}

// modelValid is the catalogue's rule, read over UTF-16 code units as ZooKeeper does.
func modelValid(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return false
	}
	for _, name := range strings.Split(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	for _, c := range utf16.Encode([]rune(path)) {
		if c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0 {
			return false
		}
	}
	return true
}
