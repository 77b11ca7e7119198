package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"

	"github.com/vivarium-go/vivarium/engine/command"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// EndPortion bounds the sessions and znodes, taken together, that one log entry removes by their ends: by twice as much. A million
// ephemerals in one entry would stop every member's apply for seconds, and with it the proof that the other nodes are alive.
// Measured without watches, 10,000 in one entry take 11 ms, 100,000 take 0.1 s and a million 1.4 s.
// In portions a million take 3 s of processor time, 30 ms in each entry and 0.1 s in the first.
//
// So a session that owns more goes in several transactions, unlike in ZooKeeper. It has ended with the
// first word of it: nothing of it is applied any more, its node has been told, and whoever waits for one
// of its znodes waits until that goes. A bound on what a session may own would refuse what
// ZooKeeper allows, and each of its ends would still take as long as that bound.
const EndPortion = 10_000

// What was applied is written to the image when one of these is reached since the last time, so that a znode that is set again
// and again, and where each stream stands, is written once; see BenchmarkApply. Until then it is in the Raft log alone, which is
// cut behind what Sync has made durable only. They bound what a start after a crash applies again beside what the image had not
// flushed, how long the log stands still for one write, and with it the memory that takes.
const (
	SaveEntries = 1024
	SaveBytes   = 1 << 20 // of commands
	SaveRecords = 2048
)

// A Node is what a machine asks of its node.
type Node interface {
	// Fail fails the node. It does not block.
	Fail(cause error)
	// Gone is called before a transaction is visible whose changes may take znodes from the node's claims.
	Gone(changes []tree.Change)
	// Ended is called when a shard's log has ended sessions, before anyone can see it.
	Ended(at replication.ShardID, why error, ids ...tree.SessionID)
	// Expired is called once for each session that the home shard's log has expired.
	Expired(id tree.SessionID)
	// Left is called before the log attaches a remote session elsewhere, or here anew.
	Left(id tree.SessionID)
	// Adopt is called when the node's Register was applied at home: the remote sessions that the table has attached to this member
	// are the node's from now on.
	Adopt(table *session.Table)
	// Reconcile is called when a shard's state is about to be replaced by a received one. registered says that this has the node's
	// Register.
	Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool)
}

// A Replica is one shard's replicated state on this node: the tree, the session table and the zxid. Every replica
// makes the same transitions from the same log; what a machine does beyond that (completing waiters, ending claims,
// telling watches) concerns its own node only and never flows back.
type Replica struct {
	// Immutable after newMachine.
	node    Node
	schemes tree.Schemes // that this member knows
	Shard   replication.ShardID
	Outbox  *outbox.Outbox
	image   *storage.Image
	Watches *watch.Registry
	expirer *expirer
	reaper  *reaper
	purger  *Purger
	Portion int // expirePortion, but in tests
	quotas  softQuotas

	// tree is replaced when a snapshot is installed, and by an empty one at the end; readers load it anew for each read.
	tree  atomic.Pointer[tree.Tree]
	index atomic.Uint64           // in the Raft log, of the newest entry that was applied
	Sizes Sizes                   // of the entries
	last  atomic.Pointer[Figures] // once there is no tree any more

	// Owned by the goroutine that applies.
	batch    *storage.Batch               // of the image
	gathered struct{ entries, bytes int } // what the image does not have yet
	room     command.Reader
	record   []byte         // of a znode, while it is put into the batch
	result   [1]tree.Result // where the tree puts that of an operation that nobody here waits for

	// origins are the members as they have registered. A peer that reconnects is judged by them: it must not wait for a machine that
	// stands still, or no shard could reach it.
	origins atomic.Pointer[map[session.MemberID]session.Origin]

	// mu is held while one entry is applied, and shortly by the loops and by Ephemerals.
	mu struct {
		rank.Mutex[rank.Replica]
		table *session.Table
		command.State
		// since is when this node applied the entry that made an origin's newest (last seq, step); the
		// leader measures the next step of silence from there.
		since map[session.MemberID]time.Time
		// portions counts the ends of due sessions that were applied here; removed is what the entry has removed by others.
		portions uint64
		removed  int
		// loaded is when the tree was loaded. What its clock says counts from there: see tree.At.
		loaded time.Time
	}
}

