package replica

import (
	"context"
	"log/slog"
	"sync"
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

// A Node is what a Replica asks of its node. All methods but Fail are called while an entry is
// applied or a state is installed, with the Replica's mu held.
type Node interface {
	// Fail fails the node. It does not block.
	Fail(cause error)
	// Gone is called with the changes of a transaction before the transaction is visible. The
	// changes may take znodes from the node's claims.
	Gone(changes []tree.Change)
	// Ended is called when a shard's log has ended sessions, before any reader can see that.
	Ended(at replication.ShardID, why error, ids ...tree.SessionID)
	// Expired is called once for each session that has expired in the home shard's log.
	Expired(id tree.SessionID)
	// Left is called before a remote session is attached to another member, or to this one anew.
	Left(id tree.SessionID)
	// Adopt is called when the home shard has applied the node's Register. From now on, the remote
	// sessions that the table has attached to this member are the node's.
	Adopt(table *session.Table)
	// Raised is called when a shard's feature level has risen. behind are the members that were left
	// behind, if this node saw them named.
	Raised(at replication.ShardID, level uint32, behind []session.MemberID)
	// Reconcile is called before a received state replaces a shard's state. registered says whether
	// the received state has the node's Register.
	Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool)
	// Dismissed is called when the ensemble refuses this member for good, because it is out.
	Dismissed(why error)
	// Seeded is called when Seed returns something else than before. It must not block.
	Seeded()
	// MembersChanged is called when Members returns something else than before. It must not block.
	MembersChanged()
}

// A Replica is one shard's replicated state on this node: the tree, the session table and the zxid.
// It implements replication.StateMachine. Every replica makes the same transitions from the same
// log.
type Replica struct {
	// Immutable after New, Load, NewPurger and Become.
	node     Node
	schemes  tree.Schemes       // all that this member has
	founders []session.MemberID // the founding members
	Shard    replication.ShardID
	Outbox   *outbox.Outbox
	image    *storage.Image
	Watches  *watch.Registry
	expirer  *expirer
	reaper   *reaper
	purger   *Purger
	Portion  int // EndPortion; tests set a smaller one
	quotas   softQuotas
	audit    func(Audited) // nil: nobody wants to know

	// tree is replaced when a snapshot is installed, and by an empty tree in Close. Readers load it
	// anew for each read.
	tree        atomic.Pointer[tree.Tree]
	swapping    atomic.Bool                         // the watches are being told of the next tree
	index       atomic.Uint64                       // of the newest applied entry in the Raft log
	level       atomic.Uint32                       // mu.Level, for those who do not hold mu
	seed        atomic.Pointer[command.Seed]        // mu.Seed, likewise
	roll        atomic.Pointer[session.MembersView] // mu.members, likewise
	Sizes       Sizes                               // of the applied entries
	Meters      Meters
	lastFigures atomic.Pointer[Figures] // set by Drop

	// turn is full while somebody works on what follows: Raft's apply goroutine, or a Capture. It is
	// a channel and no lock, because an Install may hold it for minutes.
	turn chan struct{} // capacity 1

	// Owned by whoever has the turn.
	batch     *storage.Batch               // for the image
	unsaved   struct{ entries, bytes int } // applied since the last save
	decoder   command.Reader
	record    []byte         // memory for encoding a znode
	discarded [1]tree.Result // memory for a result that no call of this node waits for

	// origins holds the registered members. The handshake with a peer that reconnects reads them,
	// without mu. If one shard's apply stands still, the handshake must not wait for it, or no
	// shard could reach the peer.
	origins atomic.Pointer[sync.Map] // of session.MemberID and session.Origin

	// mu is held while one entry is applied, and briefly by a leader's loops and by Inspect.
	mu struct {
		rank.Mutex[rank.Replica]
		table   *session.Table
		members *session.Members // empty but on the home shard
		command.State
		// stepStart is when this node applied the entry that set an origin's last seq and step as
		// they are now. A leader measures the next step of silence from there.
		stepStart map[session.MemberID]time.Time
		// portions counts the portions of due sessions that were ended here. removed counts the
		// sessions and znodes that the current entry has removed by ending sessions on request.
		portions uint64
		removed  int
		// loadedAt is when the tree was loaded or installed. The tree's clock starts there; see
		// tree.At.
		loadedAt time.Time
	}
}

// Options are the settings of a Replica. All fields but Audit are required.
type Options struct {
	Shard      replication.ShardID
	Node       Node
	Raft       Raft
	Outbox     *outbox.Outbox
	Schemes    tree.Schemes       // all that this member has
	Founders   []session.MemberID // the founding members; Become may replace them
	TimeoutMin time.Duration      // the smallest timeout that a session of any member can have
	ReapEvery  time.Duration      // how often the reaper looks
	Log        *slog.Logger
	// Audit is called with everything that is applied, in the order of the log, with the Replica's mu
	// held. It must not block. Nil costs one comparison for each request.
	Audit func(Audited)
}

