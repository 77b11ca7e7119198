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
	replica *Replica
	wake    chan struct{} // capacity 1

	// Owned by loop.
	purge  proposedEnds     // the newest Purge
	report proposedEnds     // the newest Purged
	window []session.Record // what has ended at home and waits
	more   bool             // there is more

	// mu guards what this node has seen to be done, which is forgotten as soon as it may be.
	mu struct {
		rank.Mutex[rank.ShardPurger]
		purged map[tree.SessionID]bool
	}
}

// proposedEnds is a command with sessions that this node has proposed. It is applied when its first session, and so every one of
// them, has nothing more to ask.
type proposedEnds struct {
	first tree.SessionID
	proposed
}

// due reports whether a command is to be proposed with the sessions that ask for one.
func (e *proposedEnds) isDue(ids []tree.SessionID, now time.Time) bool {
	return len(ids) > 0 && !(slices.Contains(ids, e.first) && e.pending(now))
}

// NewPurger returns the purger of all shards of a node, the home shard first.
func NewPurger(shards []*Replica, raft outbox.Raft, member replication.MemberID, log *slog.Logger) *Purger {
	p := &Purger{home: shards[0], raft: raft, member: member, log: log, shards: make(map[replication.ShardID]*shardPurger)}
	for _, m := range shards {
		m.purger = p
	}
	for _, m := range shards[1:] {
		p.shards[m.Shard] = &shardPurger{Purger: p, replica: m, wake: make(chan struct{}, 1)}
	}
	return p
}

// Loop ends when either channel is closed, and at once where there is no shard to be told.
func (p *Purger) Loop(stop, done <-chan struct{}) {
	var all sync.WaitGroup
	for _, e := range p.shards {
		all.Go(func() {
			lookLoop(stop, done, e.wake, func(now time.Time) time.Duration { return p.Look(e.replica.Shard, now) })
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
func (s *shardPurger) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Look proposes what is to be proposed now for a shard, and returns when to look again.
func (p *Purger) Look(at replication.ShardID, now time.Time) time.Duration {
	return p.shards[at].look(now)
}

// look is Look for one shard.
func (s *shardPurger) look(now time.Time) time.Duration {
	waiting := s.waiting()
	purged := s.takePurged(waiting)
	if len(waiting) == 0 {
		return time.Hour // an end, or a change of leader, wakes the loop
	}
	var gone, asked []tree.SessionID
	for _, r := range waiting {
		if purged[r.ID] {
			gone = append(gone, r.ID)
		}
	}
	if s.report.isDue(gone, now) {
		s.report = proposedEnds{first: gone[0], proposed: s.propose(command.HomeShard, command.EncodePurged(uint32(s.replica.Shard), gone[:min(len(gone), PurgeBatch)]), now)}
	}
	var untold []command.Ending
	for _, r := range s.replica.notEnding(waiting) {
		if !purged[r.ID] {
			untold = append(untold, command.Ending{Session: r.ID, Former: r.Former, Zxid: r.Ended, Lost: r.Lost})
			asked = append(asked, r.ID)
		}
	}
	if s.purge.isDue(asked, now) {
		s.purge = proposedEnds{first: asked[0], proposed: s.propose(s.replica.Shard, command.EncodePurge(now.UnixMilli(), untold[:min(len(untold), PurgeBatch)]), now)}
	}
	return PollInterval
}

// waiting returns sessions that have ended at home and wait for this shard, in id order, if it is for this node to carry that.
func (s *shardPurger) waiting() []session.Record {
	if s.raft.Leader(command.HomeShard).Member != s.member {
		s.window, s.more = nil, false
		return nil
	}
	s.window = s.home.stillUnpurged(s.window, s.replica.Shard)
	if !s.more || len(s.window) == 0 {
		all := s.home.unpurged(s.replica.Shard)
		s.more = len(all) > PurgeWindow
		s.window = slices.Clone(all[:min(len(all), PurgeWindow)])
	}
	return s.window
}

// takePurged returns what is known to be gone of the sessions that wait, and forgets the others if there are no more.
func (s *shardPurger) takePurged(waiting []session.Record) map[tree.SessionID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := make(map[tree.SessionID]bool)
	for _, r := range waiting {
		if s.mu.purged[r.ID] {
			left[r.ID] = true
		}
	}
	if !s.more {
		s.mu.purged = maps.Clone(left)
	}
	return left
}

// propose hands a command to Raft that needs no stream.
func (p *Purger) propose(id replication.ShardID, cmd []byte, now time.Time) proposed {
	proposal, err := p.raft.Propose(id, cmd)
	if err != nil {
		p.log.Debug("purge not proposed", "shard", id, "cause", err)
		return proposed{at: now} // and so not on its way
	}
	return proposed{at: now, proposal: proposal}
}

// purged is told that a shard has nothing of a session any more that has ended at home.
func (p *Purger) notePurged(at replication.ShardID, id tree.SessionID) {
	e := p.shards[at]
	e.mu.Lock()
	if e.mu.purged == nil {
		e.mu.purged = make(map[tree.SessionID]bool)
	}
	e.mu.purged[id] = true
	e.mu.Unlock()
	e.signal()
}

// ended returns the records of sessions that another shard has still to be told of.
func (r *Replica) unpurged(other replication.ShardID) []session.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.table.Ended(uint32(other))
}

// stillUnpurged returns those of the records that another shard has still to be told of.
func (r *Replica) stillUnpurged(records []session.Record, other replication.ShardID) []session.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(records, func(rec session.Record) bool { return !r.mu.table.HasEnded(rec.ID, uint32(other)) })
}

// untold returns the records of sessions that this shard is not about to close anyway.
func (r *Replica) notEnding(records []session.Record) (out []session.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range records {
		if !r.mu.table.IsEnding(rec.ID) {
			out = append(out, rec)
		}
	}
	return out
}

// purge ends sessions here that have ended at home, in portions.
func (r *Replica) applyPurge(c *command.Command) {
	for _, s := range c.Purge {
		if r.mu.table.Purge(s.Session, s.Former, s.Zxid, s.Lost) {
			r.purger.notePurged(r.Shard, s.Session)
		}
	}
	r.expireDue(c.Wall)
}

// purged notes that a shard has nothing of sessions any more.
func (r *Replica) applyPurged(c *command.Command) {
	for _, id := range c.Sessions {
		r.mu.table.Purged(id, c.Shard)
	}
}
