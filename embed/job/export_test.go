package job

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// RunWithClock is Run with a clock.
func RunWithClock(ctx context.Context, from embed.Opener, clock func() time.Time, dir string,
	jobs ...Job) error {
	return run(ctx, from, clock, dir, jobs)
}

// Due is the due of package job.
var Due = due

// DueMax is how many missed ticks are counted.
const DueMax = dueMax

// A Planner plays what the holders of a job's lock do, without an ensemble.
type Planner struct {
	Job   Job
	ticks *ticks
}

// NewPlanner returns the planner of a job that is new at a time.
func NewPlanner(j Job, now time.Time) *Planner {
	return &Planner{Job: j,
		ticks: &ticks{Since: now}}
}

// Next returns the record of the tick that begins at a time, or when the next one is due.
func (p *Planner) Next(now time.Time) (begins *Record, next time.Time, err error) {
	for {
		plan, err := p.Job.plan(p.ticks, now)
		if err != nil || plan.write == nil {
			return nil, plan.next, err
		}
		p.ticks = plan.write
		if plan.run {
			p.ticks.Records[0].State = Started
			return &p.ticks.Records[0], time.Time{}, nil
		}
	}
}

// Records returns what History shows.
func (p *Planner) Records() []Record { return p.ticks.Records }
