package job

import (
	"cmp"
	"time"
)

// A plan is what the holder of a job's lock does next.
type plan struct {
	write *ticks    // what to write, if not nil
	run   bool      // then run the newest tick of it
	next  time.Time // if there is nothing to write: when a tick is due; zero for never
}

// plan decides what to do at a time. It depends on its arguments and the schedule only.
func (j *Job) plan(t *ticks, now time.Time) (plan, error) {
	last := t.Since
	if len(t.Records) > 0 {
		newest := t.Records[0]
		if newest.State == Started && j.Crash == AtLeastOnce && !j.late(newest.Time, now) {
			newest.Attempt++
			return plan{write: t.withNewest(newest), run: true}, nil
		}
		if newest.Time.After(last) {
			last = newest.Time
		}
	}
	list, err := due(j.Schedule, last, now)
	if err != nil {
		return plan{}, err
	}
	if len(list) == 0 {
		at, err := next(j.Schedule, last)
		return plan{next: at}, err
	}
	runs := list[j.first(list, now):]
	if len(runs) == 0 {
		// What is too late is written too, because a Schedule need not have the same times when it
		// is asked from elsewhere.
		over := &ticks{Since: list[len(list)-1], Missed: t.Missed + len(list), Records: t.Records}
		return plan{write: over}, nil
	}
	r := Record{Time: runs[0], Attempt: 1, Missed: t.Missed + len(list) - len(runs)}
	return plan{write: t.with(r, cmp.Or(j.Keep, keepDefault)), run: true}, nil
}

// first returns the index of the first tick that runs, of those that are due.
func (j *Job) first(list []time.Time, now time.Time) int {
	i := len(list) - 1
	if j.Missed == All {
		i = max(0, len(list)-allMax)
	}
	for i < len(list) && j.late(list[i], now) {
		i++
	}
	return i
}

// late reports whether a tick may no longer begin.
func (j *Job) late(tick, now time.Time) bool { return j.Within > 0 && now.Sub(tick) > j.Within }
