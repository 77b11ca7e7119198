package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// An acceptor is the part of a machine that a pipeline lives by: it accepts batches in their place and answers them.
type acceptor struct {
	pipe    *pipeline
	table   *session.Table
	applied []string // the paths of the requests, in order
	answer  error    // of every request
}

func (a *acceptor) apply(c command) session.Verdict {
	own := c.origin.Member == a.pipe.register.Member && c.origin.Start == a.pipe.register.Start
	if c.kind == commandRegister {
		if _, err := a.table.Register(c.origin); err == nil && own {
			a.pipe.done(a.pipe.head(0))
		}
		return session.Accepted
	}
	v := a.table.Accept(c.origin.Member, c.origin.Start, c.origin.LastSeq)
	switch {
	case v == session.Gap && own:
		a.pipe.refused()
	case v == session.Accepted:
		var b *batch
		if own {
			b = a.pipe.head(c.origin.LastSeq)
		}
		for i, r := range c.requests {
			a.applied = append(a.applied, pathOf(r))
			a.pipe.complete(b, i, nil, 0, a.answer)
		}
		a.pipe.done(b)
	}
	return v
}

func pathOf(r request) string {
	if r.kind == requestRelease {
		return r.path
	}
	return r.ops[0].Path
}

// A pipeRig is a pipeline on a log that the test holds, in a bubble.
type pipeRig struct {
	*pipeline
	*acceptor
	t     *testing.T
	log   *fakeLog
	clock *fakeClock
}

// withPipeline runs fn in a bubble with a registered pipeline; another member leads.
func withPipeline(t *testing.T, fn func(t *testing.T, r *pipeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newPipeRig(t)
		r.lead(otherMember)
		r.applyAll()
		fn(t, r)
	})
}

func newPipeRig(t *testing.T) *pipeRig {
	r := &pipeRig{t: t, log: &fakeLog{}, clock: newFakeClock()}
	r.pipeline = newPipeline(homeShard, r.log, r.clock.clock(), testOrigin())
	r.acceptor = &acceptor{pipe: r.pipeline, table: session.NewTable()}
	go r.loop()
	t.Cleanup(func() { r.pipeline.close(ErrClosed) })
	return r
}

// lead changes the leader and tells the pipeline.
func (r *pipeRig) lead(m replication.MemberID) {
	r.log.elect(m)
	r.leaderChanged()
	synctest.Wait()
}

// apply delivers proposals in order.
func (r *pipeRig) apply(ps ...*fakeProposal) {
	for _, p := range ps {
		r.acceptor.apply(mustDecode(r.t, p.cmd))
	}
	synctest.Wait()
}

// applyAll delivers what is proposed until nothing more is.
func (r *pipeRig) applyAll() {
	synctest.Wait()
	for {
		ps := r.log.take()
		if len(ps) == 0 {
			return
		}
		r.apply(ps...)
	}
}

func txnWaiter(s *Session, path string) *waiter {
	return newWaiter(s, &request{kind: requestTxn, session: 1, ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
}

func endWaiter(path string) *waiter {
	return newWaiter(nil, &request{kind: requestRelease, session: 1, path: path, czxid: 1})
}

// send submits a request that must be taken.
func (r *pipeRig) send(path string) *waiter {
	r.t.Helper()
	w := txnWaiter(nil, path)
	if err := r.submit(w); err != nil {
		r.t.Fatalf("submit %s: %v", path, err)
	}
	return w
}

func (r *pipeRig) sendMany(n int, prefix string) []*waiter {
	var ws []*waiter
	for i := range n {
		ws = append(ws, r.send(fmt.Sprintf("/%s%d", prefix, i)))
	}
	return ws
}

// want checks what was proposed since the last look: for each batch its seq and the paths in it.
func (r *pipeRig) want(batches ...string) []*fakeProposal {
	r.t.Helper()
	synctest.Wait()
	ps := r.log.take()
	var got []string
	for _, p := range ps {
		got = append(got, describe(mustDecode(r.t, p.cmd)))
	}
	if !slices.Equal(got, batches) {
		r.t.Fatalf("proposed %q, want %q", got, batches)
	}
	return ps
}

// describe is a batch as these tests write it: "2: /a /b".
func describe(c command) string {
	if c.kind == commandRegister {
		return "register"
	}
	s := fmt.Sprintf("%d:", c.origin.LastSeq)
	for _, q := range c.requests {
		s += " " + pathOf(q)
	}
	return s
}

func outcome(w *waiter) error {
	select {
	case <-w.done:
		return w.err
	default:
		return errors.New("waiting")
	}
}

func (r *pipeRig) wantOutcome(w *waiter, want error) {
	r.t.Helper()
	synctest.Wait()
	if got := outcome(w); !errors.Is(got, want) {
		r.t.Fatalf("outcome %v, want %v", got, want)
	}
}

func TestFirstProposalIsRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPipeRig(t)
		w := r.send("/a")
		r.want() // no leader yet
		r.lead(otherMember)
		register := r.want("register")
		if c := mustDecode(t, register[0].cmd); c.origin != testOrigin() {
			t.Fatalf("registered %+v", c.origin)
		}
		r.apply(register...)
		r.apply(r.want("1: /a")...)
		r.wantOutcome(w, nil)
		select {
		case <-r.ready:
		default:
			t.Fatal("registered, and not ready")
		}
	})
}

