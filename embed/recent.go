package embed

import (
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/engine/health"
)

// An Occurrence is something that happened to a node. Fields that its kind does not have are zero.
type Occurrence struct {
	At time.Time
	// Kind is what happened:
	//
	//	ready                  the ensemble has registered the member
	//	leader changed         Shard; Member leads, 0: nobody that this node knows; Number: the term
	//	quorum lost            Shard
	//	quorum back            Shard; Took: how long there was none
	//	sessions suspended     Number: how many of this node
	//	sessions resumed       Number: how many of this node
	//	state installed        Shard; Took. Another member has sent it
	//	slow fsync             Took
	//	slow apply             Shard; Took
	//	slow commit            Shard; Took
	//	slow peer              Member; Took: until it has answered
	//	clock jumped           Took: how far; negative: back
	//	peer connected         Member; this one has a connection to it
	//	peer lost              Member; that connection has ended
	//	peer refused           Member; one of the two refuses the other
	//	member joined          Member
	//	member gone            Member; it is to go, or has gone
	//	level raised           Shard; Number: the level
	//	certificates reloaded
	//	disk waits             for room or for file descriptors
	//	disk goes on           that wait is over
	//	failed
	//
	// What is slow is among them as often as it is logged. New kinds may come.
	Kind   string
	Shard  int // from 1
	Member MemberID
	Number uint64
	Took   time.Duration
}

// String returns the occurrence as a line of text, with the time of day in UTC. Its form may change.
func (o Occurrence) String() string {
	return health.Describe(o.At, o.Kind, engine.ShardID(o.Shard), o.Member, o.Number, o.Took)
}

// Recent returns what happened to the node lately, the oldest first: the newest max occurrences, or
// all that are remembered if max is zero or less. The node remembers 4,096, of this run only. It
// works at any time, also after Close. When a node fails, its log has the newest 64.
func (n *Node) Recent(max int) []Occurrence {
	all := n.in().Engine.Recent(max)
	list := make([]Occurrence, len(all))
	for i, o := range all {
		list[i] = Occurrence{At: o.At, Kind: o.Kind.String(), Shard: int(o.Shard), Member: o.Member, Number: o.Number, Took: o.Took}
	}
	return list
}
