package job

import (
	"context"
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrEnded says that the tick is committed already, or that its run has returned.
var ErrEnded = errors.New("the tick has ended")

// A Tick is one time of a job's schedule that runs on this member. Its methods may be called by any
// number of goroutines, while Job.Run runs. The zero Tick has ended: embed.ErrNotHeld.
type Tick struct {
	// Job is the name of the job.
	Job string
	// Time is the time in the schedule, in UTC. It names the tick: no other tick of the job has it.
	Time time.Time
	// Attempt counts the runs of this tick, from 1. It is always 1 with AtMostOnce.
	Attempt int
	// Missed is how many ticks since the one before do not run. Of more than 1000 that are due at
	// once, the oldest are not counted.
	Missed int

	// Immutable. They are nil in the zero Tick.
	runner *runner
	hold   *lock.Hold
	ticks  *ticks        // what the record is while the tick runs
	turn   chan struct{} // full while a Commit is under way; guards the following

	over bool // a Commit was applied, or may be; or the run has returned
}

// newTick returns the newest tick of a record.
func newTick(r *runner, hold *lock.Hold, t *ticks) *Tick {
	now := t.Records[0]
	return &Tick{
		Job: r.job.Name, Time: now.Time, Attempt: now.Attempt, Missed: now.Missed,
		runner: r, hold: hold, ticks: t, turn: make(chan struct{}, 1),
	}
}

// Token returns the fencing token of this run. It grows with every run of the job, see lock.Token.
func (t *Tick) Token() lock.Token {
	if t.hold == nil {
		return lock.Token{}
	}
	return t.hold.Token()
}

// Session returns the session that runs the tick, for reads and for a Multi with the Tick's Guard.
// It ends with this run at the earliest. The zero Tick has none: nil.
func (t *Tick) Session() *embed.Session {
	if t.hold == nil {
		return nil
	}
	return t.hold.Session()
}

// Guard lets a Multi be applied only while no other run of the job can have begun, as lock.Guard
// does for a Hold.
func (t *Tick) Guard() embed.Op { return lock.Guard(t.hold) }

// Commit records that the tick is done, and applies operations in the same transaction. So they are
// applied once, however often the tick is run. After that it is done, whatever Job.Run returns.
// Commit works as long as the job's lock is held, even if the function Run is to end. The paths of
// the operations must be on the same shard as the directory of Run.
//
// After embed.ErrUnknownOutcome it may have been applied, and Job.Run should return. After any
// other error it was not, and may be called again. Errors: ErrEnded; embed.ErrNotHeld if the lock
// is lost; those of embed.Session.Multi.
func (t *Tick) Commit(ops ...embed.Op) error {
	if t.hold == nil {
		return embed.ErrNotHeld
	}
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	if t.over {
		return ErrEnded
	}
	err := t.save(t.ended(nil), ops...)
	if err == nil || errors.Is(err, embed.ErrUnknownOutcome) {
		t.over = true
	}
	if err != nil && t.hold.Err() != nil && !t.over {
		return errors.Join(embed.ErrNotHeld, err)
	}
	return err
}

// run calls Job.Run, and records how it ended.
func (t *Tick) run(ctx context.Context) error {
	err := t.runner.job.Run(ctx, t)
	t.turn <- struct{}{} // a Commit may be under way in another goroutine
	committed := t.over
	t.over = true
	<-t.turn
	if committed || err != nil && ctx.Err() != nil {
		return nil
	}
	end := t.ended(err)
	return sessions.Record(ctx, t.hold.Session(), recordPath(t.runner.path), t.hold.Done(),
		func() error { return t.save(end) })
}

// ended returns the record of the tick that has ended with an error of its run.
func (t *Tick) ended(err error) *ticks {
	newest := t.ticks.Records[0]
	newest.State, newest.Ended = Done, t.runner.now()
	if err != nil {
		newest.State, newest.Error = Failed, shorten(err.Error())
	}
	return t.ticks.withNewest(newest)
}

// save writes the job's record.
func (t *Tick) save(to *ticks, ops ...embed.Op) error { return t.runner.write(t.hold, to, ops...) }
