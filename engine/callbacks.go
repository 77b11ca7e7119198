package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/levels"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/peers"
	"github.com/vivarium-go/vivarium/engine/petition"
	"github.com/vivarium-go/vivarium/engine/presence"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/engine/spread"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// callbacks are the calls from the rooms below up to the Engine. They are a type of their own, so
// that the Engine does not export them.
type callbacks struct{ engine *Engine }

var (
	_ outbox.Node   = callbacks{}
	_ outbox.Raft   = callbacks{}
	_ replica.Node  = callbacks{}
	_ replica.Raft  = callbacks{}
	_ keeper.Node   = callbacks{}
	_ backups.Node  = callbacks{}
	_ forest.Node   = callbacks{}
	_ governor.Node = callbacks{}
	_ health.Node   = callbacks{}
	_ levels.Node   = callbacks{}
	_ peers.Node    = callbacks{}
	_ petition.Node = callbacks{}
	_ presence.Node = callbacks{}
	_ spread.Node   = callbacks{}
	_ seeding.Node  = callbacks{}
)

// Calls of an outbox to its node, which mostly go to the keeper.

func (c callbacks) CheckDeadlines()                   { c.engine.keeper.CheckDeadlines() }
func (c callbacks) Proved(sent, offset time.Duration) { c.engine.keeper.Proved(sent, offset) }
func (c callbacks) BeatInterval() time.Duration       { return c.engine.keeper.BeatInterval() }
func (c callbacks) AppliedAtHome() tree.Zxid          { return c.engine.home().Visible() }
func (c callbacks) Explain(id replication.ShardID, err error) error {
	return c.engine.health.ExplainOn(id, err)
}

// Calls of an outbox and a replica to Raft.

func (c callbacks) Propose(id replication.ShardID, cmd []byte) (outbox.Proposal, error) {
	host := c.engine.host.Load()
	if host == nil {
		return nil, ErrJoining
	}
	p, err := host.Propose(id, cmd)
	if err != nil {
		return nil, err // not p: an interface that holds a nil pointer is not nil
	}
	return p, nil
}

func (c callbacks) Leader(id replication.ShardID) replication.Leader { return c.engine.Leader(id) }

func (c callbacks) Committed(id replication.ShardID) uint64 {
	if host := c.engine.host.Load(); host != nil {
		return host.Committed(id)
	}
	return 0
}

// Transfer tries another member each time, because one of them may be down. A member that lags
// itself passes the leadership on in the same way.
func (c callbacks) Transfer(id replication.ShardID, nth int) {
	next := c.engine.roster.Other(id, nth)
	if next == 0 {
		return
	}
	err := c.engine.transfer(id, next, TransferLag)
	c.engine.log.Warn("applying lags behind the log: transferring the leadership", "shard", id, "to", next, "cause", err)
}

// Calls of a replica to its node, which mostly go to the keeper.

func (c callbacks) Fail(cause error)           { c.engine.fail(cause) }
func (c callbacks) Gone(changes []tree.Change) { c.engine.keeper.Gone(changes) }
func (c callbacks) Left(id tree.SessionID)     { c.engine.keeper.Left(id) }
func (c callbacks) Adopt(table *session.Table) { c.engine.keeper.Adopt(table) }

func (c callbacks) Ended(at replication.ShardID, why error, ids ...tree.SessionID) {
	c.engine.keeper.Ended(at, why, ids...)
}

func (c callbacks) Expired(id tree.SessionID) {
	if c.engine.cfg.SessionExpired != nil {
		c.engine.cfg.SessionExpired(id)
	}
}

func (c callbacks) Raised(at replication.ShardID, level uint32, behind []session.MemberID) {
	c.engine.health.Recent.Note(health.Occurrence{Kind: health.LevelRaised, Shard: at, Number: uint64(level)})
	c.engine.log.Info("feature level raised", "shard", at, "level", level, "behind", fmt.Sprint(behind))
}

// Dismissed fails the node, unless the member is only to go: until it is out of all shards, it has a
// vote, without which it may never get out. Then it goes on as a replica, serves nobody, and says so.
func (c callbacks) Dismissed(why error) {
	if rec, found := c.engine.roster.Table().Find(session.MemberID(c.engine.roster.Self())); found && rec.OutOf() < len(c.engine.shards) {
		text := fmt.Sprintf("%v: it serves nobody, and its vote counts until the others have taken it out; %s", why, afterwards(rec.Reason))
		if c.engine.toGo.CompareAndSwap(nil, &text) {
			c.engine.log.Warn("this member is to go", "cause", text)
		}
		return
	}
	c.engine.failAsRemoved(why.Error())
}