// Options are what a machine is made of.
type Options struct {
	Shard      replication.ShardID
	Node       Node
	Raft       Raft
	Outbox     *outbox.Outbox
	Schemes    tree.Schemes // that this member knows
	Member     replication.MemberID
	TimeoutMin time.Duration // the smallest timeout that a session of any member can have
	ReapEvery  time.Duration // how often the reaper looks
	Log        *slog.Logger
}

// New returns a machine that holds nothing yet: load follows.
func New(o Options) *Replica {
	m := &Replica{node: o.Node, schemes: o.Schemes, Shard: o.Shard, Outbox: o.Outbox, Watches: watch.NewRegistry(), Portion: EndPortion,
		quotas: softQuotas{log: o.Log}}
	m.tree.Store(tree.New(nil))
	m.mu.table = session.NewTable()
	m.noteOrigins()
	m.restartClocks()
	m.expirer = newExpirer(m, o.Raft, o.Member, o.TimeoutMin, o.Log)
	m.reaper = newReaper(m, o.Raft, o.Member, o.ReapEvery, o.Log)
	return m
}

// ExpireLoop measures the silence of origins while this node leads the shard, and expires sessions. It ends when either channel is
// closed.
func (m *Replica) ExpireLoop(stop, done <-chan struct{}) {
	lookLoop(stop, done, m.expirer.wake, m.ExpireDue)
}

// ExpireDue proposes what ExpireLoop has to propose now, and returns when to look again.
func (m *Replica) ExpireDue(now time.Time) time.Duration { return m.expirer.look(now) }

// ReapLoop removes containers and TTL znodes whose time has come while this node leads the shard. It ends when either channel is
// closed.
func (m *Replica) ReapLoop(stop, done <-chan struct{}) { m.reaper.loop(stop, done) }

// ReapDue proposes what ReapLoop has to propose now.
func (m *Replica) ReapDue(now time.Time) { m.reaper.round(now) }

// LeaderChanged records that the shard's term or leader has changed.
func (m *Replica) LeaderChanged() {
	m.Outbox.LeaderChanged()
	m.expirer.signal()
}

// ShardsOf returns the shards that a session uses. It is for a Call's Applied hook, which runs while an entry is applied.
func (m *Replica) ShardsOf(id tree.SessionID) []uint32 {
	r, _ := m.mu.table.Get(id)
	return r.Shards
}

// Tree returns the tree as it is now. A snapshot that is installed replaces it.
func (m *Replica) Tree() *tree.Tree { return m.tree.Load() }

// Index returns the index in the Raft log of the newest entry that was applied.
func (m *Replica) Index() uint64 { return m.index.Load() }

// CloseImage makes the image durable and closes it.
func (m *Replica) CloseImage() error {
	if m.image == nil {
		return nil
	}
	return m.image.Close()
}

// Load reads an image into memory. It runs on the goroutine of Start, before the shard does. The image is the machine's from then on.
func (m *Replica) Load(image *storage.Image) error {
	m.image, m.batch = image, image.NewBatch()
	t, table, one, err := loadImage(m.image, m.schemes)
	if err != nil {
		return fmt.Errorf("shard %d: %w", m.Shard, err)
	}
	m.tree.Store(t)
	m.Watches.Deliver(one.Zxid, nil, nil)
	m.mu.table, m.mu.State = table, one
	m.noteOrigins()
	m.index.Store(m.image.Applied())
	m.restartClocks()
	return nil
}

// Figures are what monitors ask of a shard. Once its machine is closed they stay as they were.
type Figures struct {
	Applied       uint64 // log index
	Zxid          tree.Zxid
	TreeSize      int64  // see tree.Weight
	OverSoftQuota uint64 // transactions since the start
	Znodes, Size  int    // bytes
}

// Figures are what this node knows of the shard. It waits for nothing.
func (m *Replica) Figures() Figures {
	t := m.tree.Load()
	now := Figures{Applied: m.index.Load(), Zxid: t.Visible(), TreeSize: t.Weight(), OverSoftQuota: m.quotas.count.Load(), Znodes: t.Len(), Size: t.Size()}
	if last := m.last.Load(); last != nil { // asked last: the tree may have gone meanwhile
		return *last
	}
	return now
}

// Origin is what a member has registered with; false if it has not. It waits for nothing.
func (m *Replica) Origin(id session.MemberID) (session.Origin, bool) {
	o, ok := (*m.origins.Load())[id]
	return o, ok
}

// noteOrigins takes note of who has registered. mu is held.
func (m *Replica) noteOrigins() {
	origins := make(map[session.MemberID]session.Origin)
	for _, o := range m.mu.table.Origins() {
		origins[o.Member] = o
	}
	m.origins.Store(&origins)
}

