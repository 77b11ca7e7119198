package outbox

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/tree"
)

func TestFirstProposalIsRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, command.HomeShard)
		call := r.send("/a")
		r.want() // no leader yet
		r.lead(enginetest.Other)
		register := r.want("register")
		if c := enginetest.Decode(t, register[0].Cmd); !reflect.DeepEqual(c.Origin, enginetest.Origin()) {
			t.Fatalf("registered %+v", c.Origin)
		}
		r.apply(register...)
		r.apply(r.want("1: /a")...)
		r.wantOutcome(call, nil)
		select {
		case <-r.Ready:
		default:
			t.Fatal("Ready is open after Register was applied")
		}
	})
}

func TestLoneCallIsSentAtOnce(t *testing.T) {
	log := &enginetest.Log{}
	o := New(command.HomeShard, log, clock.System(), enginetest.Origin(), command.Rules{}, &stubNode{})
	o.mu.registration = registered
	log.Elect(enginetest.Other)
	// No Loop runs: Submit itself proposes the batch, on this goroutine.
	if _, err := o.Submit(txnCall(nil, "/a")); err != nil {
		t.Fatal(err)
	}
	if got := len(log.Drain()); got != 1 {
		t.Fatalf("%d batches proposed", got)
	}
}

func TestCallsCoalesceWhileABatchIsInFlight(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		first := r.want("1: /a")
		r.sendMany(3, "b")
		r.want()
		r.apply(first...)
		r.want("2: /b0 /b1 /b2")
	})
}

// Remote clients whose calls were in one batch are waited for, or the first to come back would
// travel alone. The wait lasts for a part of the commit time. An end is sent without it.
func TestRemoteClientsShareABatch(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := knownOwner(true)
		send := func(paths ...string) {
			for _, path := range paths {
				if _, err := r.Submit(txnCall(s, path)); err != nil {
					t.Fatal(err)
				}
			}
		}
		const commit = 8 * time.Millisecond
		deliver := func(sent []*enginetest.Proposal) {
			enginetest.Pass(commit)
			r.apply(sent...)
		}
		for range 100 { // until the outbox knows how long a commit takes
			send("/first")
			deliver(r.log.Drain())
		}
		seq := r.mu.seq
		want := func(paths string) []*enginetest.Proposal {
			t.Helper()
			seq++
			return r.want(fmt.Sprintf("%d: %s", seq, paths))
		}
		send("/a")
		sent := want("/a") // alone: nobody is waited for yet
		send("/b", "/c")
		deliver(sent)
		r.want()
		send("/a")
		deliver(want("/b /c /a"))

		send("/a")
		enginetest.Pass(commit/remoteWaitParts - time.Millisecond)
		r.want()
		send("/b")
		enginetest.Pass(time.Millisecond)
		sent = want("/a /b") // one client did not come back

		send("/a")
		deliver(sent)
		enginetest.Pass(commit/remoteWaitParts - time.Millisecond)
		r.want() // for the other two
		r.QueueEnd(endCall("/end"))
		r.Pump()
		deliver(want("/end /a"))

		enginetest.Pass(commit / remoteWaitParts)
		send("/a") // the wait is over
		sent = want("/a")
		r.sendMany(2, "here")
		deliver(sent)
		enginetest.Pass(commit / remoteWaitParts)
		sent = want("/here0 /here1")
		r.send("/here2")
		deliver(sent)
		want("/here2") // only gather waits for callers in this process
	})
}

func TestCallersShareOneStreamWithoutGaps(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		const callers, calls = 16, 50
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range calls {
					call := txnCall(nil, fmt.Sprintf("/%d/%d", c, i))
					if _, err := r.Submit(call); err != nil {
						t.Error(err)
						return
					}
					if i%7 == 0 {
						<-call.Done
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
		if o, _ := r.table.Origin(enginetest.Member); o.LastSeq != r.Outbox.mu.seq {
			t.Fatalf("batch %d accepted, %d sealed", o.LastSeq, r.Outbox.mu.seq)
		}
	})
}

