package transport

import (
	"fmt"
	"maps"
	"slices"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A ShardState is what a member says about its log of one shard. The zero value describes an empty
// log.
type ShardState struct {
	// What the directory held when the member's process started.
	Term uint64 // the newest term that it had taken part in
	Vote uint64 // the member it had voted for in that term; zero if none
	Last uint64 // index of its last entry, or of the snapshot in place of it

	Held Held // what the log holds now
}

// Held is what a member knows to be committed. The zero value means that it knows of nothing.
type Held struct {
	Term       uint64 // the term in which it learned that, or a later one
	Commit     uint64 // index of the newest entry that it knows to be committed
	CommitTerm uint64 // the term of that entry; zero if the log no longer has it
	CommitSum  uint64 // checksum of that entry
}

// A promise is what a member has told this one about its log of one shard, and must not take back.
// It says that the member is in a term, and what it holds in that term.
type promise struct {
	term  uint64
	index uint64 // entries up to here are on its disk, unless a newer term replaced them
	voted bool   // it voted for this member
}

// forgotten says which part of a promise the log no longer keeps. It returns an empty text if the
// log keeps all.
//
// A term never goes down. Within a term the leader only appends. So no entry is removed that the
// leader has, or that others have acknowledged to it. In a newer term the tail may be replaced, so
// an index proves nothing. A directory that is older than the promise is still always found: its
// term is older, or it has fewer entries in the same term.
func (p promise) forgotten(e ShardState, self uint64) string {
	switch {
	case e.Term < p.term:
		return fmt.Sprintf("it knows of no term after %d, it has taken part in term %d", e.Term, p.term)
	case e.Term > p.term:
		return ""
	case e.Last < p.index:
		return fmt.Sprintf("it ends at entry %d of term %d, it has acknowledged entry %d in that term", e.Last, e.Term, p.index)
	case p.voted && e.Vote != self:
		return fmt.Sprintf("its vote of term %d is for member %d, it was for member %d", e.Term, e.Vote, self)
	}
	return ""
}

// add merges another promise into p. Promises may arrive in any order.
func (p *promise) add(q promise) {
	switch {
	case q.term > p.term:
		*p = q
	case q.term == p.term:
		p.index, p.voted = max(p.index, q.index), p.voted || q.voted
	}
}

// promised returns the promise in a message. A message counts only for what is on the sender's disk
// when it is sent. A leader sends entries before it saves them, so they do not count. Its commit
// index does: no commit is sent before the entries up to it are saved (logStore.hold).
func promised(m *pb.Message) promise {
	p := promise{term: m.Term}
	switch m.Type {
	case pb.ReplicateResp:
		if !m.Reject {
			p.index = m.LogIndex
		}
	case pb.Replicate, pb.Heartbeat:
		p.index = m.Commit
	case pb.RequestVoteResp:
		p.voted = !m.Reject
	case pb.RequestVote, pb.HeartbeatResp:
	default:
		return promise{} // includes pre-votes: they name terms that nobody has entered
	}
	return p
}

// promises are what other members have promised this one. They reveal a directory that was put back
// to an earlier state, because that state lacks some of them.
type promises struct {
	self   uint64
	shards int

	mu struct {
		rank.Mutex[rank.Promises]
		of map[uint64]*record
	}
}

// A record holds the promises of one member's directory.
type record struct {
	directory [16]byte
	start     uint64    // the newest that was accepted
	run       uint64    // the process that was accepted last
	now       []promise // by shard, made by that process
	before    []promise // by shard, made by earlier processes
	pulses    []pulse   // by shard, of that process
}

func newPromises(self, shards uint64) *promises {
	p := &promises{self: self, shards: int(shards)}
	p.mu.of = make(map[uint64]*record)
	return p
}

// accept refuses a process whose directory lacks what an earlier process of the same member
// promised. It also refuses a process that started before the newest one it has accepted. It begins
// to record the promises of a process that it accepts.
func (p *promises) accept(id Identity) *Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.of[id.Member]
	if r == nil || r.directory != id.Directory {
		r = p.newRecord(id)
		p.mu.of[id.Member] = r
	}
	same := r.run == id.Run
	for i, old := range r.before {
		if !same {
			old.add(r.now[i])
		}
		if lack := old.forgotten(id.shard(i), p.self); lack != "" {
			return refusal(ErrForgot, "the directory of member %d is older than what it has told member %d (shard %d: %s); "+
				"it was put back to an earlier state or has lost acknowledged writes, and must not vote; start the member with its directory as it last was, or leave it down (docs/runbook.md: A member that cannot come back)",
				id.Member, p.self, i+1, lack)
		}
	}
	if id.Start < r.start {
		// Its hello may have been read late, after the next process came. That process has promised
		// more since.
		return refusal(ErrNotAccepted, "start %d of member %d is over, start %d has come: another process runs on this directory or a copy of it",
			id.Start, id.Member, r.start)
	}
	if !same {
		r.change(id)
	}
	return nil
}

func (p *promises) newRecord(id Identity) *record {
	return &record{directory: id.Directory, start: id.Start, run: id.Run,
		now: make([]promise, p.shards), before: make([]promise, p.shards), pulses: make([]pulse, p.shards)}
}

// change begins to record the promises of another process.
func (r *record) change(id Identity) {
	for i := range r.before {
		r.before[i].add(r.now[i])
	}
	clear(r.now)
	clear(r.pulses)
	r.start, r.run = id.Start, id.Run
}

// note records what the messages of an accepted peer promise, and its pulse.
func (p *promises) note(id *Identity, messages []pb.Message, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.of[id.Member]
	if r == nil || r.directory != id.Directory {
		return
	}
	late := r.run != id.Run // a newer process was accepted while these were on their way
	for i := range messages {
		m := &messages[i]
		if m.ShardID < 1 || m.ShardID > uint64(p.shards) {
			continue
		}
		if shard := m.ShardID - 1; late {
			r.before[shard].add(promised(m))
		} else {
			r.now[shard].add(promised(m))
			r.pulses[shard].note(m, now)
		}
	}
}

// members returns the members whose promises are remembered.
func (p *promises) members() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.mu.of))
}

// forget drops the promises of a member that was removed, or is not known. No process of a removed
// one is accepted again.
func (p *promises) forget(member uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.of, member)
}
