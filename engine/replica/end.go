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

// endOnRequest ends a session as its node has asked. If that is too much for the entry, the session is due from
// now on. On another shard than home that waits until home says so: only then is it known to end there
// however late anything comes that was asked for it.
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

// expireDue expires sessions that are due, in order of id, until a portion of them and their znodes is gone. The leader commits
// further portions; until its turn a due session is refused everything.
func (r *Replica) expireDue(wall int64) {
	due := r.mu.table.Due()
	// This node's own are told all at once: what waits for its turn has ended, and must be granted nothing.
	r.node.Ended(r.Shard, outbox.ErrSessionExpired, due...)
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

// endDue ends a session that is due, or a portion of it.
func (r *Replica) endDue(id tree.SessionID, wall int64, lost bool) int {
	why := outbox.ErrSessionClosed
	if lost {
		why = outbox.ErrSessionExpired
	}
	if r.Shard == command.HomeShard && r.mu.table.IsEnding(id) || r.mu.table.Owns(id) > r.Portion {
		r.node.Ended(r.Shard, why, id) // who watches the log is told once: by endOnRequest, or with the last portion
	} else {
		r.tellEnded(id, why)
	}
	return r.endSession(id, wall, lost)
}

// tellEnded tells the node that a session has ended here.
func (r *Replica) tellEnded(id tree.SessionID, why error) {
	r.node.Ended(r.Shard, why, id)
	if r.Shard == command.HomeShard && why == outbox.ErrSessionExpired {
		r.node.Expired(id)
	}
}

// endSession ends a session in a transaction of its own: its ephemerals go, or linger if it was lost, then its record. Of one with
// more ephemerals than a portion, a portion goes and the record stays. It returns how much went.
func (r *Replica) endSession(id tree.SessionID, wall int64, lost bool) int {
	paths := r.mu.table.Leaving(id, r.Portion)
	ops := make([]tree.Op, len(paths))
	for i, p := range paths {
		ops[i] = endOp(p, lost)
	}
	if _, err := r.commit(tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: id, System: true}, ops, nil); err != nil {
		r.node.Fail(fmt.Errorf("shard %d: closing session %d: %w", r.Shard, id, err)) // the table names a znode that the tree does not have
	}
	if r.mu.table.Owns(id) > 0 {
		return len(paths)
	}
	told := r.Shard != command.HomeShard && r.mu.table.IsEnding(id)
	r.mu.table.Close(id, r.mu.Zxid, lost)
	if told {
		r.purger.notePurged(r.Shard, id)
	} else {
		r.purger.Signal() // there may be shards to be told
	}
	return len(paths) + 1
}

// endOf is the end of an ephemeral: lost it may linger.
func endOp(path string, lost bool) tree.Op {
	kind := tree.KindDelete
	if lost {
		kind = tree.KindLose
	}
	return tree.Op{Kind: kind, Path: path, Version: tree.AnyVersion}
}