// restartClocks begins to measure anew for how long every origin has been silent, and every znode of
// the tree as it is: nothing was observed before now.
func (m *Replica) restartClocks() {
	now := time.Now()
	m.mu.loaded = now
	m.mu.since = make(map[session.MemberID]time.Time)
	for _, o := range m.mu.table.Origins() {
		m.mu.since[o.Member] = now
	}
}

// Applied implements replication.StateMachine.
func (m *Replica) Applied() uint64 { return m.image.Applied() }

// Apply implements replication.StateMachine. An entry that cannot be applied fails the node: going on without it
// would make this replica another than the rest.
func (m *Replica) Apply(entries []replication.Entry) {
	for i := range entries {
		c, err := m.room.Decode(entries[i].Cmd)
		if err != nil {
			m.node.Fail(fmt.Errorf("shard %d: log entry %d: %w", m.Shard, entries[i].Index, err))
			return
		}
		records := m.ApplyOne(entries[i].Index, &c)
		m.room.Reset()
		m.quotas.tell()
		m.gathered.entries++
		m.gathered.bytes += len(entries[i].Cmd)
		m.Sizes.note(len(entries[i].Cmd))
		if (m.gathered.entries >= SaveEntries || m.gathered.bytes >= SaveBytes || records >= SaveRecords) && m.save() != nil {
			return
		}
	}
}

// ApplyOne applies one entry, and returns how many records the image lacks. A panic under it fails the node, and must not keep mu.
func (m *Replica) ApplyOne(index uint64, c *command.Command) (records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(c)
	m.index.Store(index)
	return m.tree.Load().Dirty() + m.mu.table.Dirty()
}

// apply makes one command's transitions. mu is held.
func (m *Replica) apply(c *command.Command) {
	m.tree.Load().At(time.Since(m.mu.loaded))
	m.mu.removed = 0
	switch c.Kind {
	case command.KindRegister:
		m.applyRegister(c)
	case command.KindBatch:
		m.applyBatch(c)
	case command.KindSilence:
		if m.mu.table.Silence(c.Step, c.Silence) {
			m.mu.since[c.Step.Member] = time.Now()
			m.expireDue(c.Wall)
		}
	case command.KindExpire:
		m.expireDue(c.Wall)
	case command.KindReap:
		m.reap(c)
	case command.KindPurge:
		m.purge(c)
	case command.KindPurged:
		m.purged(c)
	}
}

func (m *Replica) own(o session.Origin) bool {
	return o.Member == m.Outbox.Origin.Member && o.Start == m.Outbox.Origin.Start
}

func (m *Replica) applyRegister(c *command.Command) {
	own := m.own(c.Origin)
	if o, ok := m.mu.table.Origin(c.Origin.Member); ok && o.Start == c.Origin.Start && o.Directory == c.Origin.Directory {
		if own && m.Outbox.Oldest(0) != nil { // a repeat of one that this process never saw applied
			m.node.Fail(fmt.Errorf("start %d of member %d has registered before: this directory is a copy from another time; %s", o.Start, o.Member, replication.WayOut))
		}
		return
	}
	if _, err := m.mu.table.Register(c.Origin); err != nil {
		if own {
			m.node.Fail(fmt.Errorf("the ensemble refuses this member: %w", err))
		}
		return
	}
	m.noteOrigins()
	m.use(c.Rules)
	m.mu.since[c.Origin.Member] = time.Now()
	m.expireDue(c.Wall) // the predecessor's sessions are due at once
	if own {
		if m.Shard == command.HomeShard {
			m.node.Adopt(m.mu.table)
		}
		m.Outbox.BatchApplied(m.Outbox.Oldest(0))
	}
}

// use has transactions judged by the rules of the member with the newest Register.
func (m *Replica) use(r command.Rules) {
	schemes, err := pick(m.schemes, r.Schemes)
	if err != nil {
		m.node.Fail(err)
		return
	}
	m.mu.Rules = r
	t := m.tree.Load()
	t.SetSchemes(schemes)
	t.SetWeightMax(r.TreeMax)
}

