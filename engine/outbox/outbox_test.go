package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Then is called once when the outcome is known, whatever the outcome is.
func TestThenIsCalledOnce(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := knownOwner(false)
		told := make(map[string]int)
		telling := func(path string) *Call {
			c := txnCall(s, path)
			c.Then = func() {
				if !c.IsDone() {
					t.Errorf("%s: Then was called before the outcome was known", path)
				}
				told[path]++
			}
			return c
		}
		send := func(path string) *Call {
			c := telling(path)
			_, _ = r.Submit(c)
			return c
		}
		r.Refuse(telling("/inadmissible"), enginetest.ErrRefused)
		send("/applied")
		sent := r.want("1: /applied")
		r.Cancel(send("/cancelled"), errTestEnd)
		r.Abandon(send("/dropped"), session.ErrMoved)
		send("/given up")
		r.apply(sent...)
		r.want("2: /given up")
		r.AbandonSent(ErrUnknownOutcome, s)
		send("/queued at the end")
		r.Outbox.Close(ErrClosed)
		send("/refused")
		synctest.Wait()
		for _, path := range []string{"/inadmissible", "/applied", "/cancelled", "/dropped", "/given up", "/queued at the end", "/refused"} {
			if told[path] != 1 {
				t.Errorf("%s: Then was called %d times", path, told[path])
			}
		}
	})
}

func TestCancelRemovesOnlyQueuedCalls(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		first := r.want("1: /sent")
		if r.Cancel(sent, context.Canceled) {
			t.Fatal("cancelled a call that was sent")
		}
		if !r.Cancel(queued, context.Canceled) {
			t.Fatal("did not cancel a queued call")
		}
		r.wantOutcome(queued, context.Canceled)
		r.send("/next")
		r.apply(first...)
		r.wantOutcome(sent, nil)
		r.want("2: /next")
		if r.Cancel(sent, context.Canceled) || r.Cancel(queued, context.Canceled) {
			t.Fatal("cancelled a call twice")
		}
	})
}

func TestNothingIsSentWhenAllCallsAreCancelled(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/sent")
		first := r.want("1: /sent")
		for _, c := range r.sendMany(SecondBatchMin-1, "gone") {
			r.Cancel(c, context.Canceled)
		}
		r.send("/here")
		r.want() // one call waits, which is too few for a second batch
		r.apply(first...)
		r.apply(r.want("2: /here")...)

		r.log.Elect(0)
		r.Cancel(r.send("/gone"), context.Canceled)
		r.lead(enginetest.Other)
		r.want()
	})
}

// B4.2, B4.3: a call that was not proposed is certainly not applied, and its error says so. The
// outcome of a proposed call is unknown. Its error names the ctx only if the ctx ended.
func TestWaitTellsWhatMayStillHappen(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		first := r.want("1: /sent")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Wait(ctx, sent, time.Hour); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Fatalf("sent and cancelled: %v", err)
		}
		if err := r.Wait(ctx, queued, time.Hour); err != context.Canceled || errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("queued and cancelled: %v", err)
		}
		late := r.send("/late")
		if err := r.Wait(t.Context(), sent, time.Second); err != ErrUnknownOutcome {
			t.Fatalf("sent and out of time: %v", err)
		}
		if err := r.Wait(t.Context(), late, time.Second); err != errNotSent || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("queued and out of time: %v", err)
		}
		r.log.Drain() // copies of the first batch
		r.apply(first...)
		if err := r.Wait(ctx, sent, time.Hour); err != nil {
			t.Fatalf("applied: %v", err) // the truth, even though ctx has ended
		}
		r.want()
	})
}

func TestDeadlineOfTheCtxReplacesTheLimit(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		c := r.send("/a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := r.Wait(ctx, c, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if got := time.Since(start); got != time.Hour {
			t.Fatalf("waited %v", got)
		}
	})
}

// A10: a release must be sent even if its caller has stopped waiting: nobody else would free the
// lock.
func TestEndIsNeverCancelled(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Elect(0)
		c := endCall("/end")
		r.QueueEnd(c)
		r.Pump()
		// A second and half an interval: otherwise Loop may look between the two steps of lead, and
		// send the end twice.
		const limit = PollInterval/2 + time.Second
		if err := r.Wait(t.Context(), c, limit); !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("outcome of an end that is still to be sent: %v", err)
		}
		r.lead(enginetest.Other)
		r.apply(r.want("1: /end")...)
		r.wantOutcome(c, nil)
	})
}

