package watch

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// queueDefault is how many events may wait to be taken: 2 MiB of them, more than ten thousand ephemerals that end at once.
const queueDefault = 1 << 16

// portion is how many watches are resumed or removed in one go: the transactions that come meanwhile wait no longer than that.
const portion = 1000

// Everywhere is the index of all registries.
const Everywhere = -1

// Shards are the registries of one node, and which of them a watch is on. They do not change.
type Shards struct {
	Registries []*Registry
	// Of returns the index of the one registry that is told of everything that a watch sees, or Everywhere. It is not asked if there
	// is one registry only. It runs under no lock, or under some registries'.
	Of func(path string, mode Mode) int
}

// A Client is the watches of one connection of ZooKeeper's protocol, on all shards. It differs from a Stream in this:
//   - All its watches share one queue, in which the events of a shard are in the order in which things happened.
//   - To watch a path twice in the same mode is to watch it once, and one event is queued once, however many watches it matches.
//   - Who may not read a znode is not told of it, and its Data and Children watches are used up in silence.
//   - It ends as a whole: when it overflows, and when a snapshot may hide what its Persistent and Recursive watches should have
//     seen. Its connection has to be dropped then, and the client looks anew when it comes back; see Reset.
//
// # Answers and events
//
// ZooKeeper applies nothing between a read and its answer. So a client may rely on an order, and its library does: an event that
// comes before the answer of the request that armed its watch finds nobody to be told. Whoever answers requests therefore does it in
// three steps, and one request after the other: get what to answer, and with it a Place; Take what was queued up to there and send
// it; send the answer. Events after the Place belong after the answer. The Place of a request that arms is that of the arming; that of
// a write is asked for by Until, and that of any other by At, after its outcome is known. When Take returns an error the answer must not be sent either: it may
// show a change that the client was not told of. The same goes for the zxid in the answer's header, from which the client will go on when it
// reconnects: it must be no later than the Place's.
//
// # Invariants
//
//  1. a mark is in the list of its path and table in its registry, and among the client's own;
//  2. a watch on several registries has a mark on each as long as it has not fired; those that are left then say nothing;
//  3. a client that has ended queues nothing and marks nothing. Its marks go with End, not before.
//
// Safe for concurrent use, but Take and the answers that it is for need an order of their own.
type Client struct {
	// Immutable after NewClient.
	of      func(path string, mode Mode) int
	mayRead func([]tree.ACL) bool
	limit   int
	wake    func()
	most    int             // bytes of the watches; zero: no bound
	held    func(bytes int) // told what the watches and the events take more, or less
	parts   []part          // by registry

	bytes atomic.Int64 // of the watches

	mu struct { // guards what the client knows by itself
		rank.Mutex[rank.Client]
		events []Event // not taken yet
		queued uint64  // events ever
		exempt int     // how many of events do not count against limit: those with NoZxid
		err    error   // why it has ended, nil while it has not
		joint  map[jointly]struct{}
	}
}

// jointly names a watch on several registries that has not fired.
type jointly struct {
	in   table
	path string
}

// A Place is a moment among a client's events: those before it are told first. See Client.
type Place struct {
	// Zxid is the newest transaction that an answer may show. With several shards it is the newest of those that were looked at,
	// which do not compare.
	Zxid   tree.Zxid
	events uint64 // queued before
}

// Same reports whether no event came between two places.
func (p Place) Same(other Place) bool { return p.events == other.events }

// NewClient returns a client without watches. limit bounds the events that may wait to be taken: zero and less mean 65,536. mayRead says
// whether the client may read a znode with an ACL, as what it is at that moment; nil means all. It is called under a registry's
// lock.
func NewClient(on *Shards, limit int, mayRead func([]tree.ACL) bool) *Client {
	if limit <= 0 {
		limit = queueDefault
	}
	c := &Client{of: on.Of, mayRead: mayRead, limit: limit, wake: func() {}, held: func(int) {}, parts: make([]part, len(on.Registries))}
	for i, r := range on.Registries {
		c.parts[i].client, c.parts[i].registry = c, r
	}
	return c
}

