package watch

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// queueDefault is how many events may wait by default. They take 2 MiB, and they are more than ten
// thousand ephemerals that end at once need.
const queueDefault = 1 << 16

// portion is how many watches are resumed or removed under one hold of the lock. Transactions that
// come meanwhile wait no longer than that.
const portion = 1000

// Everywhere stands for the index of all registries.
const Everywhere = -1

// Shards are the registries of one node, with the rule that says which of them a watch is on. They
// do not change.
type Shards struct {
	Registries []*Registry
	// Of returns the index of the one registry that gets every change that a watch sees, or
	// Everywhere. It is not called if there is only one registry. It may run under the locks of
	// registries.
	Of func(path string, mode Mode) int
}

// A Client holds the watches of one connection of ZooKeeper's protocol, on all shards. It differs
// from a Stream in these points:
//   - All its watches share one queue. The events of each shard are queued in the order of their
//     changes.
//   - Watching a path twice in the same mode is the same as watching it once. One event is queued
//     once, however many watches it matches.
//   - A client that may not read a znode gets no event about it, and its Data and Children watches
//     are used up in silence. No SetACL ends a watch. But see TellMore.
//   - It ends as a whole: when its queue overflows, and when a snapshot may hide changes that its
//     Persistent and Recursive watches should have seen. Its connection must then be dropped. The
//     client reads again when it comes back; see Reset.
//
// # Answers and events
//
// ZooKeeper applies nothing between a read and its answer. Its client library relies on that order:
// if an event comes before the answer of the request that armed its watch, the library finds no
// watch to deliver it to.
//
// So the code that answers requests handles one request after the other, in three steps. First it
// gets the data to answer, and with them a Place. Then it Takes the events that were queued up to
// that Place, and sends them. Then it sends the answer. Events after the Place belong after the
// answer.
//
// The Place of a request that arms a watch is the moment of arming. Until returns the Place of a
// write, and At that of any other request, both after the outcome is known.
//
// If Take returns an error, the answer must not be sent either: it may show a change that the
// client got no event of. The zxid in the answer's header must not be later than the Place's,
// because the client goes on from that zxid when it reconnects.
//
// # Invariants
//
//  1. a mark is in its registry's list of its path and table, and among the client's own marks;
//  2. a watch on several registries has a mark on each until it fires; the marks that are left then
//     queue nothing;
//  3. a client that has ended queues nothing and marks nothing; its marks stay until End.
//
// A Client is safe for concurrent use, but the caller must order Take and the answers that belong
// to it.
type Client struct {
	// Immutable after NewClient.
	of      func(path string, mode Mode) int
	mayRead func([]tree.ACL) bool
	limit   int
	wake    func()
	most    int             // limit on the bytes of the watches; zero: none
	held    func(bytes int) // called with each change in the bytes of watches and events
	parts   []part          // one for each registry

	owner tree.SessionID // see TellMore; zero: none; guarded by the locks of all registries

	bytes atomic.Int64 // taken by the watches
	marks atomic.Int64 // how many marks those on one registry have

	mu struct { // guards what does not belong to one registry
		rank.Mutex[rank.Client]
		events []Event // not taken yet
		queued uint64  // events queued since NewClient
		exempt int     // how many of events have NoZxid and so do not count against limit
		err    error   // why the client has ended; nil while it has not
		joint  map[jointly]terms
	}
}

// jointly names a watch on several registries. It has the terms on which it may still fire.
type jointly struct {
	in   table
	path string
}

// A Place is a moment among a client's events: the events before it are sent first. See Client.
type Place struct {
	// Zxid is the newest transaction that an answer may show. With several shards it is the largest
	// zxid of the shards that were read, although zxids of different shards cannot be compared.
	Zxid   tree.Zxid
	events uint64 // queued before
}

// Same reports whether no event came between two places.
func (p Place) Same(other Place) bool { return p.events == other.events }

