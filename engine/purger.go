package engine

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

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
// in the network for as long as its node's stream is not closed. It goes when a batch of that node has been accepted that was
// sent after the node had applied the session's end: nothing is sent for a session once it has ended on its node.

// purgeBatch is how many sessions travel in one entry.
const purgeBatch = 1000

// A purger carries the ends of sessions from the home shard to the others, while its node leads the home shard.
type purger struct {
	// Immutable.
	home   *machine
	others []*machine
	raft   replicator
	member MemberID
	log    *slog.Logger
	wake   chan struct{} // capacity 1

	// Owned by loop.
	errands map[*machine]*errands

	// mu guards what this node has seen to be done, by shard. A shard forgets it as soon as it may.
	mu struct {
		sync.Mutex
		gone map[*machine]map[tree.SessionID]bool
	}
}

// errands are what a shard is to be told, and what is to be told of it at home.
type errands struct{ purge, report errand }

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

func newPurger(e *Engine, raft replicator) *purger {
	p := &purger{home: e.home(), others: e.shards[1:], raft: raft, member: e.cfg.Member, log: e.log, wake: make(chan struct{}, 1),
		errands: make(map[*machine]*errands)}
	p.mu.gone = make(map[*machine]map[tree.SessionID]bool)
	for _, m := range p.others {
		p.errands[m] = &errands{}
		p.mu.gone[m] = make(map[tree.SessionID]bool)
	}
	return p
}

// purged is told that a shard has nothing of a session any more that has ended at home.
func (p *purger) purged(m *machine, id tree.SessionID) {
	p.mu.Lock()
	p.mu.gone[m][id] = true
	p.mu.Unlock()
	p.signal()
}

// takeGone returns what is known to be gone from a shard of the sessions that wait, and forgets the others.
func (p *purger) takeGone(m *machine, waiting []session.Record) map[tree.SessionID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := make(map[tree.SessionID]bool)
	for _, r := range waiting {
		if p.mu.gone[m][r.ID] {
			left[r.ID] = true
		}
	}
	p.mu.gone[m] = left
	return maps.Clone(left)
}

// signal has the loop look again.
func (p *purger) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop ends when either channel is closed, and at once where there is no shard to be told.
func (p *purger) loop(stop, done <-chan struct{}) {
	if len(p.others) > 0 {
		lookLoop(stop, done, p.wake, p.look)
	}
}

// look proposes what is to be proposed now and returns when to look again.
func (p *purger) look(now time.Time) time.Duration {
	var waiting []session.Record
	if p.raft.Leader(homeShard).Member == p.member {
		waiting = p.home.ended()
	}
	for _, m := range p.others {
		p.lookAt(m, waiting, now)
	}
	if len(waiting) == 0 {
		return time.Hour // an end, or a change of leader, wakes the loop
	}
	return silencePoll
}

// lookAt does the errands of one shard.
func (p *purger) lookAt(m *machine, waiting []session.Record, now time.Time) {
	purged := p.takeGone(m, waiting)
	var untold []ending
	var untoldIDs, gone []tree.SessionID
	for _, r := range m.untold(waiting) {
		if !purged[r.ID] {
			untold = append(untold, ending{session: r.ID, member: r.Origin, zxid: r.Ended})
			untoldIDs = append(untoldIDs, r.ID)
		}
	}
	for _, r := range waiting {
		if purged[r.ID] && r.Uses(uint32(m.shard)) {
			gone = append(gone, r.ID)
		}
	}
	e := p.errands[m]
	if e.purge.due(untoldIDs, now) {
		e.purge = errand{first: untoldIDs[0], measure: p.propose(m.shard, encodePurge(untold[:min(len(untold), purgeBatch)]), now)}
	}
	if e.report.due(gone, now) {
		e.report = errand{first: gone[0], measure: p.propose(homeShard, encodePurged(uint32(m.shard), gone[:min(len(gone), purgeBatch)]), now)}
	}
}

// propose hands a command to Raft that needs no stream.
func (p *purger) propose(id ShardID, cmd []byte, now time.Time) measure {
	proposal, err := p.raft.Propose(id, cmd)
	if err != nil {
		p.log.Debug("purge not proposed", "shard", id, "error", err)
		return measure{at: now} // and so not on its way
	}
	return measure{at: now, proposal: proposal}
}

// ended returns the records of sessions that other shards have still to be told of.
func (m *machine) ended() []session.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.table.Ended()
}

// untold returns those of the records that name this shard, unless it is about to close the session anyway.
func (m *machine) untold(records []session.Record) (out []session.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if r.Uses(uint32(m.shard)) && !m.mu.table.IsEnding(r.ID) {
			out = append(out, r)
		}
	}
	return out
}

// purge ends sessions here that have ended at home, in portions.
func (m *machine) purge(c *command) {
	for _, s := range c.purge {
		if m.mu.table.Purge(s.session, s.member, s.zxid) {
			m.engine.purger.purged(m, s.session)
		}
	}
	m.expireDue()
}

// purged notes that a shard has nothing of sessions any more.
func (m *machine) purged(c *command) {
	for _, id := range c.sessions {
		m.mu.table.Purged(id, c.shard)
	}
}
