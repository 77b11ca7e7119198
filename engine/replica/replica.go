package replica

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
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
	tree        atomic.Pointer[tree.Tree]
	index       atomic.Uint64           // in the Raft log, of the newest entry that was applied
	Sizes       Sizes                   // of the entries
	lastFigures atomic.Pointer[Figures] // once there is no tree any more

	// Owned by the goroutine that applies.
	batch     *storage.Batch               // of the image
	unsaved   struct{ entries, bytes int } // what the image does not have yet
	decoder   command.Reader
	record    []byte         // of a znode, while it is put into the batch
	discarded [1]tree.Result // where the tree puts that of an operation that nobody here waits for

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
		stepStart map[session.MemberID]time.Time
		// portions counts the ends of due sessions that were applied here; removed is what the entry has removed by others.
		portions uint64
		removed  int
		// loaded is when the tree was loaded. What its clock says counts from there: see tree.At.
		loadedAt time.Time
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
	r := &Replica{node: o.Node, schemes: o.Schemes, Shard: o.Shard, Outbox: o.Outbox, Watches: watch.NewRegistry(), Portion: EndPortion,
		quotas: softQuotas{log: o.Log}}
	r.tree.Store(tree.New(nil))
	r.mu.table = session.NewTable()
	r.noteOrigins()
	r.restartClocks()
	r.expirer = newExpirer(r, o.Raft, o.Member, o.TimeoutMin, o.Log)
	r.reaper = newReaper(r, o.Raft, o.Member, o.ReapEvery, o.Log)
	return r
}

// ExpireLoop measures the silence of origins while this node leads the shard, and expires sessions. It ends when either channel is
// closed.
func (r *Replica) ExpireLoop(stop, done <-chan struct{}) {
	lookLoop(stop, done, r.expirer.wake, r.ExpireDue)
}

// ExpireDue proposes what ExpireLoop has to propose now, and returns when to look again.
func (r *Replica) ExpireDue(now time.Time) time.Duration { return r.expirer.look(now) }

// ReapLoop removes containers and TTL znodes whose time has come while this node leads the shard. It ends when either channel is
// closed.
func (r *Replica) ReapLoop(stop, done <-chan struct{}) { r.reaper.loop(stop, done) }

// ReapDue proposes what ReapLoop has to propose now.
func (r *Replica) ReapDue(now time.Time) { r.reaper.round(now) }

// LeaderChanged records that the shard's term or leader has changed.
func (r *Replica) LeaderChanged() {
	r.Outbox.LeaderChanged()
	r.expirer.signal()
}

// Tree returns the tree as it is now. A snapshot that is installed replaces it.
func (r *Replica) Tree() *tree.Tree { return r.tree.Load() }

// Index returns the index in the Raft log of the newest entry that was applied.
func (r *Replica) Index() uint64 { return r.index.Load() }

// ShardsOf returns the shards that a session uses. It is for a Call's Applied hook, which runs while an entry is applied.
func (r *Replica) ShardsOf(id tree.SessionID) []uint32 {
	rec, _ := r.mu.table.Get(id)
	return rec.Shards
}

// Origin is what a member has registered with; false if it has not. It waits for nothing.
func (r *Replica) Origin(id session.MemberID) (session.Origin, bool) {
	o, ok := (*r.origins.Load())[id]
	return o, ok
}

// noteOrigins takes note of who has registered. mu is held.
func (r *Replica) noteOrigins() {
	origins := make(map[session.MemberID]session.Origin)
	for _, o := range r.mu.table.Origins() {
		origins[o.Member] = o
	}
	r.origins.Store(&origins)
}

// restartClocks begins to measure anew for how long every origin has been silent, and every znode of
// the tree as it is: nothing was observed before now.
func (r *Replica) restartClocks() {
	now := time.Now()
	r.mu.loadedAt = now
	r.mu.stepStart = make(map[session.MemberID]time.Time)
	for _, o := range r.mu.table.Origins() {
		r.mu.stepStart[o.Member] = now
	}
}

// Inspect calls look with the session table while nothing is applied. The machine may stand still in the midst of an entry:
// inspect waits until ctx ends, or stop is closed, and returns ctx's error.
func (r *Replica) Inspect(ctx context.Context, stop <-chan struct{}, look func(table *session.Table)) error {
	for !r.mu.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return context.Canceled
		case <-time.After(time.Millisecond):
		}
	}
	defer r.mu.Unlock()
	look(r.mu.table)
	return nil
}
