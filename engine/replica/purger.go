package replica

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// # Sessions over shards
//
// A session is opened, kept alive and ended on the home shard. Before it writes on another shard for the first time, its
// record at home notes the shard (attach), and then the shard takes a record of its own (admit); without one a shard applies
// nothing of a session. So whoever ends a session knows all the shards that may hold something of it, whatever crashed when.
//
// The end is committed at home, with the session's znodes there. Its record stays there until every noted shard has been
// purged: the home shard's leader commits purge on the shard, which takes the session's znodes, and then purged at home. Both
// may be repeated, so a new leader just goes on from the records.
//
// What is still on its way for the session is refused: purge leaves a record on the shard that an admit finds, which may lie
// in the network for as long as the stream of a node that spoke for the session is not closed. It goes when that stream is closed
// on the shard, or a batch of the node has been accepted that was sent after the node had applied the session's end: nothing is
// sent for a session once it has ended on its node.

const (
	PurgeBatch = 1000 // sessions in one entry
	// PurgeWindow is how many sessions that have ended are looked after at a time: to find them costs a look at all, with the home
	// shard's machine held.
	PurgeWindow = 2 * PurgeBatch
)

// A Purger carries the ends of sessions from the home shard to the others, while its node leads the home shard. Each shard has
// errands of its own: one whose machine stands still keeps the others from nothing.
type Purger struct {
	// Immutable.
	home   *Replica
	raft   outbox.Raft
	member replication.MemberID
	log    *slog.Logger
	shards map[replication.ShardID]*shardPurger
}

// errands are what a shard is to be told, and what is to be told of it at home.
type shardPurger struct {
	// Immutable.
	*Purger
	machine *Replica
	wake    chan struct{} // capacity 1

	// Owned by loop.
	purge, report errand
	window        []session.Record // what has ended at home and waits
	cut           bool             // there is more

	// mu guards what this node has seen to be done, which is forgotten as soon as it may be.
	mu struct {
		rank.Mutex[rank.ShardPurger]
		gone map[tree.SessionID]bool
	}
}

// An errand is a command with sessions that this node has proposed. It is applied when its first session, and so every one of
// them, has nothing more to ask.
type errand struct {
	first tree.SessionID
	measure
}

// due reports whether a command is to be proposed with the sessions that ask for one.
func (e *errand) due(ids []tree.SessionID, now time.Time) bool {
	return len(ids) > 0 && !(slices.Contains(ids, e.first) && e.onWay(now))
}

// NewPurger returns the purger of all shards of a node, the home shard first.
func NewPurger(shards []*Replica, raft outbox.Raft, member replication.MemberID, log *slog.Logger) *Purger {
	p := &Purger{home: shards[0], raft: raft, member: member, log: log, shards: make(map[replication.ShardID]*shardPurger)}
	for _, m := range shards {
		m.purger = p
	}
	for _, m := range shards[1:] {
		p.shards[m.Shard] = &shardPurger{Purger: p, machine: m, wake: make(chan struct{}, 1)}
	}
	return p
}

// Loop ends when either channel is closed, and at once where there is no shard to be told.
func (p *Purger) Loop(stop, done <-chan struct{}) {
	var all sync.WaitGroup
	for _, e := range p.shards {
		all.Go(func() {
			lookLoop(stop, done, e.wake, func(now time.Time) time.Duration { return p.Look(e.machine.Shard, now) })
		})
	}
	all.Wait()
}

// Signal has all loops look again.
func (p *Purger) Signal() {
	for _, e := range p.shards {
		e.signal()
	}
}

// signal has the loop look again.
func (e *shardPurger) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Look proposes what is to be proposed now for a shard, and returns when to look again.
func (p *Purger) Look(at replication.ShardID, now time.Time) time.Duration {
	return p.shards[at].look(now)
}

