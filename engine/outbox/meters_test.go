package outbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// outcomes returns how many calls ended how.
func outcomes(o *Outbox) (n [Outcomes]uint64) {
	for i := range n {
		n[i] = o.Meters.Outcomes[i].Read()
	}
	return n
}

func TestMeters_Outcomes(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		judged bool
		want   Outcome
	}{
		"applied":           {nil, true, Applied},
		"a rule":            {&tree.MultiError{Err: tree.ErrNoNode}, true, Refused},
		"a session's end":   {session.ErrExpired, true, Refused},
		"skipped":           {ErrUnknownOutcome, true, Unknown},
		"abandoned":         {ErrUnknownOutcome, false, Unknown},
		"full":              {errQueueFull, false, Unavailable},
		"not sent in time":  {errNotSent, false, Unavailable},
		"deadline":          {context.DeadlineExceeded, false, Unavailable},
		"cancelled":         {context.Canceled, false, Ended},
		"closed":            {ErrClosed, false, Ended},
		"its session ended": {session.ErrExpired, false, Ended},
	} {
		var m Meters
		m.note(&Call{Err: c.err}, c.judged)
		for i := range Outcomes {
			if n := m.Outcomes[i].Read(); (n == 1) != (i == c.want) {
				t.Errorf("%s: %d are %v", name, n, i)
			}
		}
	}
}

// A caller that stops waiting for what was sent is told that the outcome is unknown. That counts
// once, however often it asks, and the true outcome does not count any more.
func TestMeters_GivenUp(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		before := outcomes(r.Outbox)
		c := r.send("/a")
		for range 2 {
			if err := r.Outbox.Wait(t.Context(), c, time.Millisecond); !errors.Is(err, ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		r.applyAll()
		r.wantOutcome(c, nil)
		after := outcomes(r.Outbox)
		if after[Unknown] != before[Unknown]+1 || after[Applied] != before[Applied] {
			t.Errorf("from %v to %v", before, after)
		}
		r.send("/b")
		r.applyAll()
		if now := outcomes(r.Outbox); now[Applied] != after[Applied]+1 || now[Unknown] != after[Unknown] {
			t.Errorf("from %v to %v", after, now)
		}
	})
}

// A commit counts from the first sending of its batch until it is applied here.
func TestMeters_Commits(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		before := r.Outbox.Meters.Commits.Read()
		r.send("/a")
		if f := r.Outbox.Figures(); f.Inflight != 1 || f.Requests != 0 {
			t.Errorf("%+v", f)
		}
		waiting := r.send("/b")
		if f := r.Outbox.Figures(); f.Inflight != 1 || f.Requests != 1 || f.Bytes != len(waiting.Encoded) {
			t.Errorf("%+v", f)
		}
		<-time.After(40 * time.Millisecond)
		r.applyAll()
		after := r.Outbox.Meters.Commits.Read()
		if took := after.Sum - before.Sum; took < 40*time.Millisecond || took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if f := r.Outbox.Figures(); f != (Figures{}) {
			t.Errorf("%+v", f)
		}
	})
}
