package replica

import "time"

// A lag finds out whether this node's replica keeps up with what is committed. Expiry and reaping
// need the leader's replica, but Raft's heartbeats do not. If the disk stalls under the image
// alone, the member stays leader. Then the sessions of dead members would live for as long as it
// stalls.
type lag struct {
	// Immutable.
	committed, applied func() uint64
	patience           time.Duration // a step of silence, a quarter of the smallest timeout
	transfer           func(nth int) // of the leadership to another member; it may fail

	// Owned by the expirer's loop.
	mark            uint64        // the committed index at since, when everything up to the former mark was applied
	since           time.Time     // when the mark was set, or behind last returned true
	lastBehind      time.Time     // when behind last returned true
	transfers       int           // how often the leadership was to be transferred
	currentPatience time.Duration // patience with this mark; it doubles each time, see behind
}

// newLag returns the lag of a replica.
func newLag(r *Replica, raft Raft, patience time.Duration) *lag {
	return &lag{
		committed: func() uint64 { return raft.Committed(r.Shard) },
		applied:   r.index.Load, // not the image's index, which only a save changes
		patience:  patience,
		transfer:  func(nth int) { raft.Transfer(r.Shard, nth) },
	}
}

// lagPatienceMax is the longest patience, unless a step of silence is longer. So a node that lags
// for long, and keeps getting the leadership back, gives it up about this often. A node that has
// not lagged for this long begins with the shortest patience again.
const lagPatienceMax = time.Minute

// behind reports whether an entry that was committed longer than the patience ago is not applied
// yet. Each time it does, the patience doubles, up to lagPatienceMax: if all replicas lag, the
// leadership must not go round and round.
func (l *lag) behind(now time.Time) bool {
	if l.applied() >= l.mark {
		if now.Sub(l.lastBehind) > lagPatienceMax {
			l.currentPatience = l.patience
		}
		l.mark, l.since = l.committed(), now
		return false
	}
	if now.Sub(l.since) <= l.currentPatience {
		return false
	}
	l.since, l.lastBehind, l.currentPatience = now, now, min(2*l.currentPatience, max(l.patience, lagPatienceMax))
	return true
}

// transferLeadership gives the leadership to another member. If that fails, behind returns true
// again after the patience.
func (l *lag) transferLeadership() {
	l.transfer(l.transfers)
	l.transfers++
}
