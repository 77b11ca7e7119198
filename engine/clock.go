package engine

import "time"

// A Clock tells a node the time. Durations are measured on Boot, which runs on while the machine sleeps; Wall
// is stamped on transactions for people and compared with Boot to notice that time was lost.
type Clock struct {
	Boot func() time.Duration // since some fixed moment in the past
	Wall func() time.Time

	// quick, unless it is nil, returns what Wall says and a clock that runs as Boot does but stands still while the machine sleeps, both in one
	// look. On Linux that takes a tenth of the time: Go has no Boot but by a system call.
	quick func() (wall, mono time.Duration)
}

// driftBlur is how far apart the two clocks of a drift may be read. It is little beside any Margin.
const driftBlur = 10 * time.Millisecond

// drift is what Wall is ahead of Boot. Who was stopped between the two looks looks again, or the stop would pass for time that
// Boot did not see; not for ever, for on some machines every look takes long.
func (c Clock) drift() time.Duration {
	for tries := 3; ; tries-- {
		before := c.Boot()
		wall := time.Duration(c.Wall().UnixNano())
		boot := c.Boot()
		if boot-before < driftBlur || tries == 0 {
			return wall - boot
		}
	}
}

// An anchor is a moment as all clocks showed it. The zero value is none.
type anchor struct{ boot, drift, mono time.Duration }

// anchor is the moment at which Boot and drift have just been read, or a later one if this was stopped since.
func (c Clock) anchor(boot, drift time.Duration) (a anchor) {
	if c.quick != nil {
		wall, mono := c.quick()
		a = anchor{boot: max(boot, wall-drift), drift: drift, mono: mono}
	}
	return a
}

// glance returns what Boot and drift are by the quick clock, counted from an anchor; false if there is none. That clock stands still while the
// machine sleeps, and the wall clock does not: what the wall clock has gained is counted as time that has passed, so that Boot is not
// more than it says, unless somebody has set the wall clock back since: by as much as the machine slept, or the drift shows it.
func (c Clock) glance(a anchor) (boot, drift time.Duration, ok bool) {
	if c.quick == nil || a == (anchor{}) {
		return 0, 0, false
	}
	wall, mono := c.quick()
	boot = a.boot + mono - a.mono
	drift = wall - boot
	return boot + max(0, drift-a.drift), drift, true
}

// SystemClock is the clock of the machine.
func SystemClock() Clock { return Clock{Boot: bootTime, Wall: time.Now, quick: quickTime} }

func quickTime() (wall, mono time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(processStart)
}

var processStart = time.Now()

// monotonic is the fallback where the system has no clock that counts suspended time.
func monotonic() time.Duration { return time.Since(processStart) }