func (m *Replica) applyBatch(c *command.Command) {
	o := c.Origin
	own := m.own(o)
	switch v := m.mu.table.Accept(o.Member, o.Start, o.LastSeq); v {
	case session.Accepted:
	case session.Repeat:
		return
	case session.Gap:
		if own {
			m.Outbox.GapFound()
		}
		return
	default:
		if own {
			m.node.Fail(fmt.Errorf("the ensemble refuses this node's requests (%v): a newer start of member %d has registered, from this directory or a copy of it", v, o.Member))
		}
		return
	}
	m.mu.since[o.Member] = time.Now()
	m.mu.table.AcknowledgeEnds(o.Member, c.Home)
	var b *outbox.Batch
	if own {
		b = m.Outbox.Oldest(o.LastSeq)
	}
	var room []tree.Result
	if b == nil {
		room = m.result[:]
	}
	for i := range c.Requests {
		results, zxid, err := m.request(o.Member, c.Wall, &c.Requests[i], room)
		m.Outbox.Complete(b, i, results, zxid, err)
	}
	m.Outbox.BatchApplied(b)
}

// request applies one request of a batch. Its results may be in room; the zxid is that of a transaction that opened or attached a
// session, and of any other the newest when it was applied.
func (m *Replica) request(at session.MemberID, wall int64, r *command.Request, room []tree.Result) ([]tree.Result, tree.Zxid, error) {
	switch r.Kind {
	case command.RequestTxn:
		if err := m.usable(r.Session, at); err != nil {
			return nil, 0, err
		}
		h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall, Session: r.Session, Identities: m.identities(r.Session)}
		results, err := m.commit(h, r.Ops, room)
		if err != nil && len(r.Ops) == 1 {
			err = &tree.MultiError{Err: err} // whoever asked for one operation takes it off again
		}
		return results, m.mu.Zxid, err
	case command.RequestAddShard:
		return nil, 0, expired(m.mu.table.AddShard(r.Session, at, r.Shard))
	case command.RequestIntroduce:
		return nil, 0, expired(m.mu.table.Introduce(r.Session, r.Timeout, at, r.Attached, r.Identities))
	case command.RequestSetIdentities:
		return nil, 0, m.identify(at, r)
	case command.RequestOpen:
		z, err := m.openSession(at, wall, r)
		return nil, z, err
	case command.RequestReattach:
		z, err := m.moveSession(at, wall, r)
		return nil, z, err
	case command.RequestClose:
		if err := expired(m.mu.table.CheckAttachment(r.Session, at, r.Attached)); err != nil {
			return nil, 0, err
		}
		why := outbox.ErrSessionClosed
		if r.Lost && r.Attached != 0 {
			why = outbox.ErrSessionExpired // its client was silent; a session of the node itself has ended by its owner's will or clock
		}
		m.endAsked(r.Session, wall, r.Lost, why)
		return nil, 0, nil
	default:
		return nil, 0, m.release(at, wall, r)
	}
}

// openSession opens a session and returns the zxid of that, which is its id: unique, never used again, the same on every replica.
func (m *Replica) openSession(at session.MemberID, wall int64, r *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall}
	var attached tree.Zxid
	if r.Remote {
		attached = h.Zxid
	}
	if err := m.mu.table.Open(tree.SessionID(h.Zxid), r.Password, r.Timeout, at, attached, r.Identities); err != nil {
		return 0, err
	}
	_, err := m.commit(h, nil, nil)
	return h.Zxid, err
}

// moveSession attaches a remote client's session to a member, and returns the zxid of that. What this node has of an earlier
// attachment ends before anybody can know of the new one.
func (m *Replica) moveSession(at session.MemberID, wall int64, r *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall}
	if m.mu.table.Reattach(r.Session, r.Password, r.Timeout, at, h.Zxid, r.Identities) != nil {
		return 0, outbox.ErrSessionExpired // whatever it is: see Table.Reattach
	}
	m.node.Left(r.Session)
	_, err := m.commit(h, nil, nil)
	return h.Zxid, err
}

// identify replaces the identities of a session, if the connection that has shown them is still the one it is attached to.
func (m *Replica) identify(at session.MemberID, r *command.Request) error {
	err := m.mu.table.CheckAttachment(r.Session, at, r.Attached)
	if err == nil {
		err = m.mu.table.SetIdentities(r.Session, at, r.Identities)
	}
	return expired(err)
}

// identities are what a session has authenticated as.
func (m *Replica) identities(id tree.SessionID) []tree.Identity {
	r, _ := m.mu.table.Get(id)
	return r.Identities
}

