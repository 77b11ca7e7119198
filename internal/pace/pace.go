package pace

import (
	"cmp"
	"time"
)

// Min is the usual first pause before an event is told again. The pause doubles while the event
// repeats, up to growth times the first.
const (
	Min    = 10 * time.Second
	Max    = growth * Min
	growth = 60
)

// A Pace says when an event may be told. The zero value is for an event that was never told. One
// goroutine at a time may use it.
type Pace struct {
	First time.Duration // the first pause; zero means Min

	at    time.Time // told last
	seen  time.Time // happened last
	pause time.Duration
	held  int
}

// Due records that the event has happened, and reports whether it may be told now. held is how
// often it was held back since it was told last.
func (p *Pace) Due(now time.Time) (held int, ok bool) {
	first, goesOn := cmp.Or(p.First, Min), !p.IsOver(now)
	p.seen = now
	if p.pause > 0 && now.Sub(p.at) < p.pause {
		p.held++
		return 0, false
	}
	held = p.held
	pause := first
	if p.pause > 0 && goesOn {
		pause = min(2*p.pause, growth*first)
	}
	*p = Pace{First: p.First, at: now, seen: now, pause: pause}
	return held, true
}

// IsOver reports whether the event last happened so long ago that the next one is a new one.
func (p *Pace) IsOver(now time.Time) bool { return now.Sub(p.seen) >= growth*cmp.Or(p.First, Min) }
