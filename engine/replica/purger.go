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

// How the end of a session reaches all shards. Package session has the proof.
//
// A session is opened, kept alive and ended on the home shard. Before it first writes on another
// shard, AddShard notes that shard in the session's record at home. Then Introduce makes a record
// on the shard. Without a record, a shard applies nothing of a session. So the record at home names
// every shard that may hold something of the session, whatever crashed when.
//
// The end is committed at home, and the session's znodes on the home shard go with it. Its record
// there stays until every noted shard is purged. For each of them, the home shard's leader commits
// a Purge on the shard, which removes the session's znodes there. Then it commits a Purged at home,
// which removes the shard from the record. Both commands may be repeated, so a new leader simply
// continues from the records.
//
// Requests of the session that are still under way are refused. An Introduce may still be in the
// network as long as a stream is open whose node spoke for the session. So Purge leaves a record on
// the shard that refuses the Introduce. This record goes when the stream is closed on the shard. It
// also goes when the shard accepts a batch that the node sent after it had applied the session's
// end. A node sends nothing for a session that has ended on it.

const (
	PurgeBatch = 1000 // sessions in one Purge or Purged
	// PurgeWindow is how many ended sessions a shardPurger works on at a time. To find them it
	// looks at all ended sessions, with the mu of the home shard's Replica held.
	PurgeWindow = 2 * PurgeBatch
)

// A Purger carries the ends of sessions from the home shard to the others, while its node leads the
// home shard. Each of the others has its own shardPurger. So a shard whose apply stands still does
// not delay the rest.
type Purger struct {
	// Immutable.
	home   *Replica
	raft   outbox.Raft
	log    *slog.Logger
	shards map[replication.ShardID]*shardPurger
}

// A shardPurger purges one shard of sessions that have ended at home, and reports this at home.
type shardPurger struct {
	// Immutable.
	*Purger
	replica *Replica
	wake    chan struct{} // capacity 1

	// Owned by the loop.
	purge  proposedEnds     // the newest Purge
	report proposedEnds     // the newest Purged
	window []session.Record // ended sessions that the record at home says to purge
	more   bool             // there are ended sessions besides the window

	// mu guards purged: the sessions that this node's replica has seen purged from the shard. They
	// are forgotten when the home shard has recorded that.
	mu struct {
		rank.Mutex[rank.ShardPurger]
		purged map[tree.SessionID]bool
	}
}

// A proposedEnds is a Purge or Purged that this node has proposed. The sessions that wait for such
// a command are listed anew for each look. When the first session of the command is no longer
// listed, the command was applied, and none of its sessions waits.
type proposedEnds struct {
	first tree.SessionID
	proposed
}

// isDue reports whether a command should be proposed for the listed sessions. There must be some,
// and the command before must be applied or lost.
func (e *proposedEnds) isDue(ids []tree.SessionID, now time.Time) bool {
	return len(ids) > 0 && !(slices.Contains(ids, e.first) && e.pending(now))
}

// NewPurger returns the Purger of a node, and gives it to the node's replicas. The home shard is
// the first of them.
func NewPurger(shards []*Replica, raft outbox.Raft, log *slog.Logger) *Purger {
	p := &Purger{home: shards[0], raft: raft, log: log, shards: make(map[replication.ShardID]*shardPurger)}
	for _, r := range shards {
		r.purger = p
	}
	for _, r := range shards[1:] {
		p.shards[r.Shard] = &shardPurger{Purger: p, replica: r, wake: make(chan struct{}, 1)}
	}
	return p
}

// Loop purges the other shards until either channel is closed. It returns at once if there is only
// the home shard.
func (p *Purger) Loop(stop, done <-chan struct{}) {
	var all sync.WaitGroup
	for _, s := range p.shards {
		all.Go(func() {
			lookLoop(stop, done, s.wake, func(now time.Time) time.Duration { return p.Look(s.replica.Shard, now) })
		})
	}
	all.Wait()
}

// Signal makes the loops of all shards look again.
func (p *Purger) Signal() {
	for _, s := range p.shards {
		s.signal()
	}
}