// New returns an empty Replica. Load and NewPurger must follow before the shard starts.
func New(o Options) *Replica {
	r := &Replica{node: o.Node, schemes: o.Schemes, founders: o.Founders, Shard: o.Shard, Outbox: o.Outbox, Watches: watch.NewRegistry(), Portion: EndPortion,
		turn: make(chan struct{}, 1), quotas: softQuotas{log: o.Log}, audit: o.Audit}
	r.tree.Store(tree.New(nil))
	r.mu.table, r.mu.members = session.NewTable(), session.NewMembers()
	r.setLevel(command.LevelMin)
	r.setSeed(command.Seed{})
	r.noteOrigins()
	r.roll.Store(r.mu.members.View())
	r.restartClocks()
	r.expirer = newExpirer(r, o.Raft, o.TimeoutMin, o.Log)
	r.reaper = newReaper(r, o.Raft, o.ReapEvery, o.Log)
	return r
}

// Become says who this member is, and who founded the ensemble. It is called before the shard
// starts, and before any loop of the Replica or its Outbox does.
func (r *Replica) Become(o session.Origin, founders []session.MemberID) {
	r.Outbox.Origin, r.founders = o, founders
	r.decoder.Next = o.Level >= command.LevelNext
}

// leads reports whether this member leads a shard, as far as Raft says.
func (r *Replica) leads(id replication.ShardID, raft outbox.Raft) bool {
	return raft.Leader(id).Member == replication.MemberID(r.Outbox.Origin.Member)
}

// ExpireLoop measures the silence of origins and proposes to expire sessions, while this node leads
// the shard. It returns when either channel is closed.
func (r *Replica) ExpireLoop(stop, done <-chan struct{}) {
	lookLoop(stop, done, r.expirer.wake, r.ExpireDue)
}

// ExpireDue is one round of ExpireLoop. It proposes what is due at the given time, and returns how
// long the loop may wait for the next round.
func (r *Replica) ExpireDue(now time.Time) time.Duration { return r.expirer.look(now) }

// ReapLoop proposes to remove containers and TTL znodes whose time has come, while this node leads
// the shard. It returns when either channel is closed.
func (r *Replica) ReapLoop(stop, done <-chan struct{}) { r.reaper.loop(stop, done) }

// ReapDue is one round of ReapLoop.
func (r *Replica) ReapDue(now time.Time) { r.reaper.round(now) }

// LeaderChanged records that the shard's term or leader has changed.
func (r *Replica) LeaderChanged() {
	r.Outbox.LeaderChanged()
	r.expirer.signal()
}

// Tree returns the current tree, for a read. Installing a snapshot replaces it. Tree waits while
// the watches are told of the new tree. Under the lock of their registry it never has to.
func (r *Replica) Tree() *tree.Tree {
	if r.swapping.Load() {
		r.Watches.Wait()
	}
	return r.tree.Load()
}

// Visible returns the newest transaction that readers see. It waits for nobody.
func (r *Replica) Visible() tree.Zxid { return r.tree.Load().Visible() }

// MayRead reports whether an ACL lets somebody read. All trees of a node judge by the same schemes.
// MayRead waits for nobody.
func (r *Replica) MayRead(who []tree.Identity, acl []tree.ACL) bool {
	return r.tree.Load().As(who).MayRead(acl)
}

// Index returns the index in the Raft log of the newest applied entry.
func (r *Replica) Index() uint64 { return r.index.Load() }

// ShardsOf returns the shards that a session uses besides the home shard. Only a Call's OnOutcome
// may call it: it runs while an entry is applied, with mu held.
func (r *Replica) ShardsOf(id tree.SessionID) []uint32 {
	rec, _ := r.mu.table.Get(id)
	return rec.Shards
}

// Origin returns what a member has registered with, and false if the member has not registered. It
// takes no lock.
func (r *Replica) Origin(id session.MemberID) (session.Origin, bool) {
	o, ok := r.origins.Load().Load(id)
	if !ok {
		return session.Origin{}, false
	}
	return o.(session.Origin), true
}

// noteOrigins makes origins anew from the table. mu is held.
func (r *Replica) noteOrigins() {
	var origins sync.Map
	for _, o := range r.mu.table.Origins() {
		origins.Store(o.Member, o)
	}
	r.origins.Store(&origins)
}

// noteOrigin updates one of origins from the table. mu is held.
func (r *Replica) noteOrigin(m session.MemberID) {
	if o, registered := r.mu.table.Origin(m); registered {
		r.origins.Load().Store(m, o)
	}
}

// restartClocks restarts the stopwatch of every origin's silence, and the ages of all znodes in the
// tree. This node has observed nothing before now.
func (r *Replica) restartClocks() {
	now := time.Now()
	r.mu.loadedAt = now
	r.mu.stepStart = make(map[session.MemberID]time.Time)
	for _, o := range r.mu.table.Present() {
		r.mu.stepStart[o.Member] = now
	}
}

// Inspect calls look with the session table, while nothing is applied. If apply stands still within
// an entry, Inspect waits. It returns ctx's error if ctx ends first, and context.Canceled if stop
// is closed first.
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
