package replication

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"
)

// leaders records the calls of LeaderChanged.
type leaders struct {
	sync.Mutex
	told []Leader
}

func TestLeader_ToldInOrderAndAsAsked(t *testing.T) {
	e := found(t, 3, 1)
	var seen [3]leaders
	var hosts [3]*Host
	var mu sync.Mutex
	for i, n := range e.nodes {
		n.disk = e.newDisk(n.dir)
		c := e.config(n)
		c.LeaderChanged = func(id ShardID, l Leader) {
			mu.Lock()
			h := hosts[i]
			mu.Unlock()
			if h != nil && h.Leader(id) != l {
				t.Errorf("member %d was called with %v, and Leader returns %v", n.id, l, h.Leader(id))
			}
			seen[i].Lock()
			defer seen[i].Unlock()
			if k := len(seen[i].told); k > 0 && l.Term < seen[i].told[k-1].Term {
				t.Errorf("member %d: term %d after %d", n.id, l.Term, seen[i].told[k-1].Term)
			}
			seen[i].told = append(seen[i].told, l)
		}
		h, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		hosts[i], n.host = h, h
		mu.Unlock()
		n.tapes = []*tape{openTape(t, n.disk, n.dir, 1)}
		if err := h.StartShard(1, n.tapes[0]); err != nil {
			t.Fatal(err)
		}
	}
	first := awaitLeader(t, e.nodes[0], 1)
	e.write(e.nodes[0], 1, "x")
	to := MemberID(first.Member%3 + 1)
	eventually(t, "transfer", func() bool {
		_ = e.nodes[0].host.TransferLeader(1, to)
		l := e.nodes[0].host.Leader(1)
		return l.Member == to
	})
	for _, n := range e.nodes {
		eventually(t, "one leader that knows it", func() bool { // another member may lead the next moment
			l := n.host.Leader(1)
			return l.Member != 0 && l == e.nodes[0].host.Leader(1) && n.host.Leads(1) == (n.id == l.Member)
		})
	}
	if l := e.nodes[0].host.Leader(2); l != (Leader{}) {
		t.Errorf("a shard that does not exist is led by %v", l)
	}
}

// B3.2, C12.1: A leader that is cut off from the others stops leading. Then it refuses proposals.
func TestLeader_IsolatedStepsDown(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	old := e.node(awaitLeader(t, e.nodes[0], 1).Member)
	e.carrier.isolate(UUID(e.digest, old.id), true)
	eventually(t, "step down", func() bool { return old.host.Leader(1).Member == 0 })
	if _, err := old.host.Propose(1, []byte("nobody hears")); !errors.Is(err, ErrNoLeader) {
		t.Errorf("propose without a leader: %v", err)
	}
	if err := old.host.TransferLeader(1, 1); !errors.Is(err, ErrNoLeader) {
		t.Errorf("transfer without a leader: %v", err)
	}
	others := slicesWithout(e.nodes, old)
	e.write(others[0], 1, "goes on")
	e.carrier.isolate(UUID(e.digest, old.id), false)
	old.tapes[0].has(t, "goes on")
}

// C12.2: A member that is cut off asks for votes again and again. When it comes back, its term must
// not be ahead of the others, or they would depose their leader. (The test cannot ask that they
// still follow the same leader. On a busy machine a leader that is silent for a moment is
// replaced.)
func TestLeader_AMemberThatComesBackDeposesNobody(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	leader := awaitLeader(t, e.nodes[0], 1)
	away := e.nodes[leader.Member%3]
	term := func(n *node) uint64 {
		rs, err := n.host.store.ReadRaftState(1, uint64(n.id), 0)
		if err != nil {
			t.Fatal(err)
		}
		return rs.State.Term
	}
	e.carrier.isolate(UUID(e.digest, away.id), true)
	for range 3 { // elections that it loses
		asked := e.carrier.lost(UUID(e.digest, away.id), raftpb.RequestPreVote, raftpb.RequestVote)
		eventually(t, "request for a vote", func() bool { return isClosed(asked) })
	}
	others := slicesWithout(e.nodes, away)
	if its, newest := term(away), max(term(others[0]), term(others[1])); its > newest {
		t.Errorf("the member that was cut off is in term %d, the others in %d", its, newest)
	}
	e.carrier.isolate(UUID(e.digest, away.id), false)
	e.write(away, 1, "back")
	for _, n := range e.nodes {
		n.tapes[0].has(t, "back")
	}
}

// A leader that transfers its leadership drops proposals and reports it. Here its successor is
// never told to take over, so the transfer lasts for an election timeout.
func TestProposal_Dropped(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	e.carrier.observe(func(_ string, b *raftpb.MessageBatch) {
		b.Requests = slices.DeleteFunc(b.Requests, func(m raftpb.Message) bool { return m.Type == raftpb.TimeoutNow })
	})
	proposed, dropped := 0, ""
	eventually(t, "a dropped proposal", func() bool {
		n := e.node(awaitLeader(t, e.nodes[0], 1).Member)
		_ = n.host.TransferLeader(1, n.id%3+1) // fails while another transfer is under way
		proposed++
		cmd := fmt.Sprint(proposed)
		p, err := n.host.Propose(1, []byte(cmd))
		if err != nil || e.applied(n.tapes[0], cmd, p) || !p.Dropped() {
			return false
		}
		if !p.Dropped() {
			t.Error("a proposal forgets that it was dropped")
		}
		dropped = cmd
		return true
	})
	e.carrier.observe(nil)
	e.write(e.nodes[0], 1, "last")
	if e.nodes[0].tapes[0].times(dropped) != 0 {
		t.Error("a dropped proposal was applied")
	}
}
