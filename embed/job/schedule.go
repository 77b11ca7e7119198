package job

import (
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Schedule says at which times a job ticks. The parsers of cron expressions return such types.
type Schedule interface {
	// Next returns the first time of the schedule after t, or the zero time if there is none. t is
	// in UTC. Next is called by one goroutine for each job that has the schedule.
	Next(t time.Time) time.Time
}

// Every returns the schedule that ticks at all multiples of d since the year 1, in UTC. So members
// agree on the times, whenever they start: Every(24 * time.Hour) ticks at midnight, and seven times
// that on Mondays. Run refuses a d below a millisecond.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

// Next implements Schedule.
func (e every) Next(t time.Time) time.Time {
	d := time.Duration(e)
	if d < time.Millisecond {
		return t // refused, because it is not after t
	}
	return t.UTC().Truncate(d).Add(d)
}

// dueMax is how many ticks are looked at after a job has missed more than that. The older ones do
// not run, and are not counted.
const dueMax = 1000

// due returns the times of a schedule after one time and not after another, in order. If there are
// more than dueMax, it returns the newest. It does not go through all times since a long ago: it
// looks at a time shortly before the end first, then at twice as much.
func due(s Schedule, after, end time.Time) ([]time.Time, error) {
	for span := time.Second; ; span *= 2 {
		from := end.Add(-span)
		all := !from.After(after) || span > maxSpan
		if all {
			from = after
		}
		list, err := between(s, from, end)
		if err != nil || all || len(list) >= dueMax {
			return list, err
		}
	}
}

// maxSpan is where doubling the span would overflow.
const maxSpan = time.Duration(1) << 61

// between returns the newest times of a schedule after one time and not after another.
func between(s Schedule, from, end time.Time) (list []time.Time, err error) {
	for {
		t, err := next(s, from)
		if err != nil || t.IsZero() || t.After(end) {
			return list[max(0, len(list)-dueMax):], err
		}
		if len(list) == 2*dueMax { // the older half is no longer needed
			list = append(list[:0], list[dueMax:]...)
		}
		list = append(list, t)
		from = t
	}
}

// next returns the first time of a schedule after t.
func next(s Schedule, t time.Time) (time.Time, error) {
	n := s.Next(t)
	if n.IsZero() {
		return n, nil
	}
	if n = n.UTC().Round(0); !n.After(t) {
		return n, fmt.Errorf("%w: Job.Schedule has %v as the next time after %v",
			embed.ErrInvalidArgument, n, t)
	}
	return n, nil
}
