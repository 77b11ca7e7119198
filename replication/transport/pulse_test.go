package transport

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// pulsing is a table of promises with a peer, at times that the test chooses.
type pulsing struct {
	*promises
	begin time.Time
}

func newPulsing() *pulsing { return &pulsing{newPromises(1, 2), time.Unix(1000, 0)} }

// say notes messages of shard 2, so many seconds after the beginning.
func (p *pulsing) say(id Identity, second int, messages ...pb.Message) {
	for i := range messages {
		messages[i].ShardID = 2
	}
	p.note(&id, messages, p.at(second))
}

// at returns a time; zero for none.
func (p *pulsing) at(second int) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return p.begin.Add(time.Duration(second) * time.Second)
}

// processOf returns a process of member 3 whose log keeps all promises.
func processOf(start, run uint64, directory byte) Identity {
	id := identity(3)
	id.Start, id.Run, id.Directory = start, run, [16]byte{directory}
	id.Shards = []ShardState{{}, {Term: 1 << 40}}
	return id
}

func acked(term, index uint64) pb.Message {
	return pb.Message{Type: pb.ReplicateResp, Term: term, LogIndex: index}
}

func rejected(m pb.Message) pb.Message {
	m.Reject = true
	return m
}

func typed(typ pb.MessageType, term uint64) pb.Message {
	return pb.Message{Type: typ, Term: term, LogIndex: 900, Commit: 800}
}

// M14: what each message shows of a replica, the last one at second 9. That it is connected, or
// asks for something, is no answer.
func TestPulse(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, then   []pb.Message // at seconds 1 and 9
		answered, led int
		index         uint64
	}{
		{name: "nothing"},
		{name: "an acknowledgment", then: []pb.Message{acked(5, 70)}, answered: 9, index: 70},
		{name: "a smaller one", first: []pb.Message{acked(5, 70)}, then: []pb.Message{acked(5, 69)}, answered: 9, index: 70},
		{name: "a rejection", first: []pb.Message{acked(5, 70)}, then: []pb.Message{rejected(acked(5, 90))}, answered: 1, index: 70},
		{name: "a heartbeat's answer", first: []pb.Message{acked(5, 70)}, then: []pb.Message{typed(pb.HeartbeatResp, 5)}, answered: 9, index: 70},
		{name: "an acknowledgment of a newer term", first: []pb.Message{acked(5, 70)}, then: []pb.Message{acked(6, 60)}, answered: 9, index: 60},
		{name: "a newer term alone", first: []pb.Message{acked(5, 70)}, then: []pb.Message{typed(pb.HeartbeatResp, 6)}, answered: 9},
		{name: "a candidate of a newer term", first: []pb.Message{acked(5, 70)}, then: []pb.Message{typed(pb.RequestVote, 6)}, answered: 1},
		{name: "a pre-vote enters no term", first: []pb.Message{acked(5, 70)}, then: []pb.Message{typed(pb.RequestPreVote, 6), typed(pb.RequestPreVoteResp, 6)}, answered: 1, index: 70},
		{name: "an acknowledgment of an older term", first: []pb.Message{acked(5, 70)}, then: []pb.Message{acked(4, 90)}, answered: 1, index: 70},
		{name: "entries", then: []pb.Message{typed(pb.Replicate, 5)}, led: 9},
		{name: "a heartbeat", then: []pb.Message{typed(pb.Heartbeat, 5)}, led: 9},
		{name: "a leader of an older term", first: []pb.Message{acked(5, 70)}, then: []pb.Message{typed(pb.Heartbeat, 4)}, answered: 1, index: 70},
		{name: "what says nothing", then: []pb.Message{typed(pb.Propose, 0), typed(pb.ReadIndexResp, 5), typed(pb.RateLimit, 5)}},
		{name: "several in a batch", then: []pb.Message{acked(5, 70), typed(pb.Replicate, 5), acked(5, 71)}, answered: 9, led: 9, index: 71},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, id := newPulsing(), processOf(4, 10, 1)
			if no := p.accept(id); no != nil {
				t.Fatal(no)
			}
			p.say(id, 1, c.first...)
			p.say(id, 9, c.then...)
			want := Pulse{Answered: p.at(c.answered), Led: p.at(c.led), Index: c.index, Start: 4}
			if got := p.pulse(3, 2); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			for _, other := range []Pulse{p.pulse(3, 1), {Start: 4}} {
				if other != (Pulse{Start: 4}) {
					t.Errorf("shard 1: %+v", other)
				}
			}
			for _, shard := range []int{-1, 0, 3} {
				if got := p.pulse(3, shard); got != (Pulse{}) {
					t.Errorf("shard %d: %+v", shard, got)
				}
			}
			if got := p.pulse(2, 2); got != (Pulse{}) {
				t.Errorf("another member: %+v", got)
			}
		})
	}
}

// What an earlier process or another directory of a member said does not count for the present one,
// also if it arrives late. Another connection of the same process changes nothing.
func TestPulse_OfSeveralProcesses(t *testing.T) {
	p := newPulsing()
	old := processOf(4, 10, 1)
	p.accept(old)
	p.say(old, 1, acked(5, 70), typed(pb.Heartbeat, 5))
	p.accept(old)
	if got := p.pulse(3, 2); got.Index != 70 || got.Answered.IsZero() || got.Led.IsZero() {
		t.Errorf("another connection: %+v", got)
	}
	for _, next := range []Identity{processOf(5, 11, 1), processOf(1, 12, 2)} {
		if no := p.accept(next); no != nil {
			t.Fatal(no)
		}
		p.say(old, 2, acked(5, 71), typed(pb.Heartbeat, 5))
		if got := p.pulse(3, 2); got != (Pulse{Start: next.Start}) {
			t.Errorf("start %d begins with %+v", next.Start, got)
		}
		p.say(next, 3, acked(5, 8))
		if got := p.pulse(3, 2); got != (Pulse{Start: next.Start, Index: 8, Answered: p.at(3)}) {
			t.Errorf("start %d: %+v", next.Start, got)
		}
		old = next
	}
	p.forget(3)
	if got := p.pulse(3, 2); got != (Pulse{}) {
		t.Errorf("forgotten: %+v", got)
	}
}

// The pulse comes from messages that passed, with the time of their arrival.
func TestPulse_OverALink(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		link := a.link(t, 2)
		if got := b.Pulse(1, 1); got != (Pulse{}) {
			t.Errorf("before a handshake: %+v", got)
		}
		forged := acked(9, 99)
		forged.ShardID, forged.From, forged.To = 1, 3, 2
		answer := acked(1, 7)
		answer.ShardID, answer.From, answer.To = 1, 1, 2
		link.SendMessageBatch(batchOf(forged, answer))
		synctest.Wait()
		begin := time.Now()
		if got := b.Pulse(1, 1); got != (Pulse{Answered: begin, Index: 7, Start: 1}) {
			t.Errorf("%+v", got)
		}
		pass(time.Minute)
		link.SendMessageBatch(beat(1, 2, 1))
		synctest.Wait()
		if got := b.Pulse(1, 1); got != (Pulse{Answered: begin, Led: begin.Add(time.Minute), Index: 7, Start: 1}) {
			t.Errorf("%+v", got)
		}
		if got := b.Pulse(3, 1); got != (Pulse{}) {
			t.Errorf("the forged one's: %+v", got)
		}
		heard(b)
	})
}
