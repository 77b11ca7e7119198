package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/replication/transport"
)

// A waitError says what was waited for in vain.
type waitError struct {
	cause    error // what the caller is told: his ctx's error, or that there was no quorum in time
	lacks    []string
	refusals []error // those among what it lacks
}

func (e *waitError) Error() string {
	return e.cause.Error() + ": " + strings.Join(e.lacks, "; ")
}

func (e *waitError) Unwrap() []error { return append([]error{e.cause}, e.refusals...) }

// notReady returns what the node waits for, as the end of a ctx. It says what is known now.
func (e *Engine) notReady(cause error) error {
	lacks, refusals := e.lacks()
	if len(lacks) == 0 {
		return cause
	}
	return &waitError{cause: cause, lacks: lacks, refusals: refusals}
}

// lacking adds to an error of somebody who waited for a shard what this node lacks, if it knows of no leader there.
func (e *Engine) lacking(id ShardID, err error) error {
	if e.Leader(id).Member != 0 {
		return err
	}
	return e.notReady(err)
}

// lacks lists what keeps this node from serving, for people: shards without a leader, members that are not connected and why, leaders
// that have not answered. refusals are the errors of those who refuse others.
func (e *Engine) lacks() (list []string, refusals []error) {
	var leaderless, unknown, silent []ShardID
	for _, m := range e.shards {
		switch {
		case e.Leader(m.shard).Member == 0:
			leaderless = append(leaderless, m.shard)
		case !isDone(m.pipe.ready):
			unknown = append(unknown, m.shard)
		default:
			silent = append(silent, m.shard)
		}
	}
	if len(leaderless) > 0 {
		list = append(list, "no leader"+e.onShards(leaderless))
	}
	peers, refusals := e.lackingPeers(len(leaderless) > 0)
	list = append(list, peers...)
	if len(unknown) > 0 {
		list = append(list, "this member is not registered yet"+e.onShards(unknown))
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

// onShards says on which shards, if there are several.
func (e *Engine) onShards(ids []ShardID) string {
	switch {
	case len(e.shards) == 1:
		return ""
	case len(ids) == len(e.shards):
		return " on any shard"
	}
	return " on shards " + strings.Trim(fmt.Sprint(ids), "[]")
}

// lackingPeers says of the other members what is wrong with their connections, and, if all are wanted, of the rest that they are
// connected.
func (e *Engine) lackingPeers(all bool) (list []string, refusals []error) {
	if e.transport == nil || e.cfg.Alone {
		return nil, nil
	}
	var connected []string
	for _, p := range e.transport.Peers() {
		lack := lackOf(p)
		if lack == "" {
			connected = append(connected, fmt.Sprint(p.Member))
			continue
		}
		list = append(list, lack)
		refusals = append(refusals, slices.DeleteFunc([]error{p.RefusedBy, p.Refused}, func(err error) bool { return err == nil })...)
	}
	if all && len(connected) > 0 {
		list = append(list, "connected: "+strings.Join(connected, ", "))
	}
	return list, refusals
}

// lackOf says what is wrong with the connections of a peer, nothing if all is well.
func lackOf(p transport.Peer) string {
	switch {
	case p.RefusedBy != nil:
		return fmt.Sprintf("refused by member %d: %v", p.Member, p.RefusedBy)
	case p.Refused != nil:
		return fmt.Sprintf("member %d is refused: %v", p.Member, p.Refused)
	case p.Err != nil:
		return fmt.Sprintf("no connection to member %d: %v", p.Member, p.Err)
	case p.Reached && p.Heard:
		return ""
	case p.Reached:
		return fmt.Sprintf("member %d does not connect to this one", p.Member)
	case p.Heard:
		return "" // there was nothing to be said to it yet
	}
	return fmt.Sprintf("no connection to member %d yet", p.Member)
}
