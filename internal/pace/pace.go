package pace

import "time"

// Bounds of the pause before an event is told again. The pause doubles while the event repeats.
const (
	Min = 10 * time.Second
	Max = 10 * time.Minute
)

// A Pace says when an event may be told. The zero value is for an event that was never told. One
// goroutine at a time may use it.
type Pace struct {
	at    time.Time // told last
	seen  time.Time // happened last
	pause time.Duration
	held  int
}

// Due records that the event has happened, and reports whether it may be told now. held is how
// often it was held back since it was told last.
func (p *Pace) Due(now time.Time) (held int, ok bool) {
	goesOn := now.Sub(p.seen) < Max
	p.seen = now
	if p.pause > 0 && now.Sub(p.at) < p.pause {
		p.held++
		return 0, false
	}
	held = p.held
	pause := Min
	if p.pause > 0 && goesOn {
		pause = min(2*p.pause, Max)
	}
	*p = Pace{at: now, seen: now, pause: pause}
	return held, true
}