// Arm adds a watch, if look (unless nil) returns true. look runs at the moment of arming: what it sees of the tree is what every
// transaction before has made, and the client will be told of those after. It runs under registries' locks, so it must be short and
// must not call them. The path may be any string. The error says why the client has ended; look is not called then.
func (c *Client) Arm(path string, mode Mode, look func() bool) (Place, error) {
	parts := c.on(path, mode)
	lock(parts)
	defer unlock(parts)
	if err := c.liveLocked(parts); err != nil {
		return Place{}, err
	}
	if look == nil || look() {
		c.armLocked(parts, path, mode)
	}
	return c.placeLocked(parts), nil
}

// Has reports whether there is a watch of one of the modes on a path, without looking at others.
func (c *Client) Has(path string, modes ...Mode) bool {
	return c.eachOf(path, modes, func(p *part, in table, m *mark, on terms) bool {
		return on != once || c.armed(in, m)
	})
}

// Remove takes the watches of the modes off a path, and reports whether there was one. No event tells of it.
func (c *Client) Remove(path string, modes ...Mode) bool {
	return c.eachOf(path, modes, func(p *part, in table, m *mark, on terms) bool {
		was := on != once || c.use(in, m)
		if on == once {
			on |= joint
		}
		p.drop(in, m, on)
		return was
	})
}

// eachOf calls fn for the marks of some watches, and reports whether it returned true for one.
func (c *Client) eachOf(path string, modes []Mode, fn func(p *part, in table, m *mark, on terms) bool) (found bool) {
	for _, mode := range modes {
		parts := c.on(path, mode)
		lock(parts)
		tables, on := mode.spots()
		for i := range parts {
			for _, in := range tables {
				if m := parts[i].own[in].marks[path]; m != nil && m.terms&on != 0 && fn(&parts[i], in, m, on) {
					found = true
				}
			}
		}
		unlock(parts)
	}
	return found
}

// A Reset is what a client that comes back had watched on its last connection. The lists are ZooKeeper's: Data is of znodes that were
// there when they were looked at, Exist of those that were not.
type Reset struct {
	Data, Exist, Children, Persistent, Recursive []string
	// Since is the newest transaction that the client has seen an answer of. Unknown says that it is not known, as with several
	// shards: then all that could have changed is told as changed.
	Since   tree.Zxid
	Unknown bool
}

// Reset adds the watches of a client that comes back. Those for which something has happened meanwhile have their events at once, with
// NoZxid, whatever the client may read, and are not added; these events do not count against the limit, since the request bounds
// them. Persistent and Recursive ones are not told what they missed. Each is added at the moment at which look tells of the tree, see Arm;
// transactions may come between two of them, and are told to those before and seen by look for those after.
func (c *Client) Reset(was *Reset, look func(path string) (tree.Stat, bool)) (Place, error) {
	for left := *was; ; {
		if place, err := c.resume(&left, portion, look); err != nil || left.empty() {
			return place, err
		}
	}
}

// resume is Reset of the first n watches, which it takes off the lists. With all of them in one go a frame of a client's held
// up the transactions of the whole shard, 200,000 watches for 0.2 s.
func (c *Client) resume(was *Reset, n int, look func(path string) (tree.Stat, bool)) (Place, error) {
	lock(c.parts)
	defer unlock(c.parts)
	if err := c.liveLocked(c.parts); err != nil {
		return Place{}, err
	}
	resume := func(path string, mode Mode, missed EventType) {
		if missed != 0 {
			c.tellMissed(Event{Type: missed, Path: path, Zxid: NoZxid})
			return
		}
		c.armLocked(c.on(path, mode), path, mode)
	}
	for _, path := range first(&was.Data, &n) {
		stat, ok := look(path)
		resume(path, Data, was.missed(ok, stat.Mzxid, NodeDataChanged))
	}
	for _, path := range first(&was.Exist, &n) {
		missed := EventType(0)
		if _, ok := look(path); ok {
			missed = NodeCreated
		}
		resume(path, Data, missed)
	}
	for _, path := range first(&was.Children, &n) {
		stat, ok := look(path)
		resume(path, Children, was.missed(ok, stat.Pzxid, NodeChildrenChanged))
	}
	for _, path := range first(&was.Persistent, &n) {
		resume(path, Persistent, 0)
	}
	for _, path := range first(&was.Recursive, &n) {
		resume(path, Recursive, 0)
	}
	return c.placeLocked(c.parts), nil
}

func (r *Reset) empty() bool {
	return len(r.Data)+len(r.Exist)+len(r.Children)+len(r.Persistent)+len(r.Recursive) == 0
}