// NewClient returns a client without watches. limit bounds the events that may wait in its queue;
// zero or less means 65,536. The function mayRead reports whether the client, with the identities
// it has at that moment, may read a znode with an ACL. A nil mayRead means always. It runs under a
// registry's lock.
func NewClient(on *Shards, limit int, mayRead func([]tree.ACL) bool) *Client {
	if limit <= 0 {
		limit = queueDefault
	}
	if mayRead == nil {
		mayRead = func([]tree.ACL) bool { return true }
	}
	c := &Client{of: on.Of, mayRead: mayRead, limit: limit, wake: func() {}, held: func(int) {}, parts: make([]part, len(on.Registries))}
	for i, r := range on.Registries {
		c.parts[i].client, c.parts[i].registry = c, r
	}
	return c
}

// Arm adds a watch if look returns true, or is nil. The call of look is the moment of arming: look
// sees what every earlier transaction has made of the tree, and the client gets the events of every
// later one. It runs under the locks of registries, so it must be short and must not call them. The
// path may be any string. If the client has ended, Arm returns the reason and does not call look.
func (c *Client) Arm(path string, mode Mode, look func() bool) (Place, error) {
	return c.ArmWith(path, mode, Options{}, look)
}

// ArmWith is Arm with options. Values counts after TellMore, for a Persistent or Recursive watch. If
// the watch is there already, it has values from now on, or none. An event that several watches see
// has values if one of them has. Buffer does not count.
func (c *Client) ArmWith(path string, mode Mode, o Options, look func() bool) (Place, error) {
	parts := c.on(path, mode)
	lock(parts)
	defer unlock(parts)
	if err := c.liveLocked(parts); err != nil {
		return Place{}, err
	}
	if look == nil || look() {
		c.armLocked(parts, path, mode, o)
	}
	return c.placeLocked(parts), nil
}

// Has reports whether a path has a watch of one of the modes.
func (c *Client) Has(path string, modes ...Mode) bool {
	return c.eachOf(path, modes, func(p *part, in table, m *mark, on terms) bool {
		return on != once || c.armed(in, m)
	})
}

// Remove removes the watches of the modes from a path, and reports whether there was one. No event
// follows.
func (c *Client) Remove(path string, modes ...Mode) bool {
	return c.eachOf(path, modes, func(p *part, in table, m *mark, on terms) bool {
		was := c.use(in, m, on)
		p.drop(in, m, on)
		return was
	})
}

// eachOf calls fn for the marks of the path's watches of the modes, and reports whether fn returned
// true for one.
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

// A Reset lists what a client that comes back had watched on its last connection. The lists are
// ZooKeeper's: Data names znodes that existed when the client read them, Exist names those that did
// not.
type Reset struct {
	Data, Exist, Children, Persistent, Recursive []string
	// Since is the newest transaction of which the client has seen an answer. Unknown says that
	// Since is not known, as with several shards. Everything that could have changed then counts as
	// changed.
	Since   tree.Zxid
	Unknown bool
}

// Reset adds the watches of a client that comes back. A watch whose znode has changed meanwhile is
// not added: its event is queued at once, with NoZxid. Such events do not count against the limit, since the request bounds them. Persistent and
// Recursive watches get no events for what they missed.
//
// look says that a znode is hidden if the client may not read it. Its watch is added, whatever has
// changed: otherwise a client could find out when that was, by asking with one Since after the other.
//
// Each watch is added at the moment at which look reads the tree; see Arm. Transactions may come
// between two watches. Watches added before get their events, and look shows them to those added
// after.
func (c *Client) Reset(was *Reset, look func(path string) (stat tree.Stat, exists, hidden bool)) (Place, error) {
	for left := *was; ; {
		if place, err := c.resume(&left, portion, look); err != nil || left.empty() {
			return place, err
		}
	}
}

