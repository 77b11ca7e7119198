package watch

import (
	"cmp"
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// A table says for which changes of a path a mark stands. ZooKeeper has two tables and keeps
// recursive watches in that of data. Here they have their own, because a change looks for them
// above its path as well, and must not cost by the watches that do not match.
type table int

const (
	dataTable  table = iota // the znode itself
	childTable              // its list of children, and the deletion of the znode
	belowTable              // the znode and all znodes below it
	tableCount
)

// terms say how long a mark lasts: for one event, until it is removed, or both. A mark without either
// is removed.
type terms uint8

const (
	once    terms = 1 << iota // until the first event
	lasting                   // until it is removed
	joint                     // with once: it is on several registries; see Client.mu.joint
	valued                    // with lasting: its events have Data and Stat
)

// A mark stands for the watches of one client on one path in one table. It is in the registry's
// list of the path, linked through next and prev, and among the client's own marks.
type mark struct {
	part       *part
	path       string
	next, prev *mark
	terms      terms
}

// A part is the share that a client has in one registry. The registry's lock guards it.
type part struct {
	client   *Client
	registry *Registry
	own      [tableCount]struct {
		marks map[string]*mark // by path; may be nil
		peak  int              // the largest length since the map was made
	}
	both int    // paths in both dataTable and belowTable
	told uint64 // the newest pass of the registry's tables in which the client got an event
}

// tables hold the watches of all clients on one registry. The registry's lock guards them.
type tables struct {
	marks  [tableCount]map[string]*mark // the first mark of each path; a map may be nil
	depths depths                       // of the paths in belowTable
	both   int                          // paths in both dataTable and belowTable
	// n is the number of marks, and peak the largest n since the maps were made.
	n, peak int
	events  uint64 // that were queued
	// pass counts the events that were matched. All that one event matches is one pass, and a
	// client gets at most one event in a pass.
	pass uint64
}

// match queues the events of a change for the clients that watch it. The deletion of a znode is one
// event in both of ZooKeeper's tables: a client that watches data and children gets one event, and
// both watches are used up. The change of the parent's list of children is another event.
func (t *tables) match(z tree.Zxid, c tree.Change) {
	t.pass++
	if c.Type == tree.ACLChanged {
		t.turn(z, c)
		return
	}
	e := eventOf(z, c)
	t.tell(dataTable, c.Path, e, c.Owner, c.ACL)
	for path := range t.depths.upTo(c.Path) {
		t.tell(belowTable, path, e, c.Owner, c.ACL)
	}
	if c.Type == tree.Deleted {
		t.tell(childTable, c.Path, e, c.Owner, c.ACL)
	}
	if c.Type == tree.DataChanged || c.Path == "/" {
		return
	}
	t.pass++
	parent := tree.Parent(c.Path)
	t.tell(childTable, parent, Event{Type: NodeChildrenChanged, Path: parent, Zxid: z}, 0, c.ParentACL)
}

// turn tells those clients of a SetACL that have asked for more than ZooKeeper tells.
func (t *tables) turn(z tree.Zxid, c tree.Change) {
	t.turnList(z, c, t.marks[dataTable][c.Path])
	for path := range t.depths.upTo(c.Path) {
		t.turnList(z, c, t.marks[belowTable][path])
	}
}

func (t *tables) turnList(z tree.Zxid, c tree.Change, m *mark) {
	for ; m != nil; m = m.next {
		p := m.part
		if p.client.owner == 0 || m.terms&lasting == 0 || p.told == t.pass {
			continue
		}
		p.told = t.pass
		e := Event{Type: ReadGained, Path: c.Path, Zxid: z}
		lost, gained := turns(c, p.client.mayRead)
		if lost {
			e.Type = ReadLost
		}
		if lost || gained {
			t.events++
			p.client.tell(e)
		}
	}
}

// tell queues an event about a znode with an owner and an ACL for the clients that have a mark on a
// path.
func (t *tables) tell(in table, path string, e Event, owner tree.SessionID, acl []tree.ACL) {
	for m := t.marks[in][path]; m != nil; {
		next := m.next // firing may unlink m
		t.fire(in, m, e, owner, acl)
		m = next
	}
}

// fire queues an event for the client of a mark. As in ZooKeeper, a client that may not read the
// znode gets no event, and its watch is used up all the same. But see TellMore.
func (t *tables) fire(in table, m *mark, e Event, owner tree.SessionID, acl []tree.ACL) {
	p := m.part
	due := m.terms&lasting != 0
	if m.terms&once != 0 {
		due = p.client.use(in, m, once) || due
		p.drop(in, m, once)
	}
	if !due || p.told == t.pass {
		return
	}
	native := p.client.owner != 0
	switch hidden := !p.client.Owns(owner) && !p.client.mayRead(acl); {
	case hidden && native && m.terms&lasting != 0 && e.hides(m.path):
		e.Type = CreatedHidden
	case hidden:
		return
	case native && p.wants(e):
		e = p.registry.valuedLocked(e, p.client.mayRead)
	}
	p.told = t.pass
	t.events++
	p.client.tell(e)
}

// wants reports whether one of the client's watches that see an event has values.
func (p *part) wants(e Event) bool {
	has := func(in table, path string) bool {
		m := p.own[in].marks[path]
		return m != nil && m.terms&(lasting|valued) == lasting|valued
	}
	if e.Type == NodeChildrenChanged {
		return has(childTable, e.Path)
	}
	for path := range p.registry.clients.depths.upTo(e.Path) {
		if has(belowTable, path) {
			return true
		}
	}
	return has(dataTable, e.Path)
}

// install does the part of Registry.Install that is for the clients. Nobody knows the order of
// changes that were not seen, so the events come in the order of their paths, one for each table.
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
			// Ask touched only once for each path, however many clients watch it: nothing is
			// applied meanwhile.
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
		t.fire(f.in, f.mark, Event{Type: f.kind, Path: f.mark.path, Zxid: z}, 0, f.acl)
	}
}

// mode returns the mode of a watch that has a mark in the table on these terms.
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

// spots returns the tables in which a watch of the mode has its marks, and their terms.
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

// add marks a path. Marking it twice on the same terms has no further effect. Who marks it last for
// good says whether it is valued.
func (p *part) add(in table, path string, on terms) {
	own := &p.own[in]
	if m := own.marks[path]; m != nil {
		if on&lasting != 0 {
			m.terms &^= valued
		}
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
		m.path = head.path // 100,000 clients that watch one path have each decoded a copy of it
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

// drop takes terms from a mark. When it has none left, the mark is removed.
func (p *part) drop(in table, m *mark, off terms) {
	if m.terms &^= off; m.terms&(once|lasting) != 0 {
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
	// A map never gives back its room.
	if len(own.marks) == 0 && own.peak > peakKept {
		own.marks = nil
	}
	if t.n--; t.n == 0 && t.peak > peakKept {
		t.marks, t.peak = [tableCount]map[string]*mark{}, 0
	}
}

// countPath records that a path got its first mark in a table (n is 1) or lost its last (n is -1).
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

// pair returns the table that is the same table as this one in ZooKeeper; false if there is none.
func (in table) pair() (table, bool) { return belowTable - in, in != childTable }

// each calls fn for every mark. fn may drop the mark.
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