// signal makes the loop look again.
func (s *shardPurger) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Look proposes what is due now for a shard, and returns how long the loop may wait for the next
// look.
func (p *Purger) Look(at replication.ShardID, now time.Time) time.Duration {
	return p.shards[at].look(now)
}

// look is Purger.Look for this shard.
func (s *shardPurger) look(now time.Time) time.Duration {
	waiting := s.waiting()
	purged := s.knownPurged(waiting)
	if len(waiting) == 0 {
		return time.Hour // the end of a session or a leader change wakes the loop
	}
	var toReport []tree.SessionID
	for _, rec := range waiting {
		if purged[rec.ID] {
			toReport = append(toReport, rec.ID)
		}
	}
	if s.report.isDue(toReport, now) {
		cmd := command.EncodePurged(uint32(s.replica.Shard), toReport[:min(len(toReport), PurgeBatch)])
		s.report = proposedEnds{first: toReport[0], proposed: s.propose(command.HomeShard, cmd, now)}
	}
	var toPurge []tree.SessionID
	var endings []command.Ending
	for _, rec := range s.replica.notEnding(waiting) {
		if !purged[rec.ID] {
			toPurge = append(toPurge, rec.ID)
			endings = append(endings, command.Ending{Session: rec.ID, Former: rec.Former, Zxid: rec.Ended, Lost: rec.Lost})
		}
	}
	if s.purge.isDue(toPurge, now) {
		cmd := command.EncodePurge(now.UnixMilli(), endings[:min(len(endings), PurgeBatch)])
		s.purge = proposedEnds{first: toPurge[0], proposed: s.propose(s.replica.Shard, cmd, now)}
	}
	return PollInterval
}

// waiting returns sessions that have ended at home and are not recorded there as purged from this
// shard, in id order. It returns none if this node does not lead the home shard.
func (s *shardPurger) waiting() []session.Record {
	if !s.home.leads(command.HomeShard, s.raft) {
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

// knownPurged returns which of the waiting sessions this node knows to be purged. If no others are
// waiting, it forgets the sessions that are not among them.
func (s *shardPurger) knownPurged(waiting []session.Record) map[tree.SessionID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[tree.SessionID]bool)
	for _, rec := range waiting {
		if s.mu.purged[rec.ID] {
			known[rec.ID] = true
		}
	}
	if !s.more {
		s.mu.purged = maps.Clone(known)
	}
	return known
}

// propose proposes a command that belongs to no stream.
func (p *Purger) propose(id replication.ShardID, cmd []byte, now time.Time) proposed {
	proposal, err := p.raft.Propose(id, cmd)
	if err != nil {
		p.log.Debug("purge not proposed", "shard", id, "cause", err)
		return proposed{at: now} // which is not pending
	}
	return proposed{at: now, proposal: proposal}
}

// notePurged records that a shard has nothing left of a session that has ended at home.
func (p *Purger) notePurged(at replication.ShardID, id tree.SessionID) {
	s := p.shards[at]
	s.mu.Lock()
	if s.mu.purged == nil {
		s.mu.purged = make(map[tree.SessionID]bool)
	}
	s.mu.purged[id] = true
	s.mu.Unlock()
	s.signal()
}

// unpurged returns the records of ended sessions that another shard has not been purged of.
func (r *Replica) unpurged(other replication.ShardID) []session.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.table.Ended(uint32(other))
}

// stillUnpurged returns those of the records that unpurged would still return.
func (r *Replica) stillUnpurged(records []session.Record, other replication.ShardID) []session.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(records, func(rec session.Record) bool { return !r.mu.table.HasEnded(rec.ID, uint32(other)) })
}

// notEnding returns the records of sessions that are not about to be closed on this shard.
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

// applyPurge ends sessions here that have ended at home. The largest end in portions.
func (r *Replica) applyPurge(c *command.Command) {
	for _, s := range c.Purge {
		if r.mu.table.Purge(s.Session, s.Former, s.Zxid, s.Lost) {
			r.purger.notePurged(r.Shard, s.Session)
		}
	}
	r.expireDue(c.Wall)
}

// applyPurged records at home that a shard has nothing left of sessions.
func (r *Replica) applyPurged(c *command.Command) {
	for _, id := range c.Sessions {
		r.mu.table.Purged(id, c.Shard)
	}
}
