package engine

import "time"

// A Clock tells a node the time. Durations are measured on Boot, which runs on while the machine sleeps; Wall
// is stamped on transactions for people and compared with Boot to notice that time was lost.
type Clock struct {
	Boot func() time.Duration // since some fixed moment in the past
	Wall func() time.Time
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

// glance returns Boot and drift, each read once. Who was stopped meanwhile sees a drift that is too low by that, and a Boot that has it:
// to take a jump for none the stop must be as long as the jump was, but for a Margin, and it counts as silence itself.
func (c Clock) glance() (boot, drift time.Duration) {
	wall := time.Duration(c.Wall().UnixNano())
	boot = c.Boot()
	return boot, wall - boot
}

// SystemClock is the clock of the machine.
func SystemClock() Clock { return Clock{Boot: bootTime, Wall: time.Now} }

var processStart = time.Now()

// monotonic is the fallback where the system has no clock that counts suspended time.
func monotonic() time.Duration { return time.Since(processStart) }
