package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication/transport"
)

// A waitError says what was missing when a wait ended without success.
type waitError struct {
	cause    error    // the error of the caller's ctx, or the lack of a quorum in time
	lacks    []string // what was missing, in words
	refusals []error  // refusals between members, as errors.Is finds them
}

func (e *waitError) Error() string {
	return e.cause.Error() + ": " + strings.Join(e.lacks, "; ")
}

func (e *waitError) Unwrap() []error { return append([]error{e.cause}, e.refusals...) }

// notReady adds to cause what the node lacks now, if anything.
func (e *Engine) notReady(cause error) error {
	lacks, refusals := e.lacks()
	if len(lacks) == 0 {
		return cause
	}
	return &waitError{cause: cause, lacks: lacks, refusals: refusals}
}

// lacking adds to the error of a caller that waited for a shard what this node lacks. It adds
// nothing if this node knows the shard's leader.
func (e *Engine) lacking(id ShardID, err error) error {
	if e.Leader(id).Member != 0 {
		return err
	}
	return e.notReady(err)
}

// Joining says what a node waits for that has yet to join. It is empty for a member, and for a node
// that is over.
func (e *Engine) Joining() string {
	if e.roster.Self() != 0 || e.over() != nil {
		return ""
	}
	return e.entry.Lack()
}

// lacks lists, in words, what keeps this node from serving. It names shards without a leader, and
// members whose connection is needed and missing, and why. It also names shards where this member is not registered,
// and shards with entries still to apply. refusals are the errors with which members refuse one
// another.
func (e *Engine) lacks() (list []string, refusals []error) {
	if why := e.Joining(); why != "" {
		return []string{why}, []error{ErrJoining}
	}
	var leaderless, unknown, silent []ShardID
	for _, r := range e.shards {
		switch {
		case e.Leader(r.Shard).Member == 0:
			leaderless = append(leaderless, r.Shard)
		case !isDone(r.Outbox.Ready):
			unknown = append(unknown, r.Shard)
		default:
			silent = append(silent, r.Shard)
		}
	}
	if len(leaderless) > 0 {
		list = append(list, "no leader"+e.onShards(leaderless))
	}
	peers, refusals := e.lackingPeers(len(leaderless) > 0)
	list = append(list, peers...)
	if why := e.toGo.Load(); why != nil {
		list, refusals = append(list, *why), append(refusals, ErrRemoved)
	} else if len(unknown) > 0 {
		list = append(list, "this member is not registered yet"+e.onShards(unknown))
	}
	if lack := e.seeding.Lack(); lack != "" {
		list = append(list, lack)
	}
	if len(list) == 0 && len(silent) > 0 {
		list = append(list, "not everything is applied that was committed"+e.onShards(silent))
	}
	return list, refusals
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// onShards names the shards, or nothing if the ensemble has just one.
func (e *Engine) onShards(ids []ShardID) string {
	switch {
	case len(e.shards) == 1:
		return ""
	case len(ids) == len(e.shards):
		return " on any shard"
	}
	return " on shards " + strings.Trim(fmt.Sprint(ids), "[]")
}

// lackingPeers says what is wrong with the connections to other members. If all is true, it also
// lists the members that are connected.
func (e *Engine) lackingPeers(all bool) (list []string, refusals []error) {
	var connected []string
	for _, p := range e.peers() {
		if isConnected(p) {
			connected = append(connected, fmt.Sprint(p.Member))
		}
		if lack := e.lackOf(p); lack != "" {
			list = append(list, lack)
		}
		refusals = append(refusals, slices.DeleteFunc([]error{p.RefusedBy, p.Refused}, func(err error) bool { return err == nil })...)
	}
	if all && len(connected) > 0 {
		list = append(list, "connected: "+strings.Join(connected, ", "))
	}
	return list, refusals
}

func (e *Engine) peers() []transport.Peer {
	if e.transport == nil || e.cfg.Alone {
		return nil
	}
	return e.transport.Peers()
}

// Connected returns the other members to which this one has a connection, and they to it, in the
// order of their ids.
func (e *Engine) Connected() (list []MemberID) {
	for _, p := range e.peers() {
		if isConnected(p) {
			list = append(list, MemberID(p.Member))
		}
	}
	return list
}

// Missing returns the other members to which this one lacks a connection that it needs, in the order
// of their ids. Members of which neither leads need none.
func (e *Engine) Missing() (list []MemberID) {
	for _, p := range e.peers() {
		if e.lackOf(p) != "" {
			list = append(list, MemberID(p.Member))
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
func (e *Engine) needs(peer MemberID) bool {
	return slices.ContainsFunc(e.shards, func(r *replica.Replica) bool {
		leader := e.Leader(r.Shard).Member
		return leader == 0 || leader == e.roster.Self() || leader == peer
	})
}

// lackOf says what is wrong with the connections of a peer. It is empty if nothing is, and if a
// connection that is not there is not needed.
func (e *Engine) lackOf(p transport.Peer) string {
	switch {
	case p.RefusedBy != nil:
		return fmt.Sprintf("refused by member %d: %v", p.Member, p.RefusedBy)
	case p.Refused != nil:
		return fmt.Sprintf("member %d is refused: %v", p.Member, p.Refused)
	case isConnected(p), !e.needs(MemberID(p.Member)):
		return ""
	case p.Err != nil:
		return fmt.Sprintf("no connection to member %d: %v", p.Member, p.Err)
	case p.Reached:
		return fmt.Sprintf("member %d does not connect to this one", p.Member)
	}
	return fmt.Sprintf("no connection to member %d yet", p.Member)
}
