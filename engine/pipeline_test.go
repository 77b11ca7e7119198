package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"
)

// Whoever has to be told of an outcome is told once, when it is known, whatever it is.
func TestThenIsCalledOnce(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		s := &Session{at: make([]onShard, 1)}
		s.at[0].known.Store(true)
		told := make(map[string]int)
		telling := func(path string) *waiter {
			w := txnWaiter(s, path)
			w.then = func() {
				if !w.isDone() {
					t.Errorf("%s: told before it is known", path)
				}
				told[path]++
			}
			return w
		}
		send := func(path string) *waiter {
			w := telling(path)
			_ = r.submit(w)
			return w
		}
		r.take(telling("/inadmissible"), errRefused)
		send("/applied")
		sent := r.want("1: /applied")
		r.cancel(send("/cancelled"), ErrReleased)
		r.drop(send("/dropped"), ErrSessionMoved)
		send("/given up")
		r.apply(sent...)
		r.want("2: /given up")
		r.giveUp(ErrUnknownOutcome, s)
		send("/queued at the end")
		r.pipeline.close(ErrClosed)
		send("/refused")
		synctest.Wait()
		for _, path := range []string{"/inadmissible", "/applied", "/cancelled", "/dropped", "/given up", "/queued at the end", "/refused"} {
			if told[path] != 1 {
				t.Errorf("%s: told %d times", path, told[path])
			}
		}
	})
}

func TestCancelTakesOutWhatIsQueuedOnly(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		first := r.want("1: /sent")
		if r.cancel(sent, context.Canceled) {
			t.Fatal("a request that was sent was taken out")
		}
		if !r.cancel(queued, context.Canceled) {
			t.Fatal("a queued request was not taken out")
		}
		r.wantOutcome(queued, context.Canceled)
		r.send("/next")
		r.apply(first...)
		r.wantOutcome(sent, nil)
		r.want("2: /next")
		if r.cancel(sent, context.Canceled) || r.cancel(queued, context.Canceled) {
			t.Fatal("a request ended twice")
		}
	})
}

func TestNothingIsSentWhenAllWereTakenOut(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/sent")
		first := r.want("1: /sent")
		for _, w := range r.sendMany(secondBatchMin-1, "gone") {
			r.cancel(w, context.Canceled)
		}
		r.send("/here")
		r.want() // one waits, which is no second batch
		r.apply(first...)
		r.apply(r.want("2: /here")...)

		r.log.elect(0)
		r.cancel(r.send("/gone"), context.Canceled)
		r.lead(otherMember)
		r.want()
	})
}

// B4.2, B4.3: what was not proposed is certainly not applied, and says so; what was is unknown, for the reason of the ctx only
// if it was the ctx that ended.
func TestWaitTellsWhatMayStillHappen(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		first := r.want("1: /sent")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.wait(ctx, sent, time.Hour); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Fatalf("sent and cancelled: %v", err)
		}
		if err := r.wait(ctx, queued, time.Hour); err != context.Canceled || errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("queued and cancelled: %v", err)
		}
		late := r.send("/late")
		if err := r.wait(t.Context(), sent, time.Second); err != ErrUnknownOutcome {
			t.Fatalf("sent and out of time: %v", err)
		}
		if err := r.wait(t.Context(), late, time.Second); err != errNotSent || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("queued and out of time: %v", err)
		}
		r.log.take() // copies of the first batch
		r.apply(first...)
		if err := r.wait(ctx, sent, time.Hour); err != nil {
			t.Fatalf("applied: %v", err) // the truth, whatever the ctx says
		}
		r.want()
	})
}

// B4.4: the ctx of Submit says until when a transaction is taken, not for how long anybody waits: a caller that gives up has
// its contender's name from the true outcome, or could not delete it.
func TestSubmitsCtxBoundsAdmissionOnly(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		ctx, cancel := context.WithCancel(t.Context())
		sent := s.Submit(ctx, []tree.Op{create("/sent")})
		first := n.wantRequests("create /sent")
		queued := s.Submit(ctx, []tree.Op{create("/queued")})
		cancel()
		if err := outcome(s.Submit(ctx, []tree.Op{create("/late")}).waiter); err != context.Canceled {
			t.Fatalf("taken after the ctx has ended: %v", err)
		}
		n.apply(first...)
		n.apply(n.wantRequests("create /queued")...)
		for _, p := range []Pending{sent, queued} {
			if err := outcome(p.waiter); err != nil {
				t.Fatalf("outcome %v of what was applied", err)
			}
		}
	})
}

