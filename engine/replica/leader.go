package replica

import (
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
)

const (
	// RetryAfter is how long the leader waits for a Silence or Expire of its own to be applied before it proposes it
	// again. Both are safe to repeat.
	RetryAfter = time.Second
	// PollInterval is how often it looks whether one was applied, for a short step may follow, or dropped, and tries again
	// if Raft took none.
	PollInterval = outbox.PollInterval
)

// A Raft is what those who act for a leader ask of the Raft groups.
type Raft interface {
	outbox.Raft
	// Committed is the index up to which a shard's log is known to be committed.
	Committed(replication.ShardID) uint64
	// Transfer gives the leadership of a shard to another member, each time to the next one. It logs what became of that.
	Transfer(id replication.ShardID, nth int)
}

// A proposed is when, and with what result, this node has proposed a command.
type proposed struct {
	at       time.Time
	proposal outbox.Proposal // nil if Raft did not take it
}

// pending reports whether it may still be applied, as far as anybody can tell.
func (p proposed) pending(now time.Time) bool {
	return p.proposal != nil && !p.proposal.Dropped() && now.Sub(p.at) < RetryAfter
}

// lookLoop looks when it is woken and when look has said that it is to. It ends when stop or done is closed.
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
