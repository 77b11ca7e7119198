package replica

import (
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
)

const (
	// RetryAfter is how long a leader waits until its proposal is applied. Then it proposes the
	// command again. All these commands are safe to repeat.
	RetryAfter = time.Second
	// PollInterval is how often a leader looks whether its proposal was applied or dropped, while
	// it waits for one. A short step of silence may follow at once. If Raft refused the proposal,
	// the leader tries again as often.
	PollInterval = outbox.PollInterval
)

// Raft is what a leader's loops ask of the Raft groups.
type Raft interface {
	outbox.Raft
	// Committed returns the index up to which a shard's log is known to be committed.
	Committed(replication.ShardID) uint64
	// Transfer transfers the leadership of a shard to another member. Successive values of nth
	// choose different members. It logs the result.
	Transfer(id replication.ShardID, nth int)
}

// A proposed is a command that this node has proposed as a leader.
type proposed struct {
	at       time.Time
	proposal outbox.Proposal // nil if Raft refused it
}

// pending reports whether the command may still be applied, as far as this node can tell.
func (p proposed) pending(now time.Time) bool {
	return p.proposal != nil && !p.proposal.Dropped() && now.Sub(p.at) < RetryAfter
}

// lookLoop calls look when wake has something, and when the time has passed that look returned. It
// returns when stop or done is closed.
func lookLoop(stop, done, wake <-chan struct{}, look func(now time.Time) (again time.Duration)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-done:
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Reset(max(look(time.Now()), time.Millisecond))
	}
}
