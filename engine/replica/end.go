package replica

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/tree"
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

// sessionEnded tells the node that a session has ended here.
func (m *Replica) sessionEnded(id tree.SessionID, why error) {
	m.node.Ended(m.Shard, why, id)
	if m.Shard == command.HomeShard && why == outbox.ErrSessionExpired {
		m.node.Expired(id)
	}
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

// endOf is the end of an ephemeral: lost it may linger.
func endOf(path string, lost bool) tree.Op {
	kind := tree.KindDelete
	if lost {
		kind = tree.KindLose
	}
	return tree.Op{Kind: kind, Path: path, Version: tree.AnyVersion}
}
