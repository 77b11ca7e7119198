package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Job is a function that runs at each time of a schedule. Name, Schedule and Run are required.
// All members should give a job the same fields, but need not do so at the same moment. Only the
// name has to be the same.
type Job struct {
	// Name names the job below the directory of Run. It is one component of a path.
	Name string
	// Schedule says when the job ticks.
	Schedule Schedule
	// Missed says which ticks run that were missed. The zero value is Latest.
	Missed Missed
	// Within is how late a tick may begin, by the clock of the member that runs it. A later tick
	// does not run, not even again. Zero means any time. So a Within that is short beside the time
	// between two ticks skips all that were missed.
	Within time.Duration
	// Crash says what happens to a tick that began and was cut short. The zero value is AtMostOnce.
	Crash Crash
	// Keep is how many ticks History shows, at most 100. Zero means 10.
	Keep int
	// Run does the work of a tick. Its ctx ends with that of the function Run, and when the job's
	// lock is lost; context.Cause says why. It must return then: until it has, this member runs no
	// other tick of the job, and the function Run does not return.
	//
	// An error means that the tick has failed, which is recorded with the first 256 bytes of its
	// text. If ctx has ended by then, the tick was cut short instead.
	Run func(ctx context.Context, tick *Tick) error
}

// Missed says which ticks run when several are due.
type Missed int

const (
	Latest Missed = iota // the latest, once for all of them
	All                  // each, the oldest first; of more than 100 the newest 100
)

// allMax is how many missed ticks All runs.
const allMax = 100

// Crash says what happens to a tick that began and was cut short.
type Crash int

const (
	AtMostOnce  Crash = iota // it is left
	AtLeastOnce              // another member runs it again, or the same one, until a run ends
)

const (
	keepDefault = 10
	keepMax     = 100
)

// check returns what is wrong with a job.
func (j *Job) check(now time.Time) error {
	switch {
	case j.Name == "" || strings.Contains(j.Name, "/"):
		return fmt.Errorf("%w: Job.Name is %q, not one component of a path", embed.ErrInvalidArgument,
			j.Name)
	case j.Schedule == nil:
		return fmt.Errorf("%w: Job.Schedule is nil", embed.ErrInvalidArgument)
	case j.Run == nil:
		return fmt.Errorf("%w: Job.Run is nil", embed.ErrInvalidArgument)
	case j.Missed != Latest && j.Missed != All:
		return fmt.Errorf("%w: Job.Missed is %d", embed.ErrInvalidArgument, j.Missed)
	case j.Crash != AtMostOnce && j.Crash != AtLeastOnce:
		return fmt.Errorf("%w: Job.Crash is %d", embed.ErrInvalidArgument, j.Crash)
	case j.Within < 0:
		return fmt.Errorf("%w: Job.Within is %v, but must not be negative", embed.ErrInvalidArgument,
			j.Within)
	case j.Keep < 0 || j.Keep > keepMax:
		return fmt.Errorf("%w: Job.Keep is %d, not from 0 to %d", embed.ErrInvalidArgument, j.Keep,
			keepMax)
	}
	_, err := next(j.Schedule, now)
	return err
}
