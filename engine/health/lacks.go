package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
)

// A Node is what health needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(replication.ShardID) replication.Leader
	// Joining says what a node waits for that has yet to join; empty for a member.
	Joining() string
	// ToGo says why the ensemble no longer registers this member, whose vote still counts; empty if it does.
	ToGo() string
	// Loading says what is missing of the backup that the ensemble begins with; empty if nothing is.
	Loading() string
	// Finished returns since when and why the node is over for its users, with the cause if it has failed; else nil.
	Finished() (at time.Time, over, cause error)
	// Silenced returns why the node is over, or will be soon because its disk has failed; or nil.
	Silenced() error
}

// Lacks knows what keeps a node from serving.
type Lacks struct {
	Node      Node
	Forest    forest.Forest
	Roster    *roster.Roster
	Transport *transport.Transport // nil before there is one
	Alone     bool
}

// A lackError says what was missing when a wait ended without success.
type lackError struct {
	cause    error    // the error of the caller's ctx, or the lack of a quorum in time
	lacks    []string // what was missing, in words
	refusals []error  // refusals between members, as errors.Is finds them
}

func (e *lackError) Error() string {
	return e.cause.Error() + ": " + strings.Join(e.lacks, "; ")
}

func (e *lackError) Unwrap() []error { return append([]error{e.cause}, e.refusals...) }

// Explain adds to cause what the node lacks now, if anything.
func (l *Lacks) Explain(cause error) error {
	lacks, refusals := l.List()
	if len(lacks) == 0 {
		return cause
	}
	return &lackError{cause: cause, lacks: lacks, refusals: refusals}
}

// ExplainOn adds to the error of a caller that waited for a shard what this node lacks. It adds
// nothing if this node knows the shard's leader.
func (l *Lacks) ExplainOn(id replication.ShardID, err error) error {
	if l.Node.Leader(id).Member != 0 {
		return err
	}
	return l.Explain(err)
}

// List lists, in words, what keeps this node from serving. It names shards without a leader, and
// members whose connection is needed and missing, and why. It also names shards where this member is
// not registered, and shards with entries still to apply. refusals are the errors with which members refuse one
// another.
func (l *Lacks) List() (list []string, refusals []error) {
	if why := l.Node.Joining(); why != "" {
		return []string{why}, []error{roster.ErrJoining}
	}
	var leaderless, unknown, silent []replication.ShardID
	for _, r := range l.Forest {
		switch {
		case l.Node.Leader(r.Shard).Member == 0:
			leaderless = append(leaderless, r.Shard)
		case !ready(r):
			unknown = append(unknown, r.Shard)
		default:
			silent = append(silent, r.Shard)
		}
	}
	if len(leaderless) > 0 {
		list = append(list, "no leader"+l.OnShards(leaderless))
	}
	peers, refusals := l.lackingPeers(len(leaderless) > 0)
	list = append(list, peers...)
	if why := l.Node.ToGo(); why != "" {
		list, refusals = append(list, why), append(refusals, roster.ErrRemoved)
	} else if len(unknown) > 0 {
		list = append(list, "this member is not registered yet"+l.OnShards(unknown))
	}
	if lack := l.Node.Loading(); lack != "" {
		list = append(list, lack)
	}
	if len(list) == 0 && len(silent) > 0 {
		list = append(list, "not everything is applied that was committed"+l.OnShards(silent))
	}
	return list, refusals
}

// OnShards names the shards, or nothing if the ensemble has just one.
func (l *Lacks) OnShards(ids []replication.ShardID) string {
	switch {
	case len(l.Forest) == 1:
		return ""
	case len(ids) == len(l.Forest):
		return " on any shard"
	}
	return " on shards " + strings.Trim(fmt.Sprint(ids), "[]")
}

// lackingPeers says what is wrong with the connections to other members. If all is true, it also
// lists the members that are connected.
func (l *Lacks) lackingPeers(all bool) (list []string, refusals []error) {
	var connected []string
	for _, p := range l.peers() {
		if isConnected(p) {
			connected = append(connected, fmt.Sprint(p.Member))
		}
		if lack := l.lackOf(p); lack != "" {
			list = append(list, lack)
		}
		refusals = append(refusals, slices.DeleteFunc([]error{p.RefusedBy, p.Refused}, func(err error) bool { return err == nil })...)
	}
	if all && len(connected) > 0 {
		list = append(list, "connected: "+strings.Join(connected, ", "))
	}
	return list, refusals
}

func (l *Lacks) peers() []transport.Peer {
	if l.Transport == nil || l.Alone {
		return nil
	}
	return l.Transport.Peers()
}

// Connected returns the other members to which this one has a connection, and they to it, in the
// order of their ids.
func (l *Lacks) Connected() (list []replication.MemberID) {
	for _, p := range l.peers() {
		if isConnected(p) {
			list = append(list, replication.MemberID(p.Member))
		}
	}
	return list
}

// Missing returns the other members to which this one lacks a connection that it needs, in the order
// of their ids. Members of which neither leads need none.
func (l *Lacks) Missing() (list []replication.MemberID) {
	for _, p := range l.peers() {
		if l.lackOf(p) != "" {
			list = append(list, replication.MemberID(p.Member))
		}
	}
	return list
}

// isConnected reports whether there is a connection of a peer's, and nothing is wrong with one to
// it. There is none to it before this node has something to send.
func isConnected(p transport.Peer) bool {
	return p.RefusedBy == nil && p.Refused == nil && p.Err == nil && p.Heard
}

// needs reports whether this member must be connected with another one: either leads a shard, or
// nobody does.
func (l *Lacks) needs(peer replication.MemberID) bool {
	return slices.ContainsFunc(l.Forest, func(r *replica.Replica) bool {
		leader := l.Node.Leader(r.Shard).Member
		return leader == 0 || leader == l.Roster.Self() || leader == peer
	})
}

// lackOf says what is wrong with the connections of a peer. It is empty if nothing is, and if a
// connection that is not there is not needed.
func (l *Lacks) lackOf(p transport.Peer) string {
	switch {
	case p.RefusedBy != nil:
		return fmt.Sprintf("refused by member %d: %v", p.Member, p.RefusedBy)
	case p.Refused != nil:
		return fmt.Sprintf("member %d is refused: %v", p.Member, p.Refused)
	case isConnected(p), !l.needs(replication.MemberID(p.Member)):
		return ""
	case p.Err != nil:
		return fmt.Sprintf("no connection to member %d: %v", p.Member, p.Err)
	case p.Reached:
		return fmt.Sprintf("member %d does not connect to this one", p.Member)
	}
	return fmt.Sprintf("no connection to member %d yet", p.Member)
}

// ready reports whether this member is registered on a shard.
func ready(r *replica.Replica) bool {
	select {
	case <-r.Outbox.Ready:
		return true
	default:
		return false
	}
}
