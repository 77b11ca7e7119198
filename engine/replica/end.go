package replica

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// EndPortion limits how many sessions and znodes, counted together, one log entry removes by ending
// sessions: at most twice this number. A million ephemerals in one entry would stop apply on every
// member for seconds, and with it the proof that the other nodes are alive. Measured without
// watches, 10,000 in one entry take 11 ms, 100,000 take 0.1 s, and a million take 1.4 s. In
// portions, a million take 3 s of processor time: 0.1 s in the first entry and 30 ms in each of the
// others.
//
// So a session that owns more than this ends in several transactions, unlike in ZooKeeper. It has
// ended from the first one on: nothing more of it is applied, and its node knows. A caller that
// waits for one of its znodes to go waits for that znode's portion. The alternative would be a
// limit on what a session may own. It would refuse what ZooKeeper allows, and the end of a session
// at the limit would still take as long.
const EndPortion = 10_000

// endOnRequest ends a session because its node asked for that. If it owns too much for this entry,
// the home shard makes it due, and the leader proposes its portions. Another shard does nothing: it
// waits for the Purge. Only a Purge can refuse what arrives later for the session, however late.
func (r *Replica) endOnRequest(id tree.SessionID, wall int64, lost bool, why error) {
	r.tellEnded(id, why)
	if r.mu.table.Owns(id) <= r.Portion && r.mu.removed < r.Portion {
		r.mu.removed += r.endSession(id, wall, lost)
		return
	}
	if r.Shard == command.HomeShard {
		r.mu.table.DecideEnd(id, r.mu.Zxid, lost)
		r.expirer.signal()
	}
}

// expireDue ends due sessions in the order of their ids, until a portion of sessions and znodes is
// gone. If any are left, the leader proposes further portions. Until then, the table refuses every
// request of a due session.
func (r *Replica) expireDue(wall int64) {
	due := r.mu.table.Due()
	// The node hears of all due sessions now, not only of this portion. Those that wait for a later
	// portion have ended too and must be granted nothing.
	r.node.Ended(r.Shard, session.ErrExpired, due...)
	r.mu.portions++
	for gone := 0; len(due) > 0 && gone < r.Portion; {
		gone += r.endDue(due[0], wall, r.mu.table.Lost(due[0]))
		if r.mu.table.Owns(due[0]) == 0 {
			due = due[1:]
		}
	}
	if len(due) > 0 {
		r.expirer.signal()
	}
}

// endDue ends a due session, or a portion of it, and returns how much it removed.
func (r *Replica) endDue(id tree.SessionID, wall int64, lost bool) int {
	why := session.ErrClosed
	if lost {
		why = session.ErrExpired
	}
	if r.Shard == command.HomeShard && r.mu.table.IsEnding(id) || r.mu.table.Owns(id) > r.Portion {
		r.node.Ended(r.Shard, why, id) // not Expired: endOnRequest has called it, or the last portion will
	} else {
		r.tellEnded(id, why)
	}
	return r.endSession(id, wall, lost)
}

// tellEnded tells the node that a session has ended on this shard and, at home, that it has
// expired.
func (r *Replica) tellEnded(id tree.SessionID, why error) {
	r.node.Ended(r.Shard, why, id)
	if r.Shard == command.HomeShard && why == session.ErrExpired {
		r.node.Expired(id)
	}
}

// endSession ends a session in a transaction of its own. Its ephemerals are deleted, or linger if
// the session was lost. Then its record goes. If the session owns more than a portion, one portion
// goes and the record stays. endSession returns how many sessions and znodes are gone.
func (r *Replica) endSession(id tree.SessionID, wall int64, lost bool) int {
	paths := r.mu.table.Leaving(id, r.Portion)
	ops := make([]tree.Op, len(paths))
	for i, p := range paths {
		ops[i] = endOp(p, lost)
	}
	if _, err := r.commit(tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: id, System: true}, ops, nil); err != nil {
		r.node.Fail(fmt.Errorf("shard %d: ending session %d: %w", r.Shard, id, err)) // table and tree disagree
	}
	over := r.mu.table.Owns(id) == 0
	if r.audit != nil {
		r.auditEnd(id, wall, lost, over && r.Shard == command.HomeShard)
	}
	if !over {
		return len(paths)
	}
	told := r.Shard != command.HomeShard && r.mu.table.IsEnding(id)
	r.mu.table.Close(id, r.mu.Zxid, lost)
	if told {
		r.purger.notePurged(r.Shard, id)
	} else {
		r.purger.Signal() // other shards may have to be purged
	}
	return len(paths) + 1
}

// endOp returns the operation that ends an ephemeral. A lost one may linger.
func endOp(path string, lost bool) tree.Op {
	kind := tree.KindDelete
	if lost {
		kind = tree.KindLose
	}
	return tree.Op{Kind: kind, Path: path, Version: tree.AnyVersion}
}
