package embed

import "time"

// Health says whether a node serves, as it knows without asking anybody.
type Health struct {
	// Ready says that the ensemble has registered the member, and that its disk has room. Every
	// shard has a leader with which this member is connected, or has had none for less than an
	// election takes. So it stays true during an ordinary election, a transfer of leadership, and a
	// rolling restart.
	Ready bool
	// Since is when Ready became what it is. If the node never was ready, it is the time of Start.
	Since time.Time
	// Waiting says what the node lacks: shards without a leader, members that are not connected and
	// why, room on the disk. It is for people and contains addresses. Empty if Ready.
	Waiting string
	// Slow says that the disk has been slow within the last minute, and how slow. Such a node is
	// ready: a restart would not mend the disk. It is for people. Empty if the disk is fast. See
	// Config.Slow.
	Slow string
	// Err says why the node is over: ErrFailed with the cause, or ErrClosed. Only then must the
	// process, or the node, be started again. It is what a liveness probe asks for: everything else
	// that a node lacks, a restart does not bring.
	Err error
}

// Health returns how the node is. It asks nobody and waits for nothing, so probes may call it at any
// rate. It also works after Close. Other than Ready, it does not find out that everybody else has
// gone on and this member has not heard of it yet.
func (n *Node) Health() Health { return Health(n.in().Engine.Health()) }
