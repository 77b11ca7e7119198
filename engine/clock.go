package engine

import "time"

// A Clock tells a node the time. Durations are measured on Boot, which runs on while the machine sleeps; Wall
// is stamped on transactions for people and compared with Boot to notice that time was lost.
type Clock struct {
	Boot func() time.Duration // since some fixed moment in the past
	Wall func() time.Time
}

// drift is what Wall is ahead of Boot.
func (c Clock) drift() time.Duration { return time.Duration(c.Wall().UnixNano()) - c.Boot() }

// SystemClock is the clock of the machine.
func SystemClock() Clock { return Clock{Boot: bootTime, Wall: time.Now} }

var processStart = time.Now()

// monotonic is the fallback where the system has no clock that counts suspended time.
func monotonic() time.Duration { return time.Since(processStart) }
