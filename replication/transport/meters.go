package transport

import (
	"errors"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// Meters count the traffic with one member. They last until the member is forgotten.
type Meters struct {
	Sent, Received meter.Counter   // bytes of frames
	RoundTrips     meter.Histogram // from an ask to its answer, behind all frames before it
	Unsent         meter.Counter   // messages that were lost because there was no connection
	Invalid        meter.Counter   // messages of the member that were dropped: see gate
	Refused        meter.Counter   // refusals by either side
}

// noteRefusal counts a refusal by either side. It does nothing if err is none.
func (m *Meters) noteRefusal(err error) {
	var no *Refusal
	if errors.As(err, &no) {
		m.Refused.Inc()
	}
}

// Meters returns the meters of a member, or nil if nothing was counted.
func (t *Transport) Meters(member uint64) *Meters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.meters[member]
}

// meters returns the meters of a member. It begins new ones if there are none.
func (t *Transport) meters(member uint64) *Meters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.metersLocked(member)
}

func (t *Transport) metersLocked(member uint64) *Meters {
	m := t.mu.meters[member]
	if m == nil {
		m = new(Meters)
		t.mu.meters[member] = m
		if t.o.Counted != nil {
			t.o.Counted(member, m)
		}
	}
	return m
}