// first takes the first of a list off it, up to n, and that many off n.
func first(list *[]string, n *int) []string {
	taken := (*list)[:min(*n, len(*list))]
	*list = (*list)[len(taken):]
	*n -= len(taken)
	return taken
}

// missed is the event that a watch of a znode missed which was there: zero if none.
func (r *Reset) missed(exists bool, newest tree.Zxid, change EventType) EventType {
	switch {
	case !exists:
		return NodeDeleted
	case r.Unknown || newest > r.Since:
		return change
	}
	return 0
}

// At is the place of an answer that shows no transaction later than z, which readers see. What it says must have been read before. If events
// wait, their transactions may not be visible yet: it waits until they are, lest somebody is told of what it cannot read, or has an
// answer with an earlier zxid behind it.
func (c *Client) At(z tree.Zxid) Place {
	if place, waiting := c.at(z); !waiting {
		return place
	}
	lock(c.parts)
	defer unlock(c.parts)
	return c.placeLocked(c.parts)
}

// at is the place behind all that is queued, and whether some of that waits.
func (c *Client) at(z tree.Zxid) (place Place, waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Place{Zxid: z, events: c.mu.queued}, len(c.mu.events) > 0
}

// Until is the place of an answer that shows nothing later than z, on the only shard that there is, when later transactions may have been
// applied: their events belong after it.
func (c *Client) Until(z tree.Zxid) Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := slices.IndexFunc(c.mu.events, func(e Event) bool { return e.Zxid > z && e.Zxid != NoZxid })
	if n < 0 {
		n = len(c.mu.events)
	}
	return Place{Zxid: z, events: c.mu.queued - uint64(len(c.mu.events)-n)}
}

// Take returns the events up to a place that have not been taken, or why the client has ended.
func (c *Client) Take(upTo Place) ([]Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return nil, c.mu.err
	}
	taken := c.mu.queued - uint64(len(c.mu.events))
	if upTo.events <= taken {
		return nil, nil
	}
	n := int(upTo.events - taken)
	events := c.mu.events[:n:n]
	c.held(-Weight(events...))
	if c.mu.events = c.mu.events[n:]; len(c.mu.events) == 0 {
		c.mu.events = nil
	}
	for i := 0; c.mu.exempt > 0 && i < n; i++ {
		if events[i].Zxid == NoZxid {
			c.mu.exempt--
		}
	}
	return events, nil
}

// OnWake has wake called after each event that is queued, and after the end. It is for who has just made the client. wake runs under
// the client's lock and registries': it must be short, and call nothing here.
func (c *Client) OnWake(wake func()) { c.wake = wake }

// What a watch takes beside its path, and an event: about as much as was measured.
const (
	watchBytes = 256
	eventBytes = 64
)

// Weight is the bytes that events take: in a queue, and for whoever has taken them. Their paths may be
// of znodes that there are no more.
func Weight(events ...Event) (n int) {
	for i := range events {
		n += eventBytes + len(events[i].Path)
	}
	return n
}

// OnHold has held called with the bytes that watches and events in the queue take more than before, or
// less. If the watches take more than most, which zero turns off, the client ends with ErrTooHeavy. It is
// for who has just made the client. held runs under the client's lock and registries': it must be short,
// and call nothing here.
func (c *Client) OnHold(most int, held func(bytes int)) { c.most, c.held = most, held }

// weigh notes that there is a mark more, or one less.
func (c *Client) weigh(m *mark, more int) {
	n := more * (watchBytes + len(m.path))
	c.held(n)
	if all := c.bytes.Add(int64(n)); c.most > 0 && all > int64(c.most) {
		c.end(ErrTooHeavy)
	}
}

// Err says why the client has ended; nil while it has not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// End ends the client with an error, ErrEnded if it is nil, unless it has ended, and removes its watches. Without it they stay, and do
// nothing, when the client ends by itself: where it learns that it must, other shards cannot be waited for.
func (c *Client) End(err error) {
	if err == nil {
		err = ErrEnded
	}
	c.end(err)
	for i := range c.parts {
		c.parts[i].clear()
	}
}

