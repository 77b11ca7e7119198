package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestBarrier_SeesWhatWasAcknowledgedElsewhere(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	for i := range 60 {
		cmd := fmt.Sprint(i)
		e.write(e.nodes[i%3], 1, cmd)
		reader := e.nodes[(i+1)%3]
		e.barrier(reader, 1)
		if reader.tapes[0].times(cmd) == 0 {
			t.Fatalf("member %d does not show %q after its barrier", reader.id, cmd)
		}
	}
}

// C14: The leadership is transferred all the time. Every barrier still ends, and its answer is
// correct.
func TestBarrier_SurvivesLeaderChanges(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var changes atomic.Int64
	wg.Go(func() {
		for {
			l := awaitLeader(t, e.nodes[0], 1)
			to := MemberID(l.Member%3 + 1)
			_, changed := e.nodes[0].host.shards[0].leadership()
			_ = e.node(l.Member).host.TransferLeader(1, to)
			select {
			case <-stop:
				return
			case <-changed:
				changes.Add(1)
			case <-time.After(20 * e.tick):
			}
		}
	})
	writes := 15
	if testkit.Night() {
		writes = 40
	}
	for i := 0; i < writes || changes.Load() < 3 && i < 10_000; i++ {
		cmd := fmt.Sprint(i)
		e.write(e.nodes[i%3], 1, cmd)
		reader := e.nodes[(i+1)%3]
		e.barrier(reader, 1)
		if reader.tapes[0].times(cmd) == 0 {
			t.Fatalf("member %d does not show %q after its barrier", reader.id, cmd)
		}
	}
	close(stop)
	wg.Wait()
	if n := changes.Load(); n < 3 {
		t.Errorf("%d changes of leader", n)
	}
}

// C14: When ReadIndex messages are lost, the barrier asks again.
func TestBarrier_SurvivesLostMessages(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	var lost atomic.Int64
	e.carrier.observe(func(_ string, b *raftpb.MessageBatch) {
		kept := b.Requests[:0]
		for _, m := range b.Requests {
			if m.Type == raftpb.ReadIndex && lost.Add(1)%3 != 0 {
				continue
			}
			kept = append(kept, m)
		}
		b.Requests = kept
	})
	asked := 0
	eventually(t, "barriers whose requests are lost", func() bool {
		leader := awaitLeader(t, e.nodes[0], 1) // perhaps another leader than before; the leader itself asks nobody
		e.barrier(e.nodes[leader.Member%3], 1)
		asked++
		return asked >= 3 && lost.Load() >= 6
	})
}

// C14: Many callers of a barrier cost few messages.
func TestBarrier_SharedByItsCallers(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	e.write(e.nodes[0], 1, "warm")
	leader := awaitLeader(t, e.nodes[0], 1)
	follower := e.nodes[leader.Member%3]
	const callers = 500
	var asked atomic.Int64
	var calling sync.WaitGroup
	calling.Add(callers)
	e.carrier.observe(func(_ string, b *raftpb.MessageBatch) {
		for _, m := range b.Requests {
			if m.Type == raftpb.ReadIndex {
				calling.Wait() // until then the first request is on its way, however slowly callers come
				asked.Add(1)
			}
		}
	})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			calling.Done()
			e.barrier(follower, 1)
		})
	}
	wg.Wait()
	if n := asked.Load(); n > callers/5 {
		t.Errorf("%d requests for %d callers", n, callers)
	}
}

func TestBarrier_Ends(t *testing.T) {
	e := found(t, 3, 1)
	n := e.nodes[0]
	e.start(n) // no quorum: a barrier cannot be served
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.host.Barrier(ctx, 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("ended ctx: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 5*e.tick)
	defer cancel()
	if err := n.host.Barrier(ctx, 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a quorum: %v", err)
	}
	if err := n.host.Barrier(context.Background(), 1, 5*e.tick); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a quorum, at the limit: %v", err)
	}
	if err := n.host.Barrier(context.Background(), 7, time.Minute); err == nil || !strings.Contains(err.Error(), "shard 7") {
		t.Errorf("shard that does not exist: %v", err)
	}
	host := n.host
	ended := make(chan error)
	go func() { ended <- host.Barrier(context.Background(), 1, time.Minute) }()
	eventually(t, "waiter", func() bool {
		b := &host.shards[0].barrier
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.mu.running
	})
	e.stop(n)
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("closed while waiting: %v", err)
	}
	if err := host.Barrier(context.Background(), 1, time.Minute); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A caller is never served by a request that was sent before the caller asked.
func TestBarrier_NotServedByAnEarlierRequest(t *testing.T) {
	var b barrier
	join := func() *round { r, _, _ := b.join(); return r }
	early, leaver := join(), join()
	rounds := b.collect(nil)
	late := join()
	b.leave(leaver)
	if len(rounds) != 1 || rounds[0] != early || late == early {
		t.Error("the late one waits for the early one's answer")
	}
	// It is lost; the next one serves both.
	rounds = b.collect(rounds)
	if len(rounds) != 2 || rounds[0] != early || rounds[1] != late {
		t.Errorf("%d rounds", len(rounds))
	}
	// A caller that has left does not keep the loop.
	b.leave(early)
	b.leave(late)
	b.leave(join())
	if len(b.collect(rounds)) != 0 || b.mu.running {
		t.Error("the loop does not end")
	}
}

// At the end all callers get the error: those in collected rounds, those in the next round, and
// later ones.
func TestBarrier_EndTellsEverybody(t *testing.T) {
	var b barrier
	collected, _, _ := b.join()
	rounds := b.collect(nil)
	waiting, _, _ := b.join()
	b.end(rounds, ErrFailed)
	for _, r := range []*round{collected, waiting} {
		select {
		case <-r.over:
			if r.err != ErrFailed {
				t.Errorf("the error is %v", r.err)
			}
		default:
			t.Error("a round is not over")
		}
	}
	if _, idle, err := b.join(); err != ErrFailed || idle {
		t.Errorf("a later caller: %v, starts a loop: %v", err, idle)
	}
}
