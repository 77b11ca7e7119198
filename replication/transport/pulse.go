package transport

import (
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// A Pulse is what the messages of a member's present process show of its replica of a shard.
type Pulse struct {
	// Answered is when the replica last answered a leader here: to entries that it took, or to a
	// heartbeat. It is zero if it never did.
	Answered time.Time
	// Index is the highest entry that it acknowledged in the newest term it has named.
	Index uint64
	// Led is when it last sent entries or a heartbeat, as a leader does. It is zero if it never
	// did.
	Led time.Time
	// Start is how often a node was started on the member's directory, as its hello says.
	Start uint64
}

// Pulse returns the pulse of a member on a shard; shards count from 1. The pulse begins anew with
// each process and each directory of the member: what it acknowledged earlier, it may have lost.
func (t *Transport) Pulse(member uint64, shard int) Pulse {
	return t.role.Load().promises.pulse(member, shard)
}

// A pulse adds the term of Index.
type pulse struct {
	Pulse
	term uint64
}

// note records a message. Messages of one member may come out of order over its connections. One of
// an older term than another says nothing about now.
func (p *pulse) note(m *pb.Message, now time.Time) {
	term := promised(m).term
	if term == 0 || term < p.term {
		return
	}
	if term > p.term {
		p.term, p.Index = term, 0 // the newer term may have replaced the entries
	}
	switch m.Type {
	case pb.ReplicateResp:
		if !m.Reject {
			p.Answered, p.Index = now, max(p.Index, m.LogIndex)
		}
	case pb.HeartbeatResp:
		p.Answered = now
	case pb.Replicate, pb.Heartbeat:
		p.Led = now
	}
}

// pulse returns a copy of a pulse; the zero value if nothing is known.
func (p *promises) pulse(member uint64, shard int) Pulse {
	if shard < 1 || shard > p.shards {
		return Pulse{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.of[member]
	if r == nil {
		return Pulse{}
	}
	now := r.pulses[shard-1].Pulse
	now.Start = r.start
	return now
}
