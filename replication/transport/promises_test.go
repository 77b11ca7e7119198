package transport

import (
	"errors"
	"strings"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// B1.3: what a message promises, and what a directory must hold after it.
func TestPromises(t *testing.T) {
	type state = ShardState
	ack := pb.Message{Type: pb.ReplicateResp, Term: 5, LogIndex: 70}
	for _, c := range []struct {
		name     string
		messages []pb.Message
		comes    state
		lacks    string // empty if it is accepted
	}{
		{"everything is there", []pb.Message{ack}, state{Term: 5, Last: 70}, ""},
		{"more is there", []pb.Message{ack}, state{Term: 5, Last: 99}, ""},
		{"an entry is missing", []pb.Message{ack}, state{Term: 5, Last: 69}, "ends at entry 69 of term 5, it has acknowledged entry 70"},
		{"all is missing", []pb.Message{ack}, state{}, "no term after 0"},
		{"the term is missing", []pb.Message{ack}, state{Term: 4, Last: 99}, "no term after 4, it has taken part in term 5"},
		{"a newer leader cut it", []pb.Message{ack}, state{Term: 6, Last: 10}, ""},
		{"a rejection acknowledges nothing", []pb.Message{{Type: pb.ReplicateResp, Term: 5, LogIndex: 70, Reject: true}}, state{Term: 5, Last: 10}, ""},
		{"an older acknowledgment", []pb.Message{ack, {Type: pb.ReplicateResp, Term: 4, LogIndex: 90}}, state{Term: 5, Last: 70}, ""},
		{"a smaller one", []pb.Message{ack, {Type: pb.ReplicateResp, Term: 5, LogIndex: 9}}, state{Term: 5, Last: 69}, "entry 70"},
		{"a newer term", []pb.Message{ack, {Type: pb.HeartbeatResp, Term: 6}}, state{Term: 5, Last: 70}, "taken part in term 6"},
		{"a newer term replaced it", []pb.Message{ack, {Type: pb.ReplicateResp, Term: 6, LogIndex: 60}}, state{Term: 6, Last: 60}, ""},
		{"a leader's commits", []pb.Message{{Type: pb.Replicate, Term: 5, Commit: 70, LogIndex: 80}}, state{Term: 5, Last: 69}, "entry 70"},
		{"a leader's entries are not saved yet", []pb.Message{{Type: pb.Replicate, Term: 5, Commit: 70, LogIndex: 80}}, state{Term: 5, Last: 70}, ""},
		{"a leader's heartbeat", []pb.Message{{Type: pb.Heartbeat, Term: 5, Commit: 70}}, state{Term: 5, Last: 69}, "entry 70"},
		{"a vote", []pb.Message{{Type: pb.RequestVoteResp, Term: 5}}, state{Term: 5, Vote: 2}, "for member 2, it was for member 1"},
		{"a vote that is known", []pb.Message{{Type: pb.RequestVoteResp, Term: 5}}, state{Term: 5, Vote: 1}, ""},
		{"a vote that was refused", []pb.Message{{Type: pb.RequestVoteResp, Term: 5, Reject: true}}, state{Term: 5, Vote: 2}, ""},
		{"a vote of an older term", []pb.Message{{Type: pb.RequestVoteResp, Term: 4}, ack}, state{Term: 5, Vote: 2, Last: 70}, ""},
		{"a candidate's term", []pb.Message{{Type: pb.RequestVote, Term: 5, LogIndex: 70}}, state{Term: 5, Last: 60}, ""},
		{"a pre-vote is of a term to come", []pb.Message{{Type: pb.RequestPreVote, Term: 9}, {Type: pb.RequestPreVoteResp, Term: 9}}, state{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPromises(1, 2)
			first, second := identity(3), identity(3)
			first.Run, second.Run = 10, 11
			second.Shards = []ShardState{{}, c.comes}
			if no := p.accept(first); no != nil {
				t.Fatal(no)
			}
			for i := range c.messages {
				c.messages[i].ShardID = 2
			}
			p.note(&first, c.messages, time.Now())
			no := p.accept(second)
			switch {
			case c.lacks == "" && no != nil:
				t.Error(no)
			case c.lacks != "" && no == nil:
				t.Error("it is accepted")
			case no != nil && (!errors.Is(no, ErrForgot) || !strings.Contains(no.Text, "shard 2: it") || !strings.Contains(no.Text, c.lacks)):
				t.Errorf("%v: %s", no.Kind, no.Text)
			}
			if no := p.accept(first); no != nil && c.lacks != "" {
				t.Errorf("the process that was accepted is refused after another was refused: %v", no)
			}
		})
	}
}

// Acknowledgments that were on their way when another process came still count. A process is not
// held to its own promises.
func TestPromises_OfSeveralProcesses(t *testing.T) {
	p := newPromises(1, 1)
	run := func(n, term, last uint64) Identity {
		id := identity(3)
		id.Run, id.Shards = n, []ShardState{{Term: term, Last: last}}
		return id
	}
	ack := func(index uint64) []pb.Message {
		return []pb.Message{{Type: pb.ReplicateResp, ShardID: 1, Term: 1, LogIndex: index}}
	}
	first, second := run(1, 1, 10), run(2, 1, 20)
	p.accept(first)
	p.note(&first, ack(20), time.Now())
	if no := p.accept(first); no != nil {
		t.Errorf("the same process, again: %v", no)
	}
	if no := p.accept(second); no != nil {
		t.Fatal(no)
	}
	p.note(&second, ack(25), time.Now())
	if no := p.accept(second); no != nil {
		t.Errorf("it acknowledged after its start: %v", no)
	}
	p.note(&first, ack(21), time.Now())
	if no := p.accept(second); no == nil {
		t.Error("an acknowledgment that came late is forgotten")
	}
	if no := p.accept(run(3, 1, 24)); no == nil {
		t.Error("the second process's is forgotten")
	}
	other := run(4, 0, 0)
	other.Directory[0]++
	if no := p.accept(other); no != nil {
		t.Errorf("another directory: %v", no)
	}
}

// An earlier process's hello may be read late, after the next process has come. That changes
// nothing: a process is not held to its own promises because of it.
func TestPromises_OfAProcessThatIsOver(t *testing.T) {
	p := newPromises(1, 1)
	run := func(start, term, last uint64) Identity {
		id := identity(3)
		id.Start, id.Run, id.Shards = start, 10+start, []ShardState{{Term: term, Last: last}}
		return id
	}
	ack := func(index uint64) []pb.Message {
		return []pb.Message{{Type: pb.ReplicateResp, ShardID: 1, Term: 1, LogIndex: index}}
	}
	first, second := run(1, 1, 10), run(2, 1, 20)
	if no := p.accept(second); no != nil {
		t.Fatal(no)
	}
	if no := p.accept(first); no == nil || !errors.Is(no, ErrForgot) && !errors.Is(no, ErrNotAccepted) {
		t.Errorf("a start that is over: %v", no)
	}
	p.note(&second, ack(25), time.Now())
	if no := p.accept(first); no == nil {
		t.Error("a start that is over is accepted")
	}
	if no := p.accept(second); no != nil {
		t.Errorf("it is held to what it promised itself: %v", no)
	}
	if no := p.accept(run(3, 1, 24)); !errors.Is(no, ErrForgot) {
		t.Errorf("the next one has forgotten: %v", no)
	}
	if no := p.accept(run(3, 1, 25)); no != nil {
		t.Errorf("the next one: %v", no)
	}
	if no := p.accept(run(2, 1, 25)); !errors.Is(no, ErrNotAccepted) {
		t.Errorf("the one before it: %v", no)
	}
}