// look is Look for one shard.
func (e *shardPurger) look(now time.Time) time.Duration {
	waiting := e.waiting()
	purged := e.takeGone(waiting)
	if len(waiting) == 0 {
		return time.Hour // an end, or a change of leader, wakes the loop
	}
	var gone, asked []tree.SessionID
	for _, r := range waiting {
		if purged[r.ID] {
			gone = append(gone, r.ID)
		}
	}
	if e.report.due(gone, now) {
		e.report = errand{first: gone[0], measure: e.propose(command.HomeShard, command.EncodePurged(uint32(e.machine.Shard), gone[:min(len(gone), PurgeBatch)]), now)}
	}
	var untold []command.Ending
	for _, r := range e.machine.untold(waiting) {
		if !purged[r.ID] {
			untold = append(untold, command.Ending{Session: r.ID, Former: r.Former, Zxid: r.Ended, Lost: r.Lost})
			asked = append(asked, r.ID)
		}
	}
	if e.purge.due(asked, now) {
		e.purge = errand{first: asked[0], measure: e.propose(e.machine.Shard, command.EncodePurge(now.UnixMilli(), untold[:min(len(untold), PurgeBatch)]), now)}
	}
	return PollInterval
}

// waiting returns sessions that have ended at home and wait for this shard, in id order, if it is for this node to carry that.
func (e *shardPurger) waiting() []session.Record {
	if e.raft.Leader(command.HomeShard).Member != e.member {
		e.window, e.cut = nil, false
		return nil
	}
	e.window = e.home.stillEnded(e.window, e.machine.Shard)
	if !e.cut || len(e.window) == 0 {
		all := e.home.ended(e.machine.Shard)
		e.cut = len(all) > PurgeWindow
		e.window = slices.Clone(all[:min(len(all), PurgeWindow)])
	}
	return e.window
}

// takeGone returns what is known to be gone of the sessions that wait, and forgets the others if there are no more.
func (e *shardPurger) takeGone(waiting []session.Record) map[tree.SessionID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := make(map[tree.SessionID]bool)
	for _, r := range waiting {
		if e.mu.gone[r.ID] {
			left[r.ID] = true
		}
	}
	if !e.cut {
		e.mu.gone = maps.Clone(left)
	}
	return left
}

// propose hands a command to Raft that needs no stream.
func (p *Purger) propose(id replication.ShardID, cmd []byte, now time.Time) measure {
	proposal, err := p.raft.Propose(id, cmd)
	if err != nil {
		p.log.Debug("purge not proposed", "shard", id, "cause", err)
		return measure{at: now} // and so not on its way
	}
	return measure{at: now, proposal: proposal}
}

// purged is told that a shard has nothing of a session any more that has ended at home.
func (p *Purger) purged(at replication.ShardID, id tree.SessionID) {
	e := p.shards[at]
	e.mu.Lock()
	if e.mu.gone == nil {
		e.mu.gone = make(map[tree.SessionID]bool)
	}
	e.mu.gone[id] = true
	e.mu.Unlock()
	e.signal()
}

// ended returns the records of sessions that another shard has still to be told of.
func (m *Replica) ended(other replication.ShardID) []session.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.table.Ended(uint32(other))
}

// stillEnded returns those of the records that another shard has still to be told of.
func (m *Replica) stillEnded(records []session.Record, other replication.ShardID) []session.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(records, func(r session.Record) bool { return !m.mu.table.HasEnded(r.ID, uint32(other)) })
}

// untold returns the records of sessions that this shard is not about to close anyway.
func (m *Replica) untold(records []session.Record) (out []session.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if !m.mu.table.IsEnding(r.ID) {
			out = append(out, r)
		}
	}
	return out
}

// purge ends sessions here that have ended at home, in portions.
func (m *Replica) purge(c *command.Command) {
	for _, s := range c.Purge {
		if m.mu.table.Purge(s.Session, s.Former, s.Zxid, s.Lost) {
			m.purger.purged(m.Shard, s.Session)
		}
	}
	m.expireDue(c.Wall)
}

// purged notes that a shard has nothing of sessions any more.
func (m *Replica) purged(c *command.Command) {
	for _, id := range c.Sessions {
		m.mu.table.Purged(id, c.Shard)
	}
}