func TestLoneRequestGoesOutAtOnce(t *testing.T) {
	log := &fakeLog{}
	p := newPipeline(homeShard, log, SystemClock(), testOrigin())
	p.mu.registered = true
	log.elect(otherMember)
	// No loop runs: the request goes out on this goroutine, in this call.
	if err := p.submit(txnWaiter(nil, "/a")); err != nil {
		t.Fatal(err)
	}
	if got := len(log.take()); got != 1 {
		t.Fatalf("%d batches proposed", got)
	}
}

func TestRequestsCoalesceWhileABatchIsInFlight(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/a")
		first := r.want("1: /a")
		r.sendMany(3, "b")
		r.want()
		r.apply(first...)
		r.want("2: /b0 /b1 /b2")
	})
}

// Clients elsewhere who were in one batch are waited for, or the first who comes back would travel alone: for a part of what a commit
// takes after the last one, and not by an end.
func TestClientsElsewhereTravelTogether(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		s := &Session{at: make([]onShard, 1), remote: &remote{}}
		s.at[0].known.Store(true)
		send := func(paths ...string) {
			for _, path := range paths {
				if err := r.submit(txnWaiter(s, path)); err != nil {
					t.Fatal(err)
				}
			}
		}
		const commit = 8 * time.Millisecond
		land := func(sent []*fakeProposal) {
			pass(commit)
			r.apply(sent...)
		}
		for range 100 { // until it is known what a commit takes
			send("/first")
			land(r.log.take())
		}
		seq := r.mu.seq
		want := func(paths string) []*fakeProposal {
			t.Helper()
			seq++
			return r.want(fmt.Sprintf("%d: %s", seq, paths))
		}
		send("/a")
		sent := want("/a") // alone, as before: nobody is waited for
		send("/b", "/c")
		land(sent)
		r.want()
		send("/a")
		land(want("/b /c /a"))

		send("/a")
		pass(commit/holdParts - time.Millisecond)
		r.want()
		send("/b")
		pass(time.Millisecond)
		land(want("/a /b")) // one did not come back

		pass(commit/holdParts - time.Millisecond)
		send("/a")
		r.want()
		r.queueEnd(endWaiter("/end"))
		r.pump()
		land(want("/end /a"))

		pass(commit / holdParts)
		send("/a") // nobody is waited for any more
		sent = want("/a")
		r.sendMany(2, "here")
		land(sent)
		pass(commit / holdParts)
		sent = want("/here0 /here1")
		r.send("/here2")
		land(sent)
		want("/here2") // who calls here is waited for by gather alone
	})
}

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

func TestCallersShareOneStreamWithoutGaps(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		const callers, calls = 16, 50
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range calls {
					w := txnWaiter(nil, fmt.Sprintf("/%d/%d", c, i))
					if err := r.submit(w); err != nil {
						t.Error(err)
						return
					}
					if i%7 == 0 {
						<-w.done
					}
				}
			})
		}
		r.applyAll()
		wg.Wait()
		r.applyAll()
		if len(r.applied) != callers*calls {
			t.Fatalf("%d requests applied", len(r.applied))
		}
		next := make(map[string]int)
		for _, path := range r.applied {
			var c, i int
			fmt.Sscanf(path, "/%d/%d", &c, &i)
			if caller := fmt.Sprint(c); next[caller] != i {
				t.Fatalf("caller %d: request %d applied, want %d", c, i, next[caller])
			} else {
				next[caller]++
			}
		}
		if o, _ := r.table.Origin(testMember); o.LastSeq != r.pipeline.mu.seq {
			t.Fatalf("batch %d accepted, %d sealed", o.LastSeq, r.pipeline.mu.seq)
		}
	})
}