// A10: a session ends here while an end of its own is on its way. That end gets its true outcome.
func TestEndIsNeverAbandonedWithItsSession(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := knownOwner(false)
		r.send("/sent")
		first := r.want("1: /sent")
		c, end := r.sendOf(s, "/a"), releaseCall(s, "/end")
		r.QueueEnd(end)
		r.apply(first...)
		sent := r.want("2: /end /a")
		r.AbandonSent(errTestEnd, s)
		r.wantOutcome(c, errTestEnd)
		if end.IsDone() {
			t.Errorf("the end has the outcome %v before it is applied", end.Err)
		}
		r.apply(sent...)
		r.wantOutcome(end, nil)
		r.wantOutcome(c, errTestEnd)
	})
}

// A session is busy while a call of its has no outcome, wherever the call is.
func TestBusy(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := NewOwner(1, false)
		want := func(when string, busy bool) {
			t.Helper()
			if r.Busy(s) != busy {
				t.Errorf("%s: busy is %v", when, !busy)
			}
		}
		want("at first", false)
		r.sendOf(s, "/1")
		want("parked", true)
		r.NotIntroduced(s, enginetest.ErrRefused)
		want("not introduced", false)
		c := r.sendOf(s, "/2")
		r.Cancel(c, errTestEnd)
		want("cancelled", false)
		r.sendOf(s, "/3")
		r.Introduced(s)
		want("introduced", true)
		sent := r.want("1: /3")
		want("sent", true)
		r.apply(sent...)
		want("applied", false)
		r.QueueEnd(releaseCall(s, "/end"))
		want("an end", false)
	})
}

// terms are the Terms of a call in these tests.
type terms struct {
	held   error
	undone int
}

func (t *terms) Held() error { return t.held }
func (t *terms) Undo()       { t.undone++ }

// A call whose terms do not hold is not queued. One whose terms end later is sent all the same: what
// comes after them is queued behind it.
func TestTermsAreAskedBeforeACallIsQueued(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/sent")
		first := r.want("1: /sent")
		good, bad := &terms{}, &terms{held: errTestEnd}
		refused, queued := txnCall(nil, "/refused"), txnCall(nil, "/queued")
		refused.Terms, queued.Terms = bad, good
		if _, err := r.Submit(refused); err != errTestEnd {
			t.Errorf("the call is queued: %v", err)
		}
		if _, err := r.Submit(queued); err != nil {
			t.Errorf("the call is not queued: %v", err)
		}
		good.held = errTestEnd
		r.wantOutcome(refused, errTestEnd)
		r.apply(first...)
		r.apply(r.want("2: /queued")...)
		r.wantOutcome(queued, nil)
		if bad.undone != 1 || good.undone != 0 {
			t.Errorf("undone %d and %d times, want 1 and 0", bad.undone, good.undone)
		}
	})
}

// B4.5: if a node is closed or fails, the outcome of its proposed calls is unknown. Its other calls
// are not applied. (CURATOR-673, CURATOR-677: a call whose client was closed was never answered.)
func TestCloseTellsQueuedAndSentApart(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		sent, queued := r.send("/sent"), r.send("/queued")
		end := endCall("/end")
		r.QueueEnd(end)
		first := r.want("1: /sent")
		r.Outbox.Close(errTestEnd)
		r.wantOutcome(sent, ErrUnknownOutcome)
		r.wantOutcome(queued, errTestEnd)
		r.wantOutcome(end, errTestEnd)
		r.apply(first...) // too late to change anything
		r.wantOutcome(sent, ErrUnknownOutcome)

		late := txnCall(nil, "/late")
		if _, err := r.Submit(late); err != errTestEnd {
			t.Fatal(err)
		}
		lateEnd := endCall("/late")
		r.QueueEnd(lateEnd)
		r.wantOutcome(lateEnd, errTestEnd)
		r.Beat()
		r.LeaderChanged()
		enginetest.Pass(time.Minute)
		r.want()
		r.Outbox.Close(ErrClosed) // the first reason stays
		if _, err := r.Submit(txnCall(nil, "/later")); err != errTestEnd {
			t.Fatal(err)
		}
	})
}

// The outbox is closed just before it seals a batch.
func TestNothingIsSealedAfterClose(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.node.checkDeadlines = func() { r.Outbox.Close(ErrClosed) }
		c := txnCall(nil, "/a")
		r.Submit(c)
		r.want()
		r.wantOutcome(c, ErrClosed)
	})
}

