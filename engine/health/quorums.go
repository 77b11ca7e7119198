package health

import (
	"time"

	"github.com/vivarium-go/vivarium/replication"
)

// Quorums track which shards have had no leader within reach for longer than an election takes. A
// shard has a quorum while it has a leader, because a leader without a quorum steps down.
type Quorums struct {
	patience time.Duration
	shards   []quorum // indexed by replication.ShardID - 1
}

type quorum struct {
	since time.Time // without a leader since then; zero: it has one
	lost  bool      // the loss was logged
}

// NewQuorums returns the Quorums of shards that have had a leader until now.
func NewQuorums(shards int, patience time.Duration) *Quorums {
	return &Quorums{patience: patience, shards: make([]quorum, shards)}
}

// Look returns in lost the shards that count as lost from now on. In back it returns the lost
// shards that have a leader again; Returned is to be called for these. The next shard will be lost
// after next; zero means that none will.
func (q *Quorums) Look(now time.Time, led func(replication.ShardID) bool) (lost, back []replication.ShardID, next time.Duration) {
	for i := range q.shards {
		s, id := &q.shards[i], replication.ShardID(i+1)
		switch {
		case led(id):
			if s.lost {
				back = append(back, id)
			} else {
				*s = quorum{}
			}
		case s.since.IsZero():
			s.since = now
			next = soonest(next, q.patience)
		case !s.lost && now.Sub(s.since) >= q.patience:
			s.lost = true
			lost = append(lost, id)
		case !s.lost:
			next = soonest(next, q.patience-now.Sub(s.since))
		}
	}
	return lost, back, next
}

// IsLost reports whether a shard counts as lost.
func (q *Quorums) IsLost(id replication.ShardID) bool { return q.shards[id-1].lost }

// Returned takes a lost shard for one that has a leader. It returns how long it had none.
func (q *Quorums) Returned(id replication.ShardID, now time.Time) time.Duration {
	s := &q.shards[id-1]
	took := now.Sub(s.since)
	*s = quorum{}
	return took
}

// soonest returns the smaller of two times. Zero means never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