func TestDeadlineOfTheCtxReplacesTheLimit(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		w := r.send("/a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := r.wait(ctx, w, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if got := time.Since(start); got != time.Hour {
			t.Fatalf("waited %v", got)
		}
	})
}

// A10: a release that its caller stops waiting for still has to be sent: nobody else would free the lock.
func TestEndIsNeverTakenOut(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.elect(0)
		w := endWaiter("/end")
		r.queueEnd(w)
		r.pump()
		const beside = droppedPoll/2 + time.Second // or the loop may look between the two steps of lead, and send it twice
		if err := r.wait(t.Context(), w, beside); !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("outcome %v of an end that is still to be sent", err)
		}
		r.lead(otherMember)
		r.apply(r.want("1: /end")...)
		r.wantOutcome(w, nil)
	})
}

// B4.5: what a closed or failed node had proposed is unknown, the rest is not applied.
// (CURATOR-673, CURATOR-677: a call whose client was closed was never answered.)
func TestCloseTellsQueuedAndSentApart(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		end := endWaiter("/end")
		r.queueEnd(end)
		first := r.want("1: /sent")
		r.pipeline.close(ErrFailed)
		r.wantOutcome(sent, ErrUnknownOutcome)
		r.wantOutcome(queued, ErrFailed)
		r.wantOutcome(end, ErrFailed)
		r.apply(first...) // too late to change anything
		r.wantOutcome(sent, ErrUnknownOutcome)

		late := txnWaiter(nil, "/late")
		if err := r.submit(late); err != ErrFailed {
			t.Fatal(err)
		}
		lateEnd := endWaiter("/late")
		r.queueEnd(lateEnd)
		r.wantOutcome(lateEnd, ErrFailed)
		r.beat()
		r.leaderChanged()
		pass(time.Minute)
		r.want()
		r.pipeline.close(ErrClosed) // the first reason stays
		if err := r.submit(txnWaiter(nil, "/later")); err != ErrFailed {
			t.Fatal(err)
		}
	})
}

// The pipeline is closed in the moment in which a batch is about to be sealed.
func TestNothingIsSealedAfterClose(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.before = func() { r.pipeline.close(ErrClosed) }
		w := txnWaiter(nil, "/a")
		r.submit(w)
		r.want()
		r.wantOutcome(w, ErrClosed)
	})
}

// A10: a queue that is full for minutes keeps no lock taken.
func TestFullQueueRefusesRequestsButNoEnds(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.elect(0)
		queued := r.sendMany(queueMax, "a")
		over := txnWaiter(nil, "/over")
		if err := r.submit(over); err != errQueueFull || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("request %d: %v", queueMax+1, err)
		}
		r.wantOutcome(over, ErrUnavailable)
		r.queueEnd(endWaiter("/end"))
		r.beat()
		r.cancel(queued[0], context.Canceled)
		r.send("/room") // where one was taken out there is room
		r.lead(otherMember)
		synctest.Wait()
		first := mustDecode(t, r.log.take()[0].cmd)
		if len(first.Requests) != command.BatchMax || pathOf(first.Requests[0]) != "/end" || pathOf(first.Requests[1]) != "/a1" {
			t.Fatalf("%d requests in the first batch: %s …", len(first.Requests), describe(first)[:20])
		}
	})
}

// Requests that were given up must not hold the queue, nor their bytes the memory, until a leader is found.
func TestRequestsTakenOutLeaveNothingBehind(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.elect(0)
		kept := r.send("/kept")
		for i := range 4 * queueMax {
			w := r.send(fmt.Sprint("/", i))
			r.cancel(w, context.Canceled)
		}
		r.pipeline.mu.Lock()
		n, bytes := len(r.pipeline.mu.queue.rest), r.pipeline.mu.queue.live.bytes
		r.pipeline.mu.Unlock()
		if n > queueMax/8 || bytes != len(kept.wire) {
			t.Fatalf("one request waits, %d with %d bytes are kept", n, bytes)
		}
		r.lead(otherMember)
		r.want("1: /kept")
	})
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.elect(0)
		big := func() *waiter {
			return newWaiter(nil, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Path: "/big", Data: make([]byte, queueBytesMax/4)}}})
		}
		var ws []*waiter
		for range 3 {
			w := big()
			if err := r.submit(w); err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
		}
		if err := r.submit(big()); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		r.send("/small")
		r.cancel(ws[1], context.Canceled)
		if err := r.submit(big()); err != nil {
			t.Fatalf("after one was taken out: %v", err)
		}
	})
}

