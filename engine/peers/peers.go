package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// A Node is what a Doorkeeper needs from above it.
type Node interface {
	// Fail fails the node.
	Fail(cause error)
	// Removed fails the node, because its member is out of the ensemble.
	Removed(how string)
	// Superseded fails the node, because a forced recovery has gone on without its member.
	Superseded(how string)
}

// A Doorkeeper decides which other members may talk to this node, and hears what they say of it.
type Doorkeeper struct {
	Node   Node
	Forest forest.Forest
	Roster *roster.Roster
	Host   func() *replication.Host
	Opened <-chan struct{} // closed when Start has opened everything
}

// Accept decides whether a peer with the right founding digest may talk to this node.
func (d *Doorkeeper) Accept(peer transport.Identity) error {
	if err := d.recognise(peer); err != nil {
		return err
	}
	return d.compareHistory(peer)
}

// recognise compares the random id of a peer's directory. A member that returns with another id has
// lost its log, and its vote could undo what it has acknowledged. The table knows the id from the
// member's admission or its Register. Before that, the first handshake with a founder decides, and
// is remembered. A member that the table does not have yet is let in: see Roster.Knows.
func (d *Doorkeeper) recognise(peer transport.Identity) error {
	m := replication.MemberID(peer.Member)
	o, _ := d.Forest.Home().Origin(session.MemberID(m))
	known, ok := d.Roster.DirectoryOf(m)
	if !ok {
		if d.Roster.IsNews(m) {
			return nil
		}
		return d.remember(m, peer.Directory)
	}
	if known != peer.Directory {
		return fmt.Errorf("the directory of member %d is new, the ensemble knows member %d by another (%x, not %x): it must not vote as its old self; %s", m, m, known, peer.Directory, replication.WayOut)
	}
	if peer.Start < o.Start {
		return fmt.Errorf("start %d of member %d is over, start %d has registered: another process runs on this directory or a copy of it", peer.Start, m, o.Start)
	}
	return nil
}

// compareHistory refuses a peer that knows an entry to be committed where this node has another
// entry. Some member was restored to an earlier state and let the others elect a leader without the
// entry. No one can tell now which member it was. The peer must stop, because the newer leader has
// this node's log.
func (d *Doorkeeper) compareHistory(peer transport.Identity) error {
	host := d.Host()
	if host == nil {
		return nil
	}
	for i, s := range peer.Shards[:min(len(peer.Shards), len(d.Forest))] {
		if index, term, yes := host.Contradicts(replication.ShardID(i+1), replication.Held(s.Held)); yes {
			return &transport.Refusal{Kind: transport.ErrOtherHistory, Text: fmt.Sprintf(
				"shard %d: member %d knows entry %d to be committed, of term %d; on member %d entry %d is of term %d: acknowledged writes are lost there, because the directory of some member was put back to an earlier state, or its log has lost its end (docs/runbook.md: Two histories)",
				i+1, peer.Member, s.Held.Commit, s.Held.CommitTerm, d.Roster.Self(), index, term)}
		}
	}
	return nil
}

// Held returns what this node tells peers about a shard's log. Here shards count from 0.
func (d *Doorkeeper) Held(shard int) transport.Held {
	if host := d.Host(); host != nil {
		return transport.Held(host.Held(replication.ShardID(shard + 1)))
	}
	return transport.Held{}
}

// remember records the directory of a founder in the identity file.
func (d *Doorkeeper) remember(m replication.MemberID, directory [16]byte) error {
	var twice error
	err := d.Roster.Identity.Amend(func(id *replication.Identity) bool {
		known, ok := id.Peers[m]
		if ok && known != directory {
			twice = fmt.Errorf("member %d has come with two directories at once, %x and %x", m, known, directory)
		}
		if ok {
			return false
		}
		peers := map[replication.MemberID][16]byte{m: directory}
		maps.Copy(peers, id.Peers)
		id.Peers = peers
		return true
	})
	if err != nil {
		d.Node.Fail(fmt.Errorf("remembering the directory of member %d: %w", m, err)) // cuts the connection, so the peer gets no verdict
	}
	return cmp.Or(err, twice)
}

// Refused handles the refusal of this node by a peer. A refusal of its directory is final. Another
// founding digest or tick may be the peer's mistake, so Ready reports that.
//
// A refusal fails the node once Start has opened everything. So Start fails only for reasons of its
// own machine, and a refusal always shows in Done and Err.
func (d *Doorkeeper) Refused(ctx context.Context, peer uint64, reason error) {
	no := (*transport.Refusal)(nil)
	if !errors.As(reason, &no) || !no.Final() {
		return
	}
	select {
	case <-d.Opened:
	case <-ctx.Done():
		return // Start fails, or the disk has failed
	}
	switch {
	case no.Kind == transport.ErrRemoved:
		d.Node.Removed(fmt.Sprintf("member %d says: %v", peer, reason))
	case no.Kind == transport.ErrSuperseded:
		d.Node.Superseded(fmt.Sprintf("member %d says: %v", peer, reason))
	default:
		d.Node.Fail(fmt.Errorf("refused by member %d: %w", peer, reason))
	}
}
