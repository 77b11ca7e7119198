package replica

import "time"

// A lag tells whether this node's machine keeps up with what is committed. Expiry and reaping wait for the leader's machine,
// while Raft's heartbeats do not: a disk that stalls under the image alone would leave a leader in office that lets the
// sessions of dead members live for as long as it stalls.
type lag struct {
	// Immutable.
	committed, applied func() uint64
	patience           time.Duration // a step of silence
	transfer           func(nth int) // gives the leadership to another member, the nth time, or fails to: behind is true again then

	// Owned by the expirer's loop.
	mark            uint64        // was committed at since, and applied had come up to the mark before it by then
	since           time.Time     // of the mark, or of the last time that behind was true
	lastBehind      time.Time     // that behind was true
	transfers       int           // how often the leadership was to be given away
	currentPatience time.Duration // patience with this mark: where all machines lag, the leadership must not go round and round
}

// newLag watches a machine.
func newLag(r *Replica, raft Raft, patience time.Duration) *lag {
	return &lag{
		committed: func() uint64 { return raft.Committed(r.Shard) },
		applied:   r.index.Load, // not the image's, which is written now and then
		patience:  patience,
		transfer:  func(nth int) { raft.Transfer(r.Shard, nth) },
	}
}

// lagPatienceMax is how seldom a node that keeps lagging gives up a leadership that keeps coming back, and how long it must not
// have lagged before it has all its impatience again.
const lagPatienceMax = time.Minute

// behind reports whether something that was committed longer than the patience ago is not applied yet.
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

// yield gives the leadership away.
func (l *lag) transferLeadership() {
	l.transfer(l.transfers)
	l.transfers++
}
