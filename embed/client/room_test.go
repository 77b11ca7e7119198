package client

import (
	"container/list"
	"context"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// roomy returns a session without a connection, with reads that use up their room, further reads
// that wait, and some writes.
func roomy(t *testing.T, waiting, writing int) (s *session, reads, writes []*call) {
	t.Helper()
	k, err := New(Config{Servers: []string{"a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	s = newSession(k, embed.SessionOptions{})
	s.mu.frame = frameMax
	for range callsMax + waiting {
		c := pathCall(wire.OpGetData, "/a")
		c.patient = true
		s.enqueue(context.Background(), c)
		reads = append(reads, c)
	}
	for range writing {
		writes = append(writes, s.submit(context.Background(), []tree.Op{{Kind: tree.KindSet, Path: "/a"}}, nil, nil))
	}
	return s, reads, writes
}

// hide takes the calls out of lists, but leaves their elements, until show is called. Whoever looks
// at a call there panics.
func hide(lists ...*list.List) (show func()) {
	calls := make(map[*list.Element]any)
	for _, l := range lists {
		for at := l.Front(); at != nil; at = at.Next() {
			calls[at], at.Value = at.Value, nil
		}
	}
	return func() {
		for at, c := range calls {
			at.Value = c
		}
	}
}

// M160: callers of many calls give up at once. Each of them takes its own call away and looks at no
// other, except at the first two that wait. What is left keeps its order, and counts in its room.
func TestGiveUp_LooksAtNoOtherCall(t *testing.T) {
	const waiting, writing = 100, 10
	s, reads, writes := roomy(t, waiting, writing)
	giveUp := func(c *call) {
		t.Helper()
		show := hide(&s.mu.queue, &s.mu.waiting)
		first := s.mu.waiting.Front()
		first.Value, first.Next().Value = reads[callsMax], reads[callsMax+1]
		if !s.giveUp(c, context.Canceled) || !isDone(c) || c.err != context.Canceled {
			t.Errorf("a call cannot be given up: it is done: %v, its error: %v", isDone(c), c.err)
		}
		show()
	}
	giveUp(reads[callsMax+waiting/2])
	giveUp(writes[writing/2])
	giveUp(reads[callsMax/2]) // the first one that waits gets its room
	left := slices.Concat(reads[:callsMax/2], reads[callsMax/2+1:callsMax], writes[:writing/2], writes[writing/2+1:], reads[callsMax:callsMax+1])
	if s.mu.reads.calls != callsMax || s.mu.others.calls != writing-1 || s.mu.writes != writing-1 || s.mu.waiting.Len() != waiting-2 {
		t.Errorf("%d reads, %d others and %d writes have room, %d reads wait", s.mu.reads.calls, s.mu.others.calls, s.mu.writes, s.mu.waiting.Len())
	}
	for _, c := range left {
		if got := s.mu.queue.Remove(s.mu.queue.Front()); got != c {
			t.Fatal("the queue has lost its order")
		}
		c.at = s.mu.queue.PushBack(c)
	}
	all := slices.Concat(reads, writes)
	testkit.Rand(t).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, c := range all {
		_ = s.giveUp(c, context.Canceled)
	}
	if s.mu.queue.Len() != 0 || s.mu.waiting.Len() != 0 || s.mu.reads != (room{}) || s.mu.others != (room{}) || s.mu.writes != 0 {
		t.Errorf("all calls were given up, and %d are queued, %d wait: %+v, %+v", s.mu.queue.Len(), s.mu.waiting.Len(), s.mu.reads, s.mu.others)
	}
}

// M159: neither reads nor other calls use up the room of the others, and only reads wait.
func TestRoom_OfReadsAndOfOthers(t *testing.T) {
	s, reads, writes := roomy(t, 1, callsMax+1)
	for i, c := range writes {
		if refused := i == callsMax; isDone(c) != refused || refused && c.err != errFull {
			t.Fatalf("write %d is done: %v, with %v", i, isDone(c), c.err)
		}
	}
	if last := reads[callsMax]; last.stage != callWaiting {
		t.Errorf("a read beyond the room is in stage %d", last.stage)
	}
	s.giveUp(writes[0], context.Canceled)
	if last := reads[callsMax]; last.stage != callWaiting {
		t.Error("a read has the room of a write")
	}
	s.giveUp(reads[0], context.Canceled)
	if last := reads[callsMax]; last.stage != callQueued {
		t.Error("a read that waits has got no room")
	}
}