// resume resets the first n watches and takes them off the lists. One request that resumed 200,000
// watches in one go held up the transactions of the whole shard for 0.2 s.
func (c *Client) resume(was *Reset, n int, look func(path string) (stat tree.Stat, exists, hidden bool)) (Place, error) {
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
		c.armLocked(c.on(path, mode), path, mode, Options{})
	}
	for _, path := range first(&was.Data, &n) {
		stat, ok, hidden := look(path)
		resume(path, Data, was.missed(ok, hidden, stat.Mzxid, NodeDataChanged))
	}
	for _, path := range first(&was.Exist, &n) {
		missed := EventType(0)
		if _, ok, _ := look(path); ok { // that it exists, everybody may know
			missed = NodeCreated
		}
		resume(path, Data, missed)
	}
	for _, path := range first(&was.Children, &n) {
		stat, ok, hidden := look(path)
		resume(path, Children, was.missed(ok, hidden, stat.Pzxid, NodeChildrenChanged))
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

// first cuts up to n paths off the front of a list and returns them. It reduces n by their number.
func first(list *[]string, n *int) []string {
	taken := (*list)[:min(*n, len(*list))]
	*list = (*list)[len(taken):]
	*n -= len(taken)
	return taken
}

// missed returns the event that the watch of an existing znode has missed, or zero.
func (r *Reset) missed(exists, hidden bool, newest tree.Zxid, change EventType) EventType {
	switch {
	case hidden:
		return 0
	case !exists:
		return NodeDeleted
	case r.Unknown || newest > r.Since:
		return change
	}
	return 0
}

// At returns the Place of an answer that shows no transaction later than z, which readers see. The
// caller has read the answer before.
//
// If events wait, their transactions may not be visible yet, so At waits until they are. Otherwise
// a client could get an event whose change it cannot read, or get an answer with an earlier zxid
// after the event.
func (c *Client) At(z tree.Zxid) Place {
	if place, waiting := c.at(z); !waiting {
		return place
	}
	lock(c.parts)
	defer unlock(c.parts)
	return c.placeLocked(c.parts)
}

// at returns the Place behind all queued events, and whether some of them wait.
func (c *Client) at(z tree.Zxid) (place Place, waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Place{Zxid: z, events: c.mu.queued}, len(c.mu.events) > 0
}

// Until returns the Place of an answer that shows nothing later than z. Later transactions may have
// been applied; their events belong after the answer. Until is only for a client with one shard.
func (c *Client) Until(z tree.Zxid) Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := slices.IndexFunc(c.mu.events, func(e Event) bool { return e.Zxid > z && e.Zxid != NoZxid })
	if n < 0 {
		n = len(c.mu.events)
	}
	return Place{Zxid: z, events: c.mu.queued - uint64(len(c.mu.events)-n)}
}

// Take returns the events up to a Place that have not been taken, or the reason why the client has
// ended.
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

// OnWake sets the function that is called after each event is queued, and after the end. Only the
// code that has just made the client may call OnWake. The function runs under the locks of the
// client and of registries: it must be short and must not call this package.
func (c *Client) OnWake(wake func()) { c.wake = wake }

// TellMore says that the client is from now on told of the session's ephemerals even if it may not
// read them. Their values are not among that. It gets ReadLost, ReadGained and CreatedHidden for its
// Persistent and Recursive watches, which may have values.
func (c *Client) TellMore(session tree.SessionID) {
	lock(c.parts)
	defer unlock(c.parts)
	c.owner = session
}

// Owns reports whether a znode with an owner is an ephemeral of the session that TellMore named. It
// is for the look of Arm.
func (c *Client) Owns(owner tree.SessionID) bool { return owner != 0 && owner == c.owner }

// The bytes of a watch besides its path, and of an event, about as measured.
const (
	watchBytes = 256
	eventBytes = 64
)

// Weight returns the bytes that events take, in the queue or after Take, with their data. Their
// paths may be of znodes that no longer exist.
func Weight(events ...Event) (n int) {
	for i := range events {
		n += eventBytes + len(events[i].Path)
		if events[i].hasData() {
			n += int(events[i].found.Stat().DataLength)
		}
	}
	return n
}