// A10: an end has room in the next batch, whatever waits before it.
func TestEndsGoFirst(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/sent")
		first := r.want("1: /sent")
		r.send("/a")
		r.queueEnd(endWaiter("/end1"))
		r.send("/b")
		r.queueEnd(endWaiter("/end2"))
		r.apply(first...)
		r.want("2: /end1 /end2 /a /b")
	})
}

// A request is given up while Raft refuses its batch: its caller was told, so it must not be sent after all.
func TestGivenUpWhileItsBatchIsRefused(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.log.refuse(errRefused)
		n.log.meanwhile(func() {
			n.log.meanwhile(nil)
			n.pipe.giveUp(ErrUnknownOutcome, s)
		})
		p := s.Submit(t.Context(), []tree.Op{create("/a")})
		if err := outcome(p.waiter); err != ErrUnknownOutcome {
			t.Fatal(err)
		}
		s.Submit(t.Context(), []tree.Op{create("/b")})
		n.log.refuse(nil)
		pass(droppedPoll)
		n.wantRequests("create /b")
	})
}

// Close of a session that nobody hears of leaves no request of it without an outcome.
func TestSessionCloseGivesUpWhatItCannotLearn(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		p := s.Submit(t.Context(), []tree.Op{create("/a")})
		n.log.take() // and it is lost
		n.lead(0)
		if err := s.Close(); err == nil {
			t.Error("Close without a quorum says nothing")
		}
		if !testkit.Closed(p.Done()) {
			t.Fatal("the request has no outcome")
		}
		if err := outcome(p.waiter); err != ErrUnknownOutcome {
			t.Error(err)
		}
	})
}

// What is of a session that the shard does not know waits outside, in its order, and keeps nobody else waiting.
func TestStrangersWaitOutside(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		invited := 0
		r.invite = func(*Session) { invited++ }
		s := &Session{at: make([]onShard, 1)}
		send := func(path string) *waiter {
			w := newWaiter(s, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
			_ = r.submit(w)
			return w
		}
		first, second := send("/1"), send("/2")
		r.send("/other")
		r.apply(r.want("1: /other")...)
		if !r.cancel(second, ErrReleased) || invited != 1 {
			t.Errorf("taken out: %v, invited %d times", outcome(second), invited)
		}
		r.turnAway(s, errRefused)
		r.wantOutcome(first, errRefused)
		r.wantOutcome(second, ErrReleased)

		send("/3")
		ended := send("/4")
		r.cancelSessions(ErrSessionExpired, &Session{})
		send("/5")
		r.cancel(ended, ErrReleased)
		if invited != 2 {
			t.Errorf("invited %d times, want once more after it was turned away", invited)
		}
		r.want()
		r.letIn(s)
		r.apply(r.want("2: /3 /5")...)
		send("/6")
		r.apply(r.want("3: /6")...)

		s.at[0].known.Store(false) // as another session
		all := []*waiter{send("/7")}
		for range queueMax - 1 {
			all = append(all, send("/many"))
		}
		if err := outcome(send("/too many")); !errors.Is(err, ErrUnavailable) {
			t.Errorf("beside %d outside: %v", len(all), err)
		}
		r.cancelSessions(ErrSessionExpired, s)
		r.wantOutcome(all[0], ErrSessionExpired)
		if n, kept := len(r.mu.queue.outside[s]), r.mu.queue.kept; n > tidyLen || kept != n {
			t.Errorf("%d that were taken out are still in the queue, which counts %d", n, kept)
		}
		r.turnAway(s, errRefused)
		r.wantOutcome(all[0], ErrSessionExpired)
		r.send("/room again")
		r.want("4: /room again")
	})
}
