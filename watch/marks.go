package watch

import (
	"cmp"
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// A table says which changes of a path a mark is for. ZooKeeper has two of them and keeps recursive watches among those of data; here
// they are apart, for they are looked for above the path too, where a change must not cost by the watches that do not match.
type table int

const (
	dataTable  table = iota // the znode itself
	childTable              // its list of children, and its end
	belowTable              // the znode and all below it
	tableCount
)

// terms say how long a mark lasts: once, until it is removed, or both.
type terms uint8

const (
	once    terms = 1 << iota // until the first event
	lasting                   // until it is removed
	joint                     // with once: the watch is on several registries, and Client says whether it has fired
)

// A mark is the watches of one client on one path in one table. It is in the registry's list of the path, linked through next and
// prev, and among the client's own.
type mark struct {
	part       *part
	path       string
	next, prev *mark
	terms      terms
}

// A part is what a client has on one registry, whose lock guards it.
type part struct {
	client   *Client
	registry *Registry
	own      [tableCount]struct {
		marks map[string]*mark // by path; nil for none
		peak  int              // the most there were since the map was made
	}
	both int    // paths that are in dataTable and belowTable
	told uint64 // the newest pass of the registry's tables in which the client had an event
}

// tables are the watches of all clients on one registry. The registry's lock guards them.
type tables struct {
	marks  [tableCount]map[string]*mark // the first of each path; nil for none
	depths depths                       // of belowTable
	both   int                          // paths that are in dataTable and belowTable
	// n counts the marks, and peak the most there were since the maps were made.
	n, peak int
	// pass counts the events that were matched. Everything that one event matches is one pass: whoever was told in it
	// is not told again.
	pass uint64
}

// match tells clients of a change. Deleting a znode is one event of both tables: a client that watches its data and its children has
// one, and both watches are used up. That its parent's list changed is another event.
func (t *tables) match(z tree.Zxid, c tree.Change) {
	e := eventOf(z, c)
	t.pass++
	t.tell(dataTable, c.Path, e, c.ACL)
	for path := range t.depths.upTo(c.Path) {
		t.tell(belowTable, path, e, c.ACL)
	}
	if c.Type == tree.Deleted {
		t.tell(childTable, c.Path, e, c.ACL)
	}
	if c.Type == tree.DataChanged || c.Path == "/" {
		return
	}
	t.pass++
	parent := tree.Parent(c.Path)
	t.tell(childTable, parent, Event{Type: NodeChildrenChanged, Path: parent, Zxid: z}, c.ParentACL)
}

// tell tells those that have a mark on a path of an event about a znode with an ACL.
func (t *tables) tell(in table, path string, e Event, acl []tree.ACL) {
	for m := t.marks[in][path]; m != nil; {
		next := m.next // firing may unlink m
		t.fire(in, m, e, acl)
		m = next
	}
}

// fire tells the client of a mark. As in ZooKeeper, one that may not read the znode is not told, and its watch is used up all the same.
func (t *tables) fire(in table, m *mark, e Event, acl []tree.ACL) {
	p := m.part
	due := m.terms&lasting != 0
	if m.terms&once != 0 {
		due = p.client.use(in, m) || due
		p.drop(in, m, once|joint)
	}
	if !due || p.told == t.pass {
		return
	}
	p.told = t.pass
	if p.client.mayRead == nil || p.client.mayRead(acl) {
		p.client.tell(e)
	}
}

// install is Registry.Install for the clients. Nobody knows in which order things happened that were not seen: the events come in the
// order of their paths, one for each table.
func (t *tables) install(z tree.Zxid, touched func(string, Mode) (EventType, []tree.ACL, bool)) {
	if t.n == 0 {
		return
	}
	type firing struct {
		in   table
		mark *mark
		kind EventType
		acl  []tree.ACL
	}
	var due []firing
	gap := &GapError{Zxid: z}
	for in := range tableCount {
		for path, first := range t.marks[in] {
			// Both are asked for once, however many clients watch the path: apply stands still meanwhile.
			var kind EventType
			var acl []tree.ACL
			var askedOnce, askedLasting, fires, ends bool
			for m := first; m != nil; m = m.next {
				if m.terms&lasting != 0 {
					if !askedLasting {
						_, _, ends = touched(path, in.mode(lasting))
						askedLasting = true
					}
					if ends {
						m.part.client.end(gap)
					}
				}
				if m.terms&once != 0 {
					if !askedOnce {
						kind, acl, fires = touched(path, in.mode(once))
						askedOnce = true
					}
					if fires {
						due = append(due, firing{in, m, kind, acl})
					}
				}
			}
		}
	}
	slices.SortFunc(due, func(a, b firing) int {
		return cmp.Or(cmp.Compare(a.mark.path, b.mark.path), cmp.Compare(a.in, b.in))
	})
	for i, f := range due {
		if i == 0 || f.mark.path != due[i-1].mark.path || f.kind != due[i-1].kind {
			t.pass++
		}
		t.fire(f.in, f.mark, Event{Type: f.kind, Path: f.mark.path, Zxid: z}, f.acl)
	}
}

// mode is that of a watch with a mark in the table.
func (in table) mode(on terms) Mode {
	switch {
	case in == belowTable:
		return Recursive
	case on == lasting:
		return Persistent
	case in == childTable:
		return Children
	}
	return Data
}

// spots are where a watch of the mode has its marks.
func (m Mode) spots() ([]table, terms) {
	switch m {
	case Data:
		return []table{dataTable}, once
	case Children:
		return []table{childTable}, once
	case Recursive:
		return []table{belowTable}, lasting
	default:
		return []table{dataTable, childTable}, lasting
	}
}

// add marks a path. To mark it twice on the same terms is to mark it once.
func (p *part) add(in table, path string, on terms) {
	own := &p.own[in]
	if m := own.marks[path]; m != nil {
		m.terms |= on
		return
	}
	t := &p.registry.clients
	if t.marks[in] == nil {
		t.marks[in] = make(map[string]*mark)
	}
	if own.marks == nil {
		own.marks, own.peak = make(map[string]*mark), 0
	}
	m := &mark{part: p, path: path, terms: on}
	if head := t.marks[in][path]; head != nil {
		m.path = head.path // of 100,000 clients that watch a path each has decoded its own
		m.next, head.prev = head, m
	} else {
		t.countPath(in, path, 1)
	}
	t.marks[in][m.path] = m
	own.marks[m.path] = m
	p.client.weigh(m, 1)
	t.n++
	t.peak, own.peak = max(t.peak, t.n), max(own.peak, len(own.marks))
	if pair, ok := in.pair(); ok && p.own[pair].marks[path] != nil {
		p.both++
	}
}

// drop takes terms off a mark, which goes with the last of them.
func (p *part) drop(in table, m *mark, off terms) {
	if m.terms &^= off; m.terms != 0 {
		return
	}
	t := &p.registry.clients
	if m.next != nil {
		m.next.prev = m.prev
	}
	switch {
	case m.prev != nil:
		m.prev.next = m.next
	case m.next != nil:
		t.marks[in][m.path] = m.next
	default:
		delete(t.marks[in], m.path)
		t.countPath(in, m.path, -1)
	}
	m.next, m.prev = nil, nil
	own := &p.own[in]
	delete(own.marks, m.path)
	p.client.weigh(m, -1)
	if pair, ok := in.pair(); ok && p.own[pair].marks[m.path] != nil {
		p.both--
	}
	// A map never gives back the room of what it held.
	if len(own.marks) == 0 && own.peak > peakKept {
		own.marks = nil
	}
	if t.n--; t.n == 0 && t.peak > peakKept {
		t.marks, t.peak = [tableCount]map[string]*mark{}, 0
	}
}

// countPath notes that a path has its first mark in a table, or has lost its last.
func (t *tables) countPath(in table, path string, n int) {
	if in == belowTable && n > 0 {
		t.depths.add(path)
	}
	if in == belowTable && n < 0 {
		t.depths.remove(path)
	}
	if pair, ok := in.pair(); ok && t.marks[pair][path] != nil {
		t.both += n
	}
}

// pair is the table that is one with this in ZooKeeper.
func (in table) pair() (table, bool) { return belowTable - in, in != childTable }

// each calls fn for every mark; fn may drop it.
func (t *tables) each(fn func(in table, m *mark)) {
	for in := range tableCount {
		for _, m := range t.marks[in] {
			for m != nil {
				next := m.next
				fn(in, m)
				m = next
			}
		}
	}
}