func TestSecondBatchGoesOutBesideTheFirst(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/a")
		r.sendMany(secondBatchMin-1, "b")
		r.want("1: /a")
		r.send("/c")
		if got := r.log.take(); len(got) != 1 || len(mustDecode(t, got[0].cmd).requests) != secondBatchMin {
			t.Fatalf("with %d waiting, %d batches went out", secondBatchMin, len(got))
		}
		r.sendMany(2*secondBatchMin, "d")
		r.want() // two in flight are enough
	})
}

func TestBatchIsBounded(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		first := r.send("/a")
		_ = first
		hold := r.want("1: /a")
		r.sendMany(batchMax+1, "b")
		r.log.take()
		r.apply(hold...)
		r.applyAll()
		if len(r.applied) != batchMax+2 {
			t.Fatalf("%d requests applied", len(r.applied))
		}

		big := func(n int) *waiter {
			return newWaiter(nil, &request{kind: requestTxn, ops: []tree.Op{{Path: "/big", Data: make([]byte, n)}}})
		}
		small := r.send("/small")
		hold = r.log.take()
		for _, w := range []*waiter{big(batchBytesMax / 2), big(batchBytesMax / 2), big(2 * batchBytesMax)} {
			if err := r.submit(w); err != nil {
				t.Fatal(err)
			}
		}
		r.apply(hold...)
		r.wantOutcome(small, nil)
		for range 3 {
			ps := r.log.take()
			if len(ps) != 1 || len(mustDecode(t, ps[0].cmd).requests) != 1 {
				t.Fatalf("%d batches", len(ps))
			}
			r.apply(ps...)
		}
	})
}

func TestRefusedProposalKeepsItsPlace(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.refuse(errRefused)
		a, b := r.send("/a"), r.send("/b")
		r.queueEnd(endWaiter("/end"))
		pass(time.Second)
		r.want()
		if !r.cancel(a, context.Canceled) {
			t.Fatal("a request of a refused batch cannot be taken out")
		}
		r.log.refuse(nil)
		pass(droppedPoll)
		r.apply(r.want("1: /b /end")...)
		r.wantOutcome(a, context.Canceled)
		r.wantOutcome(b, nil)
		r.send("/c")
		r.want("2: /c")
	})
}

func TestNothingIsSentWithoutALeader(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/a")
		inflight := r.want("1: /a")
		r.lead(0)
		r.send("/b")
		pass(time.Minute)
		r.want()
		r.lead(testMember)
		again := r.want("1: /a")
		if !bytes.Equal(again[0].cmd, inflight[0].cmd) {
			t.Fatal("the batch that was sent again is another one")
		}
		r.apply(again...)
		r.apply(inflight...) // the first copy was not lost after all
		r.apply(r.want("2: /b")...)
		if want := []string{"/a", "/b"}; !slices.Equal(r.applied, want) {
			t.Fatalf("applied %q, want %q", r.applied, want)
		}
	})
}

// twoInFlight fills the window and returns what was proposed.
func (r *pipeRig) twoInFlight() []*fakeProposal {
	r.send("/a")
	r.sendMany(secondBatchMin, "b")
	synctest.Wait()
	ps := r.log.take()
	if len(ps) != 2 {
		r.t.Fatalf("%d batches in flight", len(ps))
	}
	return ps
}

func (r *pipeRig) wantSame(want []*fakeProposal) []*fakeProposal {
	r.t.Helper()
	synctest.Wait()
	got := r.log.take()
	if !slices.EqualFunc(got, want, func(a, b *fakeProposal) bool { return bytes.Equal(a.cmd, b.cmd) }) {
		r.t.Fatalf("%d batches sent again, not the %d as they were", len(got), len(want))
	}
	return got
}

func TestChangeOfLeaderResendsAllInOrder(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		r.lead(otherMember) // the same member, another term
		r.apply(r.wantSame(lost)...)
		pass(time.Minute)
		r.want()
	})
}

func TestDroppedProposalResendsAllInOrder(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		lost[1].dropped.Store(true)
		pass(droppedPoll)
		again := r.wantSame(lost)
		pass(droppedPoll)
		r.want() // the new proposals were not dropped
		r.apply(again...)
	})
}

func TestGapResendsAllInOrder(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		r.apply(lost[1])
		r.apply(r.wantSame(lost)...)
		if got := len(r.applied); got != 1+secondBatchMin {
			t.Fatalf("%d requests applied", got)
		}
	})
}

func TestResendThatIsRefusedIsTriedAgain(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		r.log.refuse(errRefused)
		r.leaderChanged()
		pass(time.Second)
		r.log.refuse(nil)
		pass(droppedPoll)
		r.wantSame(lost)
	})
}

