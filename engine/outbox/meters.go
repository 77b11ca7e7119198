package outbox

import (
	"context"
	"errors"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// An Outcome is how a call ended, for the metrics.
type Outcome int

// The outcomes.
const (
	Applied     Outcome = iota
	Refused             // when it was applied, by a rule of the tree or of sessions
	Unavailable         // not sent: no leader before its deadline, or the queue was full
	Unknown             // sent, and its caller could not be told more
	Ended               // not sent: its caller cancelled it, or its session or the node ended
	Outcomes            // how many there are
)

// String returns the outcome as the metrics name it.
func (o Outcome) String() string {
	return [...]string{"applied", "refused", "unavailable", "unknown", "ended"}[o]
}

// Meters count what an outbox does.
type Meters struct {
	Commits  meter.Histogram // from the first sending of a batch until it is applied here
	Outcomes [Outcomes]meter.Counter
	Resends  meter.Counter // batches that were sent again
}

// note counts the outcome of a call, unless noteGivenUp has counted it.
func (m *Meters) note(c *Call, judged bool) {
	switch {
	case c.givenUp:
	case c.Err == nil:
		m.Outcomes[Applied].Inc()
	case errors.Is(c.Err, ErrUnknownOutcome):
		m.Outcomes[Unknown].Inc()
	case judged:
		m.Outcomes[Refused].Inc()
	case errors.Is(c.Err, ErrUnavailable), errors.Is(c.Err, context.DeadlineExceeded):
		m.Outcomes[Unavailable].Inc()
	default:
		m.Outcomes[Ended].Inc()
	}
}

// noteGivenUp counts a call as unknown whose caller stops waiting. Its true outcome may come later,
// and is not counted: metrics say what callers were told.
func (o *Outbox) noteGivenUp(c *Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.stage != stageDone && !c.givenUp {
		c.givenUp = true
		o.Meters.Outcomes[Unknown].Inc()
	}
}

// Figures say what waits in an outbox.
type Figures struct {
	Requests, Bytes int // that wait to be sent
	Inflight        int // batches that were sent and are not applied here
}

// Figures returns what waits now.
func (o *Outbox) Figures() Figures {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := &o.mu.queue
	return Figures{
		Requests: q.len() + q.parkedTally.n, Bytes: q.sendable.bytes + q.parkedTally.bytes,
		Inflight: len(o.mu.inflight),
	}
}
