package clock

import "time"

// A Clock tells a node the time. Durations are measured on Boot, which runs on while the machine
// sleeps. Transactions are stamped with Wall, for people to read. If Offset changes, time was
// lost or somebody set the wall clock.
type Clock struct {
	Boot func() time.Duration // since some fixed moment in the past
	Wall func() time.Time

	// Quick returns Wall, and a clock that runs like Boot but stands still while the machine
	// sleeps. On Linux, reading both takes a tenth of the time of Boot, which Go reads by a system
	// call. Quick may be nil.
	Quick func() (wall, mono time.Duration)
}

// offsetBlur is how far apart Offset may read the two clocks. It is small beside any
// session.Margin.
const offsetBlur = 10 * time.Millisecond

// Offset returns how far Wall is ahead of Boot. If the process stands still between the two looks,
// Offset looks again. Otherwise this pause would seem to be time that Boot did not count. Offset
// gives up after a few tries, because on some machines every look takes long.
func (c Clock) Offset() time.Duration {
	for tries := 3; ; tries-- {
		before := c.Boot()
		wall := time.Duration(c.Wall().UnixNano())
		boot := c.Boot()
		if boot-before < offsetBlur || tries == 0 {
			return wall - boot
		}
	}
}

// An Anchor is a moment as all clocks showed it. The zero value stands for no moment.
type Anchor struct{ boot, offset, mono time.Duration }

// Mark returns the moment at which the caller has just read boot and offset. If the process was
// stopped since, it is a later moment. Mark returns the zero Anchor if there is no Quick clock.
func (c Clock) Mark(boot, offset time.Duration) (a Anchor) {
	if c.Quick != nil {
		wall, mono := c.Quick()
		a = Anchor{boot: max(boot, wall-offset), offset: offset, mono: mono}
	}
	return a
}

// Glance computes Boot and Offset from the Quick clock and an anchor. It returns false if it lacks
// one of them.
//
// The monotonic clock of Quick stands still while the machine sleeps, but the wall clock does not.
// So Glance counts what the wall clock has gained as time that has passed. Its boot is never behind
// Boot, with one exception. If the machine slept and somebody set the wall clock back, boot may be
// behind by as much as that, until the next Mark.
func (c Clock) Glance(a Anchor) (boot, offset time.Duration, ok bool) {
	if c.Quick == nil || a == (Anchor{}) {
		return 0, 0, false
	}
	wall, mono := c.Quick()
	boot = a.boot + mono - a.mono
	offset = wall - boot
	return boot + max(0, offset-a.offset), offset, true
}

// System returns the clock of the machine.
func System() Clock { return Clock{Boot: bootTime, Wall: time.Now, Quick: quickTime} }

func quickTime() (wall, mono time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(processStart)
}

var processStart = time.Now()

// monotonic replaces Boot on a system that has no clock which counts sleep.
func monotonic() time.Duration { return time.Since(processStart) }
