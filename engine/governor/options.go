package governor

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
)

// MemberID names a member of the ensemble.
type MemberID = replication.MemberID

// ShardID names a shard, from 1.
type ShardID = replication.ShardID

// A Node is what the governor needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(ShardID) replication.Leader
	// RaftLeader is Leader for what goes on in Raft while a member leaves and serves nobody any more.
	RaftLeader(ShardID) replication.Leader
	// LeadsSince returns since when this node leads the home shard, and false if it does not.
	LeadsSince() (time.Time, bool)
	// HandOver asks for another leader of a shard that this node leads.
	HandOver(ShardID, MemberID) error
	// Over returns why the node is over for its users, or nil.
	Over() error
	// Go runs a function that ends when Reach does.
	Go(func())
}

// A Candidate is what a node that wants to be a member says of itself.
type Candidate struct {
	Name     string
	Zone     string
	Address  string
	Observer bool
}

// Options are all that a Governor needs.
type Options struct {
	Node      Node
	Roster    *roster.Roster
	Shards    []*replica.Replica
	Transport *transport.Transport
	Host      func() *replication.Host

	Ensemble       string
	Tick, Election time.Duration // Election is the longest one
	RequestTimeout time.Duration
	Voters         int           // how many are to vote; see Config.Voters
	DeadAfter      time.Duration // zero: never
	Admit          func(context.Context, Candidate) error

	Reach context.Context // ends when the node reaches no one any more
	Done  <-chan struct{} // closed when the node is over for its users
}

// home returns the replica of the home shard, which has the table of members.
func (o *Options) home() *replica.Replica { return o.Shards[command.HomeShard-1] }

// propose proposes a command for the home shard. If it is lost, its caller proposes it again.
func (o *Options) propose(cmd []byte) { _, _ = o.Host().Propose(command.HomeShard, cmd) }

// settled waits until this node has led the home shard for so long that it knows who answers. It
// returns false if ctx ends first, or the leadership.
func (o *Options) settled(ctx context.Context) bool {
	for {
		since, leads := o.Node.LeadsSince()
		switch {
		case !leads:
			return false
		case time.Since(since) > 2*o.Election:
			return true
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-ctx.Done():
			return false
		case <-o.Done:
			return false
		}
	}
}

// Answers reports whether a member's replica of the home shard answered within two longest
// elections. Only the shard's leader knows.
func (o *Options) Answers(m MemberID) bool {
	return m == o.Roster.Self() || time.Since(o.Transport.Pulse(uint64(m), int(command.HomeShard)).Answered) < 2*o.Election
}