// A10: a queue that is full for minutes keeps no lock held.
func TestFullQueueRefusesRequestsButNoEnds(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Elect(0)
		queued := r.sendMany(QueueMax, "a")
		over := txnCall(nil, "/over")
		if _, err := r.Submit(over); err != errQueueFull || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("request %d: %v", QueueMax+1, err)
		}
		r.wantOutcome(over, ErrUnavailable)
		r.QueueEnd(endCall("/end"))
		r.Beat()
		r.Cancel(queued[0], context.Canceled)
		r.send("/room") // the cancelled call has left room
		r.lead(enginetest.Other)
		synctest.Wait()
		first := enginetest.Decode(t, r.log.Drain()[0].Cmd)
		if len(first.Requests) != command.BatchMax || pathOf(first.Requests[0]) != "/end" || pathOf(first.Requests[1]) != "/a1" {
			t.Fatalf("%d requests in the first batch: %s …", len(first.Requests), describe(first)[:20])
		}
	})
}

// Cancelled calls must not fill the queue, nor their bytes the memory, until a leader is found.
func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Elect(0)
		kept := r.send("/kept")
		for i := range 4 * QueueMax {
			c := r.send(fmt.Sprint("/", i))
			r.Cancel(c, context.Canceled)
		}
		r.Outbox.mu.Lock()
		n, bytes := len(r.Outbox.mu.queue.back), r.Outbox.mu.queue.sendable.bytes
		r.Outbox.mu.Unlock()
		if n > QueueMax/8 || bytes != len(kept.Encoded) {
			t.Fatalf("one call waits, the queue keeps %d calls and counts %d bytes", n, bytes)
		}
		r.lead(enginetest.Other)
		r.want("1: /kept")
	})
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Elect(0)
		big := func() *Call {
			return NewCall(nil, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Path: "/big", Data: make([]byte, QueueBytesMax/4)}}})
		}
		var calls []*Call
		for range 3 {
			c := big()
			if _, err := r.Submit(c); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
		}
		if _, err := r.Submit(big()); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		r.send("/small")
		r.Cancel(calls[1], context.Canceled)
		if _, err := r.Submit(big()); err != nil {
			t.Fatalf("after one call was cancelled: %v", err)
		}
	})
}

// A10: an end has room in the next batch, whatever waits before it.
func TestEndsGoFirst(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/sent")
		first := r.want("1: /sent")
		r.send("/a")
		r.QueueEnd(endCall("/end1"))
		r.send("/b")
		r.QueueEnd(endCall("/end2"))
		r.apply(first...)
		r.want("2: /end1 /end2 /a /b")
	})
}

// Calls of a session that the shard does not know are parked in their order, and delay nobody else.
func TestCallsAreParkedUntilIntroduced(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		introductions := 0
		s := NewOwner(1, false)
		send := func(path string) *Call {
			c := NewCall(s, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
			if introduce, _ := r.Submit(c); introduce {
				introductions++
			}
			return c
		}
		first, second := send("/1"), send("/2")
		r.send("/other")
		r.apply(r.want("1: /other")...)
		if !r.Cancel(second, errTestEnd) || introductions != 1 {
			t.Errorf("outcome of the cancelled call: %v; %d introductions, want 1", outcomeOf(second), introductions)
		}
		r.NotIntroduced(s, enginetest.ErrRefused)
		r.wantOutcome(first, enginetest.ErrRefused)
		r.wantOutcome(second, errTestEnd)

		send("/3")
		ended := send("/4")
		r.CancelQueued(session.ErrExpired, NewOwner(1, false))
		send("/5")
		r.Cancel(ended, errTestEnd)
		if introductions != 2 {
			t.Errorf("%d introductions, want 2: one more after the first failed", introductions)
		}
		r.want()
		r.Introduced(s)
		r.apply(r.want("2: /3 /5")...)
		send("/6")
		r.apply(r.want("3: /6")...)

		s.shards[0].known.Store(false) // stands for another session
		all := []*Call{send("/7")}
		for range QueueMax - 1 {
			all = append(all, send("/many"))
		}
		if err := outcomeOf(send("/too many")); !errors.Is(err, ErrUnavailable) {
			t.Errorf("with %d parked calls: %v", len(all), err)
		}
		r.CancelQueued(session.ErrExpired, s)
		r.wantOutcome(all[0], session.ErrExpired)
		if n, kept := len(r.mu.queue.parked[s]), r.mu.queue.parkedLen; n > compactMin || kept != n {
			t.Errorf("%d cancelled calls are still parked, parkedLen is %d", n, kept)
		}
		r.NotIntroduced(s, enginetest.ErrRefused)
		r.wantOutcome(all[0], session.ErrExpired)
		r.send("/room again")
		r.want("4: /room again")
	})
}