// Inspect calls look with the session table while nothing is applied. The machine may stand still in the midst of an entry:
// inspect waits until ctx ends, or stop is closed, and returns ctx's error.
func (m *Replica) Inspect(ctx context.Context, stop <-chan struct{}, look func(table *session.Table)) error {
	for !m.mu.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return context.Canceled
		case <-time.After(time.Millisecond):
		}
	}
	defer m.mu.Unlock()
	look(m.mu.table)
	return nil
}

func (m *Replica) usable(id tree.SessionID, at session.MemberID) error {
	return expired(m.mu.table.Usable(id, at))
}

// expired is what a session's owner is told that the table refuses.
func expired(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrAttachedElsewhere):
		return outbox.ErrSessionMoved
	}
	return outbox.ErrSessionExpired
}

// release ends the ephemeral znode that a session created at r.czxid, if it is still there and the session's. It can do nothing to
// another, so it is safe to repeat at any time.
func (m *Replica) release(at session.MemberID, wall int64, r *command.Request) error {
	if err := m.usable(r.Session, at); err != nil {
		return nil // the session's end took the znode, or will before anything else of it is applied; or it is another attachment's now
	}
	stat, ok := m.tree.Load().Exists(r.Path)
	if !ok || stat.Czxid != r.Czxid || stat.EphemeralOwner != r.Session {
		return nil
	}
	_, err := m.commit(tree.Header{Zxid: m.mu.Zxid + 1, Time: wall, Session: r.Session, System: true},
		[]tree.Op{endOf(r.Path, r.Lost)}, nil)
	return err
}

// endOf is the end of an ephemeral: lost it may linger.
func endOf(path string, lost bool) tree.Op {
	kind := tree.KindDelete
	if lost {
		kind = tree.KindLose
	}
	return tree.Op{Kind: kind, Path: path, Version: tree.AnyVersion}
}

// commit applies one transaction. What its end takes from holders on this node ends before any reader, watch or
// contender can see it. Its results may be in room.
func (m *Replica) commit(h tree.Header, ops []tree.Op, room []tree.Result) ([]tree.Result, error) {
	t := m.tree.Load()
	results, err := t.ApplyInto(room, h, ops)
	if err != nil {
		return nil, err
	}
	m.publish(t, h.Zxid)
	return results, nil
}

// publish makes the transaction that the tree has applied visible.
func (m *Replica) publish(t *tree.Tree, z tree.Zxid) {
	m.mu.Zxid = z
	changes := t.Changes()
	m.mu.table.Track(changes)
	m.node.Gone(changes)
	if over := t.Over(); len(over) > 0 {
		m.quotas.over(over, time.Now())
	}
	m.Watches.Deliver(z, changes, t.Publish)
}

// reap removes containers and TTL znodes that are still as the reaper saw them, each in a transaction of its own.
func (m *Replica) reap(c *command.Command) {
	t := m.tree.Load()
	for _, z := range c.Reap {
		h := tree.Header{Zxid: m.mu.Zxid + 1, Time: c.Wall, System: true}
		if t.Reap(h, z.Path, z.Seen) == nil { // else somebody used it since
			m.publish(t, h.Zxid)
		}
	}
}

// sessionEnded tells the node that a session has ended here.
func (m *Replica) sessionEnded(id tree.SessionID, why error) {
	m.node.Ended(m.Shard, why, id)
	if m.Shard == command.HomeShard && why == outbox.ErrSessionExpired {
		m.node.Expired(id)
	}
}

// endAsked ends a session as its node has asked. If that is too much for the entry, the session is due from
// now on. On another shard than home that waits until home says so: only then is it known to end there
// however late anything comes that was asked for it.
func (m *Replica) endAsked(id tree.SessionID, wall int64, lost bool, why error) {
	m.sessionEnded(id, why)
	if m.mu.table.Owns(id) <= m.Portion && m.mu.removed < m.Portion {
		m.mu.removed += m.endSession(id, wall, lost)
		return
	}
	if m.Shard == command.HomeShard {
		m.mu.table.DecideEnd(id, m.mu.Zxid, lost)
		m.expirer.signal()
	}
}

// closeSession ends a session that is due, or a portion of it.
func (m *Replica) closeSession(id tree.SessionID, wall int64, lost bool) int {
	why := outbox.ErrSessionClosed
	if lost {
		why = outbox.ErrSessionExpired
	}
	if m.Shard == command.HomeShard && m.mu.table.IsEnding(id) || m.mu.table.Owns(id) > m.Portion {
		m.node.Ended(m.Shard, why, id) // who watches the log is told once: by endAsked, or with the last portion
	} else {
		m.sessionEnded(id, why)
	}
	return m.endSession(id, wall, lost)
}