func TestSecondBatchGoesOutBesideTheFirst(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		r.sendMany(SecondBatchMin-1, "b")
		r.want("1: /a")
		r.send("/c")
		if got := r.log.Drain(); len(got) != 1 || len(enginetest.Decode(t, got[0].Cmd).Requests) != SecondBatchMin {
			t.Fatalf("with %d calls waiting, %d batches were proposed", SecondBatchMin, len(got))
		}
		r.sendMany(2*SecondBatchMin, "d")
		r.want() // two in flight are enough
	})
}

func TestBatchIsBounded(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		inFlight := r.want("1: /a")
		r.sendMany(command.BatchMax+1, "b")
		r.log.Drain()
		r.apply(inFlight...)
		r.applyAll()
		if len(r.applied) != command.BatchMax+2 {
			t.Fatalf("%d requests applied", len(r.applied))
		}

		big := func(n int) *Call {
			return NewCall(nil, &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{{Path: "/big", Data: make([]byte, n)}}})
		}
		small := r.send("/small")
		inFlight = r.log.Drain()
		for _, c := range []*Call{big(command.BatchBytesMax / 2), big(command.BatchBytesMax / 2), big(2 * command.BatchBytesMax)} {
			if _, err := r.Submit(c); err != nil {
				t.Fatal(err)
			}
		}
		r.apply(inFlight...)
		r.wantOutcome(small, nil)
		for range 3 {
			ps := r.log.Drain()
			if len(ps) != 1 || len(enginetest.Decode(t, ps[0].Cmd).Requests) != 1 {
				t.Fatalf("%d batches", len(ps))
			}
			r.apply(ps...)
		}
	})
}

func TestRefusedProposalKeepsItsPlace(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Refuse(enginetest.ErrRefused)
		a, b := r.send("/a"), r.send("/b")
		// Now Raft refuses a batch with both calls. An end goes ahead only of calls in the queue.
		enginetest.Pass(PollInterval)
		r.QueueEnd(endCall("/end"))
		enginetest.Pass(time.Second)
		r.want()
		if !r.Cancel(a, context.Canceled) {
			t.Fatal("cannot cancel a call of a refused batch")
		}
		r.log.Refuse(nil)
		enginetest.Pass(PollInterval)
		r.apply(r.want("1: /b /end")...)
		r.wantOutcome(a, context.Canceled)
		r.wantOutcome(b, nil)
		r.send("/c")
		r.want("2: /c")
	})
}

// Raft refuses a batch, and what was in it goes ahead again. Of the session's next calls, its release
// overtakes none.
func TestReleaseAfterARefusedProposalOvertakesNothing(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := knownOwner(false)
		r.log.Refuse(enginetest.ErrRefused)
		r.sendOf(s, "/a")
		enginetest.Pass(PollInterval)
		r.QueueRelease(releaseCall(s, "/first"))
		r.log.Refuse(nil)
		enginetest.Pass(PollInterval)
		inflight := r.want("1: /a /first")
		r.send("/other")
		r.sendOf(s, "/b")
		r.QueueRelease(releaseCall(s, "/second"))
		r.apply(inflight...)
		r.apply(r.want("2: /b /second /other")...)
	})
}

// A call that is abandoned while Raft refuses its batch has its outcome. It is not sent again.
func TestCallOfARefusedProposalIsAbandoned(t *testing.T) {
	for name, abandon := range map[string]func(r *rig, s *Owner, c *Call){
		"alone":            func(r *rig, _ *Owner, c *Call) { r.Abandon(c, errTestEnd) },
		"with its session": func(r *rig, s *Owner, _ *Call) { r.AbandonSent(errTestEnd, s) },
	} {
		t.Run(name, func(t *testing.T) {
			withOutbox(t, func(t *testing.T, r *rig) {
				inflight := r.send("/inflight")
				first := r.want("1: /inflight")
				s := knownOwner(false)
				c, other := r.sendOf(s, "/a"), r.send("/b")
				r.log.Refuse(enginetest.ErrRefused)
				r.log.OnNextPropose(func() { abandon(r, s, c) })
				r.apply(first...)
				r.wantOutcome(inflight, nil)
				r.wantOutcome(c, errTestEnd)
				r.want()
				r.log.Refuse(nil)
				enginetest.Pass(PollInterval)
				r.apply(r.want("2: /b")...)
				r.wantOutcome(other, nil)
				if r.Busy(s) {
					t.Error("the abandoned call counts")
				}
			})
		})
	}
}