// Counts returns how many watches there are as ZooKeeper counts them: one for each path in the table of data, Persistent and Recursive
// ones among them, and one for each in the table of children.
func (c *Client) Counts() (data, children int) {
	if len(c.parts) > 1 { // some are on several
		return len(c.paths(dataTable, belowTable)), len(c.paths(childTable))
	}
	lock(c.parts)
	defer unlock(c.parts)
	p := &c.parts[0]
	return len(p.own[dataTable].marks) + len(p.own[belowTable].marks) - p.both, len(p.own[childTable].marks)
}

// Paths returns the paths in the table of data, in order.
func (c *Client) Paths() []string { return slices.Sorted(maps.Keys(c.paths(dataTable, belowTable))) }

func (c *Client) paths(in ...table) map[string]struct{} {
	all := make(map[string]struct{})
	for i := range c.parts {
		p := &c.parts[i]
		p.registry.mu.Lock()
		for _, in := range in {
			for path, m := range p.own[in].marks {
				if m.terms&lasting != 0 || c.armed(in, m) {
					all[path] = struct{}{}
				}
			}
		}
		p.registry.mu.Unlock()
	}
	return all
}

// Watched returns how many paths clients watch, as ZooKeeper counts them: those in the table of data.
func (r *Registry) Watched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.clients
	return len(t.marks[dataTable]) + len(t.marks[belowTable]) - t.both
}

// on returns the parts that a watch is on.
func (c *Client) on(path string, mode Mode) []part {
	if len(c.parts) == 1 {
		return c.parts
	}
	at := c.of(path, mode)
	if at == Everywhere {
		return c.parts
	}
	return c.parts[at : at+1]
}

// lock takes the locks of the parts' registries. They are in one order for all clients.
func lock(parts []part) {
	for i := range parts {
		parts[i].registry.mu.Lock()
	}
}

func unlock(parts []part) {
	for i := range parts {
		parts[i].registry.mu.Unlock()
	}
}

// liveLocked returns why nothing can be armed.
func (c *Client) liveLocked(parts []part) error {
	for i := range parts {
		if r := parts[i].registry; r.isClosed {
			c.end(r.closed)
		}
	}
	return c.Err()
}

func (c *Client) placeLocked(parts []part) Place {
	var z tree.Zxid
	for i := range parts {
		z = max(z, parts[i].registry.zxid)
	}
	place, _ := c.at(z)
	return place
}

func (c *Client) armLocked(parts []part, path string, mode Mode) {
	tables, on := mode.spots()
	if on == once && len(parts) > 1 {
		on |= joint
		c.mu.Lock()
		if c.mu.joint == nil {
			c.mu.joint = make(map[jointly]struct{})
		}
		c.mu.joint[jointly{tables[0], path}] = struct{}{}
		c.mu.Unlock()
	}
	for i := range parts {
		for _, in := range tables {
			parts[i].add(in, path, on)
		}
	}
}

// armed reports whether a watch that lasts until its first event has not fired.
func (c *Client) armed(in table, m *mark) bool {
	if m.terms&joint == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.mu.joint[jointly{in, m.path}]
	return ok
}

// use is armed, and then the watch has fired.
func (c *Client) use(in table, m *mark) bool {
	if m.terms&joint == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.mu.joint[jointly{in, m.path}]
	delete(c.mu.joint, jointly{in, m.path})
	return ok
}

// tell queues an event.
func (c *Client) tell(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.events)-c.mu.exempt >= c.limit {
		c.endLocked(ErrOverflow)
	}
	c.queueLocked(e)
}

// tellMissed queues an event that does not count against the limit.
func (c *Client) tellMissed(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.exempt++
	c.queueLocked(e)
}

func (c *Client) queueLocked(e Event) {
	if c.mu.err != nil {
		return
	}
	c.mu.events = append(c.mu.events, e)
	c.mu.queued++
	c.held(Weight(e))
	c.wake()
}

func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(err)
}

func (c *Client) endLocked(err error) {
	if c.mu.err != nil {
		return
	}
	c.held(-Weight(c.mu.events...))
	c.mu.err, c.mu.events = err, nil
	c.wake()
}

// clear removes the marks of a client that has ended.
func (p *part) clear() {
	r := p.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for in := range tableCount {
		for _, m := range p.own[in].marks { // nobody adds any; those that fire meanwhile are left out
			p.drop(in, m, once|lasting|joint)
			if n++; n%portion == 0 {
				r.mu.Unlock()
				r.mu.Lock()
			}
		}
		p.own[in].marks = nil
	}
}
