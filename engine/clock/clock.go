package clock

import "time"

// A Clock tells a node the time. Durations are measured on Boot, which runs on while the machine
// sleeps. Wall is stamped on transactions for people; comparing it with Boot shows that time was lost.
type Clock struct {
	Boot func() time.Duration // since some fixed moment in the past
	Wall func() time.Time

	// Quick returns Wall, and a clock that runs as Boot does but stands still while the machine sleeps.
	// Reading both takes a tenth of the time on Linux, where Go reads Boot by a system call. It may be nil.
	Quick func() (wall, mono time.Duration)
}

// driftBlur is how far apart Drift may read the two clocks. It is little beside any session.Margin.
const driftBlur = 10 * time.Millisecond

// Drift returns how far Wall is ahead of Boot. If the process was stopped between the two looks, it
// looks again: otherwise the stop would pass for time that Boot did not see. It gives up after a few
// tries, because on some machines every look takes long.
func (c Clock) Drift() time.Duration {
	for tries := 3; ; tries-- {
		before := c.Boot()
		wall := time.Duration(c.Wall().UnixNano())
		boot := c.Boot()
		if boot-before < driftBlur || tries == 0 {
			return wall - boot
		}
	}
}

// An Anchor is a moment as all clocks showed it. The zero value is no moment.
type Anchor struct{ boot, drift, mono time.Duration }

// Mark returns the moment at which the caller has just read boot and drift, or a later one if the
// process was stopped since. It returns the zero Anchor if there is no Quick clock.
func (c Clock) Mark(boot, drift time.Duration) (a Anchor) {
	if c.Quick != nil {
		wall, mono := c.Quick()
		a = Anchor{boot: max(boot, wall-drift), drift: drift, mono: mono}
	}
	return a
}

// Glance returns Boot and Drift by the Quick clock, counted from an anchor; false without an anchor.
// The Quick clock stands still while the machine sleeps, and the wall clock does not. So Glance counts
// what the wall clock has gained as time that has passed, and its boot is never behind Boot. The
// exception is a wall clock that was set back by as much as the machine slept.
func (c Clock) Glance(a Anchor) (boot, drift time.Duration, ok bool) {
	if c.Quick == nil || a == (Anchor{}) {
		return 0, 0, false
	}
	wall, mono := c.Quick()
	boot = a.boot + mono - a.mono
	drift = wall - boot
	return boot + max(0, drift-a.drift), drift, true
}

// System returns the clock of the machine.
func System() Clock { return Clock{Boot: bootTime, Wall: time.Now, Quick: quickTime} }

func quickTime() (wall, mono time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(processStart)
}

var processStart = time.Now()

// monotonic is the fallback where the system has no clock that counts suspended time.
func monotonic() time.Duration { return time.Since(processStart) }
