package outbox

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
)

// twoInFlight fills the window and returns the two proposals.
func (r *rig) twoInFlight() []*enginetest.Proposal {
	r.send("/a")
	r.sendMany(SecondBatchMin, "b")
	synctest.Wait()
	ps := r.log.Drain()
	if len(ps) != 2 {
		r.t.Fatalf("%d batches in flight", len(ps))
	}
	return ps
}

// wantSame checks that exactly these proposals were made again, and returns the copies.
func (r *rig) wantSame(want []*enginetest.Proposal) []*enginetest.Proposal {
	r.t.Helper()
	synctest.Wait()
	got := r.log.Drain()
	if !slices.EqualFunc(got, want, func(a, b *enginetest.Proposal) bool { return bytes.Equal(a.Cmd, b.Cmd) }) {
		r.t.Fatalf("%d batches were sent again, want exact copies of %d", len(got), len(want))
	}
	return got
}

func TestChangeOfLeaderResendsAllInOrder(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		r.lead(enginetest.Other) // the same member, but a new term
		r.apply(r.wantSame(lost)...)
		enginetest.Pass(time.Minute)
		r.want()
	})
}

func TestDroppedProposalResendsAllInOrder(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		lost[1].Lost.Store(true)
		enginetest.Pass(PollInterval)
		again := r.wantSame(lost)
		enginetest.Pass(PollInterval)
		r.want() // the new proposals were not dropped
		r.apply(again...)
	})
}

func TestGapResendsAllInOrder(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		r.apply(lost[1])
		r.apply(r.wantSame(lost)...)
		if got := len(r.applied); got != 1+SecondBatchMin {
			t.Fatalf("%d requests applied", got)
		}
	})
}

func TestRefusedResendIsTriedAgain(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		r.log.Refuse(enginetest.ErrRefused)
		r.LeaderChanged()
		enginetest.Pass(time.Second)
		r.log.Refuse(nil)
		enginetest.Pass(PollInterval)
		r.wantSame(lost)
	})
}

// B3.1: a slow disk must sync every copy too, and copies make it slower.
func TestTimerResendsTheOldestAlone(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		start := time.Now()
		enginetest.Pass(20 * time.Second)
		var waits []time.Duration
		last := start
		for _, p := range r.log.Drain() {
			if !bytes.Equal(p.Cmd, lost[0].Cmd) {
				t.Fatalf("%s was sent again", describe(enginetest.Decode(t, p.Cmd))[:2])
			}
			waits = append(waits, p.At.Sub(last))
			last = p.At
		}
		patience := resendFirstMin
		for i, w := range waits {
			// Loop looks once per PollInterval.
			if w < patience || w > patience+2*PollInterval {
				t.Fatalf("copy %d after %v, want %v", i, w, patience)
			}
			patience = min(2*patience, resendMax)
		}
		if patience != resendMax {
			t.Fatalf("patience never reached its maximum: waited %v", waits)
		}
	})
}

// A link is cut for most of a session's timeout and loses every copy of the batch in flight. After
// the link works again, the next copy must not come so late that the session has expired.
func TestTimerResendsWithinTheBeatInterval(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		const interval = 300 * time.Millisecond
		r.node.beatInterval = interval
		r.send("/a")
		r.want("1: /a")
		enginetest.Pass(10 * time.Second)
		copies := r.log.Drain()
		for i, p := range copies[1:] {
			if w := p.At.Sub(copies[i].At); w > interval+2*PollInterval {
				t.Fatalf("copy %d after %v, want %v at most", i+2, w, interval)
			}
		}
		if most := int(10*time.Second/interval) + 5; len(copies) > most {
			t.Fatalf("%d copies, want %d at most", len(copies), most)
		}
	})
}

// B3.1: a long commit is no sign of loss.
func TestPatienceFollowsTheCommitTime(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		for i := range 50 {
			r.send(fmt.Sprint("/", i))
			ps := r.log.Drain()
			enginetest.Pass(200 * time.Millisecond)
			r.apply(ps...)
			r.log.Drain()
		}
		start := time.Now()
		r.send("/slow")
		r.log.Drain()
		enginetest.Pass(2 * time.Second)
		if ps := r.log.Drain(); len(ps) == 0 || ps[0].At.Sub(start) < 750*time.Millisecond {
			t.Fatalf("sent again after %v, though a commit takes 200ms", ps[0].At.Sub(start))
		}
	})
}

// B3.2: an entry in a leader's own log cannot be lost without a change of term. Every copy would be
// another fsync.
func TestTimerIsOffWhileThisNodeLeads(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.lead(enginetest.Member)
		r.twoInFlight()
		enginetest.Pass(time.Minute)
		r.want()
	})
}

// B3.1: a refused copy is no evidence that anything was lost.
func TestRefusedTimedResendStaysAlone(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		lost := r.twoInFlight()
		r.log.Refuse(enginetest.ErrRefused)
		enginetest.Pass(time.Second)
		r.log.Refuse(nil)
		enginetest.Pass(50 * time.Millisecond)
		for _, p := range r.log.Drain() {
			if !bytes.Equal(p.Cmd, lost[0].Cmd) {
				t.Fatal("sent a batch again without evidence that it was lost")
			}
		}
	})
}

// B2: a snapshot carries the stream past a batch in flight. Nobody knows what that batch answered.
func TestSkipToEndsOnlyPassedBatches(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		a := r.send("/a")
		b := r.sendMany(SecondBatchMin, "b")
		c := r.send("/c")
		synctest.Wait()
		ps := r.log.Drain()
		// The snapshot holds batch 1: this node's table begins there.
		r.table = session.NewTable()
		o := enginetest.Origin()
		o.LastSeq = 1
		r.table.LoadOrigin(o)
		r.SkipTo(1)()
		r.wantOutcome(a, ErrUnknownOutcome)
		r.apply(ps...) // batch 1 is a repeat now
		r.wantOutcome(b[0], nil)
		r.wantOutcome(a, ErrUnknownOutcome)
		r.apply(r.want("3: /c")...)
		r.wantOutcome(c, nil)
		if slices.Contains(r.applied, "/a") {
			t.Fatal("applied again a batch that the snapshot holds")
		}
	})
}

// B2: a snapshot answers an end. Whoever waits for it hears of that once readers see the new state.
// The outcome of another call is unknown at once: sessions and claims look at what it has become.
func TestSkipToAnswersEndsLast(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		end := endCall("/end")
		r.QueueEnd(end)
		other := r.send("/other")
		r.Pump()
		synctest.Wait()
		r.log.Drain()
		finish := r.SkipTo(2)
		r.wantOutcome(other, ErrUnknownOutcome)
		select {
		case <-end.Done:
			t.Error("the end is answered before it shows")
		default:
		}
		finish()
		<-end.Done
		r.wantOutcome(end, nil)
	})
}

func TestSkipToCoversTheRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, command.HomeShard)
		r.lead(enginetest.Other)
		r.want("register")
		r.table.LoadOrigin(enginetest.Origin())
		r.SkipTo(0)()
		r.send("/a")
		r.want("1: /a")
	})
}

// A commit that took minutes, because the machine slept or there was no quorum, says nothing about
// the next one.
func TestPatienceIsBoundedAfterALongCommit(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		r.send("/a")
		sent := r.want("1: /a")
		r.clock.Pause(10 * time.Minute)
		r.apply(sent...)
		r.send("/b")
		r.want("2: /b") // lost on its way
		enginetest.Pass(resendMax + PollInterval)
		r.want("2: /b")
	})
}