// B3.1: a disk that stalls has every copy to sync as well, and gets slower by them.
func TestTimerResendsTheOldestAlone(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		start := time.Now()
		pass(20 * time.Second)
		var waits []time.Duration
		last := start
		for _, p := range r.log.take() {
			if !bytes.Equal(p.cmd, lost[0].cmd) {
				t.Fatalf("%s was sent again", describe(mustDecode(t, p.cmd))[:2])
			}
			waits = append(waits, p.at.Sub(last))
			last = p.at
		}
		patience := resendFirstMin
		for i, w := range waits {
			// The loop looks every droppedPoll.
			if w < patience || w > patience+2*droppedPoll {
				t.Fatalf("copy %d after %v, want %v", i, w, patience)
			}
			patience = min(2*patience, resendMax)
		}
		if patience != resendMax {
			t.Fatalf("waited %v", waits)
		}
	})
}

// A link is cut for most of a session's timeout and loses every copy of the batch that is on its way. When it is whole again
// the next copy must not come so late that the session has expired.
func TestTimerResendsWithinAPulse(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		const pulse = 300 * time.Millisecond
		r.pulse = func() time.Duration { return pulse }
		r.send("/a")
		r.want("1: /a")
		pass(10 * time.Second)
		copies := r.log.take()
		for i, p := range copies[1:] {
			if w := p.at.Sub(copies[i].at); w > pulse+2*droppedPoll {
				t.Fatalf("copy %d after %v, want %v at most", i+2, w, pulse)
			}
		}
		if most := int(10*time.Second/pulse) + 5; len(copies) > most {
			t.Fatalf("%d copies, want %d at most", len(copies), most)
		}
	})
}

// B3.1: commits that take long are no sign of loss.
func TestPatienceFollowsTheCommitTime(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		for i := range 50 {
			r.send(fmt.Sprint("/", i))
			ps := r.log.take()
			pass(200 * time.Millisecond)
			r.apply(ps...)
			r.log.take()
		}
		start := time.Now()
		r.send("/slow")
		r.log.take()
		pass(2 * time.Second)
		if ps := r.log.take(); len(ps) == 0 || ps[0].at.Sub(start) < 750*time.Millisecond {
			t.Fatalf("sent again %v after a commit that takes 200ms", ps[0].at.Sub(start))
		}
	})
}

// B3.2: an entry in a leader's own log cannot be lost without a change of term, and every copy would be another fsync.
func TestTimerIsOffWhileThisNodeLeads(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.lead(testMember)
		r.twoInFlight()
		pass(time.Minute)
		r.want()
	})
}

// B3.1: a refused copy is no evidence that anything was lost.
func TestRefusedTimedResendStaysAlone(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		lost := r.twoInFlight()
		r.log.refuse(errRefused)
		pass(time.Second)
		r.log.refuse(nil)
		pass(50 * time.Millisecond)
		for _, p := range r.log.take() {
			if !bytes.Equal(p.cmd, lost[0].cmd) {
				t.Fatal("a batch was sent again that nothing says was lost")
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
		if err := r.wait(t.Context(), late, time.Second); err != ErrUnavailable {
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
		if err := r.submit(over); err != ErrUnavailable {
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
		if len(first.requests) != batchMax || pathOf(first.requests[0]) != "/end" || pathOf(first.requests[1]) != "/a1" {
			t.Fatalf("%d requests in the first batch: %s …", len(first.requests), describe(first)[:20])
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
			return newWaiter(nil, &request{kind: requestTxn, ops: []tree.Op{{Path: "/big", Data: make([]byte, queueBytesMax/4)}}})
		}
		var ws []*waiter
		for range 3 {
			w := big()
			if err := r.submit(w); err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
		}
		if err := r.submit(big()); err != ErrUnavailable {
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

func TestBeatIsAnEmptyBatch(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		var proofs []time.Duration
		r.proved = func(sent, _ time.Duration) { proofs = append(proofs, sent) }
		at := r.clock.boot()
		r.beat()
		beat := r.want("1:")
		pass(time.Second)
		r.log.take() // a copy
		r.apply(beat...)
		if len(proofs) != 1 || proofs[0] != at {
			t.Fatalf("proofs %v, want the first sending %v", proofs, at)
		}
	})
}

// A5: a node that does not see its batches applied must not go on proving itself alive.
func TestNoBeatWhileABatchIsInFlight(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/a")
		first := r.want("1: /a")
		r.beat()
		r.want()
		r.apply(first...)
		pass(time.Second)
		r.want() // nor afterwards: the batch was proof enough
		r.beat()
		r.want("2:")
		r.beat()
		r.want()
	})
}

func TestRequestTakesThePlaceOfABeat(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.log.elect(0)
		r.beat()
		r.send("/a")
		r.lead(otherMember)
		r.apply(r.want("1: /a")...)
		r.want()
	})
}