// afterwards says how the process of a member that is out can come back.
func afterwards(why session.Reason) string {
	if why == session.Removed {
		return "then stop it, or empty its directory and start it to join as a new member"
	}
	return "then stop it, or start it again to join as a new member"
}

// Seeded has the watcher look whether the node serves.
func (c callbacks) Seeded() { c.engine.health.Look() }

// MembersChanged must not block.
func (c callbacks) MembersChanged() {
	e := c.engine
	e.roster.NoteOwnPart()
	e.Presence.Wake()
	if e.governor != nil { // nil while the node is opened
		e.governor.Wake()
	}
}

func (c callbacks) Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool) {
	c.engine.keeper.Reconcile(at, old, next, table, registered)
}

// Calls of the keeper to its node.

func (c callbacks) Route(ops []tree.Op) (replication.ShardID, error) {
	r, err := c.engine.shards.Route(ops)
	return r.Shard, err
}

func (c callbacks) ShardsOf(id tree.SessionID) []uint32 { return c.engine.home().ShardsOf(id) }

func (c callbacks) Tell(level slog.Level, message string, args ...any) {
	c.engine.log.Log(context.Background(), level, message, args...)
}

// Calls of the loader of Config.Seed to its node.

func (c callbacks) Self() MemberID      { return c.engine.roster.Self() }
func (c callbacks) Members() []MemberID { return c.engine.roster.MemberIDs() }

// Calls of the governor to its node.

func (c callbacks) RaftLeader(id replication.ShardID) Leader { return c.engine.raftLeader(id) }
func (c callbacks) LeadsSince() (time.Time, bool)            { return c.engine.LeadsSince() }
func (c callbacks) Over() error                              { return c.engine.over() }
func (c callbacks) Go(fn func())                             { c.engine.loops.Go(fn) }

func (c callbacks) HandOver(id replication.ShardID, to MemberID) error {
	return c.engine.transfer(id, to, TransferAsked)
}

// Calls of a Peek to its node.

func (c callbacks) Joined() (session.MemberID, error) {
	e := c.engine
	if err := e.over(); err != nil {
		return 0, err
	}
	self := e.roster.Self()
	if self == 0 {
		return 0, fmt.Errorf("%w: %s", ErrJoining, e.Joining())
	}
	return session.MemberID(self), nil
}

func (c callbacks) NotLoaded(id replication.ShardID) error {
	return fmt.Errorf("%w: no state was loaded yet%s", ErrJoining, c.engine.health.OnShards([]ShardID{id}))
}

func (c callbacks) Hides() error {
	e := c.engine
	if over := e.over(); over != nil {
		return over
	}
	if e.seeding.Pending() {
		return fmt.Errorf("%w: the backup that the ensemble begins with is not loaded yet", ErrJoining)
	}
	return nil
}

// Calls of the maker of backups to its node.

func (c callbacks) CatchUp(ctx context.Context) error {
	if c.engine.host.Load() == nil {
		return ErrUnavailable
	}
	return c.engine.tryReady(ctx)
}

func (c callbacks) Lacking(err error) error { return c.engine.health.Explain(err) }

func (c callbacks) Silenced() error {
	if over := c.engine.over(); over != nil || c.engine.disk.Err() == nil {
		return over
	}
	return ErrFailed
}

// Calls of the watcher to its node.

func (c callbacks) Joining() string { return c.engine.Joining() }

func (c callbacks) ToGo() string {
	if why := c.engine.toGo.Load(); why != nil {
		return *why
	}
	return ""
}

func (c callbacks) Finished() (at time.Time, over, cause error) {
	e := c.engine
	if over = e.over(); over != nil {
		e.end.Lock()
		defer e.end.Unlock()
		at, cause = e.end.at, e.end.err
	}
	return at, over, cause
}

func (c callbacks) Loading() string { return c.engine.seeding.Lack() }

// Calls of the doorkeeper and the presence to their node.

func (c callbacks) Removed(how string) { c.engine.failAsRemoved(how) }

func (c callbacks) Superseded(how string) { c.engine.failAsSuperseded(how) }

// TakeOver is a call of the spreader.
func (c callbacks) TakeOver(id replication.ShardID) error {
	return c.engine.transfer(id, c.engine.roster.Self(), TransferShare)
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