// A batch says how much of the home shard its node had applied before it took the batch's calls. If
// it asked later, a session could end in between, and the batch would say that no call of that
// session follows, and carry one.
func TestBatchAsksForTheHomeShardFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, command.HomeShard+1)
		r.lead(enginetest.Other)
		r.applyAll()
		c := txnCall(nil, "/a")
		var at stage
		r.node.appliedAtHome = func() tree.Zxid { // under the outbox's mu
			at = c.stage
			return 7
		}
		if _, err := r.Submit(c); err != nil {
			t.Fatal(err)
		}
		sent := r.want("1: /a")
		if home := enginetest.Decode(t, sent[0].Cmd).Home; home != 7 || at != stageQueued {
			t.Errorf("the batch says %d, want 7; its call was at stage %d, want %d", home, at, stageQueued)
		}
	})
}

func TestNothingIsSentWithoutALeader(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		inflight := r.want("1: /a")
		r.lead(0)
		r.send("/b")
		enginetest.Pass(time.Minute)
		r.want()
		r.lead(enginetest.Member)
		again := r.want("1: /a")
		if !bytes.Equal(again[0].Cmd, inflight[0].Cmd) {
			t.Fatal("the second copy differs from the first")
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
	withOutbox(t, func(t *testing.T, r *rig) {
		var proofs []time.Duration
		r.node.proved = func(sent time.Duration) { proofs = append(proofs, sent) }
		at := r.clock.Boot()
		r.Beat()
		beat := r.want("1:")
		enginetest.Pass(time.Second)
		r.log.Drain() // a copy
		r.apply(beat...)
		if len(proofs) != 1 || proofs[0] != at {
			t.Fatalf("proved alive at %v, want %v, the first sending", proofs, at)
		}
	})
}

// A5: a node that does not see its batches applied must not go on proving itself alive.
func TestNoBeatWhileABatchIsInFlight(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		first := r.want("1: /a")
		r.Beat()
		r.want()
		r.apply(first...)
		enginetest.Pass(time.Second)
		r.want() // the batch was proof enough
		r.Beat()
		r.want("2:")
		r.Beat()
		r.want()
	})
}

func TestCallReplacesABeat(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.log.Elect(0)
		r.Beat()
		r.send("/a")
		r.lead(enginetest.Other)
		r.apply(r.want("1: /a")...)
		r.want()
	})
}

// A2: sending a batch again does not change the time at which the node was proved alive.
func TestProofIsTheFirstSending(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		var proof time.Duration
		r.node.proved = func(sent time.Duration) { proof = sent }
		at := r.clock.Boot()
		c := r.send("/a")
		r.want("1: /a")
		enginetest.Pass(5 * time.Second)
		r.lead(enginetest.Other)
		synctest.Wait()
		copies := r.log.Drain()
		r.apply(copies[len(copies)-1])
		r.wantOutcome(c, nil)
		if proof != at || c.Sent != at {
			t.Fatalf("proved alive at %v, call sent at %v, want %v", proof, c.Sent, at)
		}
	})
}

func TestRefusedProposalIsNoProof(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		var proof time.Duration
		r.node.proved = func(sent time.Duration) { proof = sent }
		r.log.Refuse(enginetest.ErrRefused)
		r.send("/a")
		enginetest.Pass(time.Second)
		r.log.Refuse(nil)
		r.Pump()
		at := r.clock.Boot()
		r.apply(r.want("1: /a")...)
		if proof != at {
			t.Fatalf("proved alive at %v, want %v", proof, at)
		}
	})
}

// If Raft refuses a beat, the outbox tries again now and then, and does nothing in between.
func TestRefusedBeatDoesNotSpin(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		asked := 0
		var count func()
		count = func() {
			if asked++; asked == 1000 {
				r.log.Refuse(nil) // or the loop would never end
			}
			r.log.OnNextPropose(count)
		}
		r.log.OnNextPropose(count)
		r.log.Refuse(enginetest.ErrRefused)
		r.Beat()
		enginetest.Pass(time.Second)
		if most := int(time.Second/PollInterval) + 2; asked < 2 || asked > most {
			t.Errorf("Raft was asked %d times in a second, want 2 to %d", asked, most)
		}
		r.log.Refuse(nil)
		enginetest.Pass(2 * PollInterval)
		r.want("1:")
	})
}