// A2: a resend does not move the moment that the sessions live by.
func TestProofIsTheFirstSending(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		var proof time.Duration
		r.proved = func(sent, _ time.Duration) { proof = sent }
		at := r.clock.boot()
		w := r.send("/a")
		r.want("1: /a")
		pass(5 * time.Second)
		r.lead(otherMember)
		synctest.Wait()
		copies := r.log.take()
		r.apply(copies[len(copies)-1])
		r.wantOutcome(w, nil)
		if proof != at || w.sent != at {
			t.Fatalf("proof %v, outcome sent at %v, want %v", proof, w.sent, at)
		}
	})
}

func TestRefusedBatchIsNoSending(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		var proof time.Duration
		r.proved = func(sent, _ time.Duration) { proof = sent }
		r.log.refuse(errRefused)
		r.send("/a")
		pass(time.Second)
		r.log.refuse(nil)
		r.pump()
		at := r.clock.boot()
		r.apply(r.want("1: /a")...)
		if proof != at {
			t.Fatalf("proof %v, want %v", proof, at)
		}
	})
}

// B2: a snapshot carries the stream past a batch that waits: nobody will say what it answered.
func TestJumpEndsWhatItPassedAndNothingElse(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		a := r.send("/a")
		b := r.sendMany(secondBatchMin, "b")
		c := r.send("/c")
		synctest.Wait()
		ps := r.log.take()
		// A snapshot holds batch 1: the table of this node begins there.
		r.table = session.NewTable()
		o := testOrigin()
		o.LastSeq = 1
		r.table.LoadOrigin(o)
		r.jumped(1)()
		r.wantOutcome(a, ErrUnknownOutcome)
		r.apply(ps...) // batch 1 is a repeat now
		r.wantOutcome(b[0], nil)
		r.wantOutcome(a, ErrUnknownOutcome)
		r.apply(r.want("3: /c")...)
		r.wantOutcome(c, nil)
		if slices.Contains(r.applied, "/a") {
			t.Fatal("applied again what the snapshot held")
		}
	})
}

func TestJumpCarriesTheRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPipeRig(t)
		r.lead(otherMember)
		r.want("register")
		r.table.LoadOrigin(testOrigin())
		r.jumped(0)()
		r.send("/a")
		r.want("1: /a")
	})
}

// A commit that took minutes, because the machine slept or there was no quorum, says nothing about the next one.
func TestPatienceIsBoundedAfterALongCommit(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		r.send("/a")
		sent := r.want("1: /a")
		r.clock.pause(10 * time.Minute)
		r.apply(sent...)
		r.send("/b")
		r.want("2: /b") // and it is lost on its way
		pass(resendMax + droppedPoll)
		r.want("2: /b")
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
		if !isClosed(p.Done()) {
			t.Fatal("the request has no outcome")
		}
		if err := outcome(p.waiter); err != ErrUnknownOutcome {
			t.Error(err)
		}
	})
}

// A beat that Raft does not take is tried again now and then, and costs nothing in between.
func TestBeatThatIsRefusedDoesNotSpin(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		asked := 0
		var count func()
		count = func() {
			if asked++; asked == 1000 {
				r.log.refuse(nil) // or nothing else would ever happen
			}
			r.log.meanwhile(count)
		}
		r.log.meanwhile(count)
		r.log.refuse(errRefused)
		r.beat()
		pass(time.Second)
		if most := int(time.Second/droppedPoll) + 2; asked < 2 || asked > most {
			t.Errorf("Raft was asked %d times in a second, want 2 to %d", asked, most)
		}
		r.log.refuse(nil)
		pass(2 * droppedPoll)
		r.want("1:")
	})
}

// What is of a session that the shard does not know waits outside, in its order, and keeps nobody else waiting.
func TestStrangersWaitOutside(t *testing.T) {
	withPipeline(t, func(t *testing.T, r *pipeRig) {
		invited := 0
		r.invite = func(*Session) { invited++ }
		s := &Session{at: make([]onShard, 1)}
		send := func(path string) *waiter {
			w := newWaiter(s, &request{kind: requestTxn, ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
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
		if err := outcome(send("/too many")); err != ErrUnavailable {
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