// endSession ends a session in a transaction of its own: its ephemerals go, or linger if it was lost, then its record. Of one with
// more ephemerals than a portion, a portion goes and the record stays. It returns how much went.
func (m *Replica) endSession(id tree.SessionID, wall int64, lost bool) int {
	paths := m.mu.table.Leaving(id, m.Portion)
	ops := make([]tree.Op, len(paths))
	for i, p := range paths {
		ops[i] = endOf(p, lost)
	}
	if _, err := m.commit(tree.Header{Zxid: m.mu.Zxid + 1, Time: wall, Session: id, System: true}, ops, nil); err != nil {
		m.node.Fail(fmt.Errorf("shard %d: closing session %d: %w", m.Shard, id, err)) // the table names a znode that the tree does not have
	}
	if m.mu.table.Owns(id) > 0 {
		return len(paths)
	}
	told := m.Shard != command.HomeShard && m.mu.table.IsEnding(id)
	m.mu.table.Close(id, m.mu.Zxid, lost)
	if told {
		m.purger.purged(m.Shard, id)
	} else {
		m.purger.Signal() // there may be shards to be told
	}
	return len(paths) + 1
}

// expireDue expires sessions that are due, in order of id, until a portion of them and their znodes is gone. The leader commits
// further portions; until its turn a due session is refused everything.
func (m *Replica) expireDue(wall int64) {
	due := m.mu.table.Due()
	// This node's own are told all at once: what waits for its turn has ended, and must be granted nothing.
	m.node.Ended(m.Shard, outbox.ErrSessionExpired, due...)
	m.mu.portions++
	for gone := 0; len(due) > 0 && gone < m.Portion; {
		gone += m.closeSession(due[0], wall, m.mu.table.Lost(due[0]))
		if m.mu.table.Owns(due[0]) == 0 {
			due = due[1:]
		}
	}
	if len(due) > 0 {
		m.expirer.signal()
	}
}

// save writes what has changed to the image, in one batch with the applied index. The commit may have to wait for the disk, so mu
// is not held over it. An error fails the node: the changes are forgotten.
func (m *Replica) save() error {
	if m.gathered.entries == 0 {
		return nil
	}
	err := m.writeDirty()
	if err == nil {
		err = m.batch.Commit(m.index.Load())
	}
	if err != nil {
		m.node.Fail(fmt.Errorf("shard %d: image: %w", m.Shard, err))
		return err
	}
	m.gathered.entries, m.gathered.bytes = 0, 0
	return nil
}

// writeDirty collects what has changed in the batch.
func (m *Replica) writeDirty() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.batch
	err := m.tree.Load().Drain(func(path string, z tree.Znode, exists bool) error {
		if exists {
			m.record = command.AppendZnode(m.record[:0], z)
			b.Put(storage.Znodes, []byte(path), m.record) // which copies it: a million creates make a tenth less garbage
		} else {
			b.Delete(storage.Znodes, []byte(path))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = m.mu.table.Drain(func(o session.Origin) error {
		b.Put(storage.Origins, command.IDKey(uint64(o.Member)), command.EncodeOrigin(o))
		return nil
	}, func(id tree.SessionID, r session.Record, exists bool) error {
		if exists {
			b.Put(storage.Sessions, command.IDKey(uint64(id)), command.EncodeSession(r))
		} else {
			b.Delete(storage.Sessions, command.IDKey(uint64(id)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(m.mu.State))
	return nil
}

// Sync implements replication.StateMachine.
func (m *Replica) Sync() error {
	if err := m.save(); err != nil {
		return err
	}
	return m.image.Sync()
}

// Snapshot implements replication.StateMachine.
func (m *Replica) Snapshot() (replication.Snapshot, error) {
	if err := m.save(); err != nil {
		return nil, err
	}
	return m.image.Snapshot()
}

// Close implements replication.StateMachine. The image stays open until the engine closes it, which makes it durable. The tree and the
// table are let go: dragonboat's metrics keep what belongs to a process's first node until the process ends.
func (m *Replica) Close() error {
	err := m.save()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.Figures()
	m.last.Store(&last)
	m.tree.Store(tree.New(nil))
	m.mu.table = session.NewTable()
	return err
}