// OnHold sets the function that is called with each change in the bytes of watches and queued
// events. The client ends with ErrTooHeavy if its watches take more than most bytes; zero means no
// limit. Only the code that has just made the client may call OnHold. The function runs under the
// locks of the client and of registries: it must be short and must not call this package.
func (c *Client) OnHold(most int, held func(bytes int)) { c.most, c.held = most, held }

// weigh adds the number and the bytes of more marks of m's size; more is 1 or -1.
func (c *Client) weigh(m *mark, more int) {
	if m.terms&joint == 0 {
		c.marks.Add(int64(more))
	}
	n := more * (watchBytes + len(m.path))
	c.held(n)
	if all := c.bytes.Add(int64(n)); c.most > 0 && all > int64(c.most) {
		c.end(ErrTooHeavy)
	}
}

// Err returns why the client has ended, and nil while it has not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// End ends the client, unless it has ended, and removes its watches. A nil error means ErrEnded.
//
// When a client ends by itself, its watches stay, without effect, until End. The code that finds
// out that the client must end holds one registry's lock and cannot wait for other shards.
func (c *Client) End(err error) {
	if err == nil {
		err = ErrEnded
	}
	c.end(err)
	for i := range c.parts {
		c.parts[i].clear()
	}
}

// Counts returns how many watches there are, as ZooKeeper counts them. The first result is the
// number of paths in the data table, which has Persistent and Recursive watches as well. The second
// is the number of paths in the child table.
func (c *Client) Counts() (data, children int) {
	if len(c.parts) > 1 { // a path may be on several
		return len(c.paths(dataTable, belowTable)), len(c.paths(childTable))
	}
	lock(c.parts)
	defer unlock(c.parts)
	p := &c.parts[0]
	return len(p.own[dataTable].marks) + len(p.own[belowTable].marks) - p.both, len(p.own[childTable].marks)
}

// Len returns how many watches there are, at once: paths whose data are watched, paths whose children
// are, and paths below which everything is. A Persistent watch counts as the first two. A watch on
// several registries counts once.
func (c *Client) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.marks.Load()) + len(c.mu.joint)
}

// Paths returns the paths in ZooKeeper's data table, in order.
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

// Watched returns how many paths clients watch, as ZooKeeper counts them: those in the data table.
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

// lock acquires the locks of the parts' registries. All clients acquire them in the same order.
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

// liveLocked returns why nothing can be armed, or nil.
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

func (c *Client) armLocked(parts []part, path string, mode Mode, o Options) {
	tables, on := mode.spots()
	if len(parts) > 1 {
		c.mu.Lock()
		if c.mu.joint == nil {
			c.mu.joint = make(map[jointly]terms)
		}
		for _, in := range tables {
			c.mu.joint[jointly{in, path}] |= on
		}
		c.mu.Unlock()
		on |= joint
	}
	if o.Values {
		on |= valued
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
	return c.mu.joint[jointly{in, m.path}]&once != 0
}

// use takes terms from the watch of a mark that has them, and reports whether the watch still had
// them.
func (c *Client) use(in table, m *mark, off terms) bool {
	if m.terms&joint == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := jointly{in, m.path}
	was := c.mu.joint[at]
	if c.mu.joint[at] = was &^ off; was&^off == 0 {
		delete(c.mu.joint, at)
	}
	return was&off != 0
}

// tell queues an event. If the queue is full, the client ends instead.
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
		for _, m := range p.own[in].marks { // a mark that fires meanwhile is skipped
			p.client.use(in, m, once|lasting)
			p.drop(in, m, once|lasting)
			if n++; n%portion == 0 {
				r.mu.Unlock()
				r.mu.Lock()
			}
		}
		p.own[in].marks = nil
	}
}
