package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
)

func TestFirstProposalIsRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPipeRig(t)
		w := r.send("/a")
		r.want() // no leader yet
		r.lead(otherMember)
		register := r.want("register")
		if c := mustDecode(t, register[0].cmd); c.Origin != testOrigin() {
			t.Fatalf("registered %+v", c.Origin)
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
	p := newPipeline(command.HomeShard, log, clock.System(), testOrigin())
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
		if got := r.log.take(); len(got) != 1 || len(mustDecode(t, got[0].cmd).Requests) != secondBatchMin {
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
		r.sendMany(command.BatchMax+1, "b")
		r.log.take()
		r.apply(hold...)
		r.applyAll()
		if len(r.applied) != command.BatchMax+2 {
			t.Fatalf("%d requests applied", len(r.applied))
		}

		big := func(n int) *waiter {
			return newWaiter(nil, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Path: "/big", Data: make([]byte, n)}}})
		}
		small := r.send("/small")
		hold = r.log.take()
		for _, w := range []*waiter{big(command.BatchBytesMax / 2), big(command.BatchBytesMax / 2), big(2 * command.BatchBytesMax)} {
			if err := r.submit(w); err != nil {
				t.Fatal(err)
			}
		}
		r.apply(hold...)
		r.wantOutcome(small, nil)
		for range 3 {
			ps := r.log.take()
			if len(ps) != 1 || len(mustDecode(t, ps[0].cmd).Requests) != 1 {
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
		pass(droppedPoll) // so that both are in what is refused: an end goes ahead of what has not been tried
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
