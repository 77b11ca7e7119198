package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
	"golang.org/x/sync/errgroup"
)

// lookPause is the longest time for which a member trusts a timer. Then it looks at the clock
// again, which may have been set meanwhile.
const lookPause = 10 * time.Second

// Run runs jobs at the times of their schedules, each tick on one of the members that call Run with
// the same dir. It outlives sessions, and goes on until one of these ends it:
//
//   - ctx ends: its error.
//   - The node ends: embed.ErrClosed or embed.ErrFailed.
//   - A job is wrong, or there is none, or two have one name: embed.ErrInvalidArgument.
//   - The record of a job cannot be read: ErrUnreadable.
//   - A tick cannot begin: embed.ErrInvalidPath, embed.ErrTooLarge, embed.ErrQuotaExceeded,
//     embed.ErrNoChildrenForEphemerals, embed.ErrAuthFailed, embed.ErrNoAuth or
//     lock.ErrLockExhausted.
//
// If the ensemble refuses to record how a tick ended, Run logs that, and tries again after pauses
// of up to a minute. Meanwhile no other tick of the job begins anywhere. If ctx ends before, the
// tick counts as cut short.
//
// What ends it for one job ends it for all; an error of Job.Run does not. Before Run returns, it
// waits until every Job.Run that is under way has returned. Then it closes its sessions, which lets
// other members go on at once. It waits until the ensemble knows, for at most
// embed.Config.RequestTimeout, even if ctx is over.
//
// Each job has a session of its own, with the timeout embed.Config.SessionTimeout. It says how long
// the others wait for a member that died. embed.OpenerWith sets another timeout, credentials or a
// root.
func Run(ctx context.Context, from embed.Opener, dir string, jobs ...Job) error {
	return run(ctx, from, time.Now, dir, jobs)
}

// run is Run with a clock.
func run(
	ctx context.Context, from embed.Opener, clock func() time.Time, dir string, jobs []Job,
) error {
	if err := check(clock(), jobs); err != nil {
		return fmt.Errorf("jobs %s: %w", dir, err)
	}
	if err := isPath(dir); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	running, inner := errgroup.WithContext(ctx)
	for _, j := range jobs {
		running.Go(func() error {
			r := runner{job: j, path: queue.Child(dir, j.Name), clock: clock}
			if err := sessions.Each(inner, from, r.each); inner.Err() == nil {
				return fmt.Errorf("job %s: %w", r.path, err)
			}
			return nil
		})
	}
	return cmp.Or(running.Wait(), ctx.Err())
}

// isPath refuses the empty path. With a name appended, it would mean a child of the root. All other
// wrong paths are refused by the calls that use them.
func isPath(path string) error {
	if path == "" {
		return fmt.Errorf("%w: it is empty", embed.ErrInvalidPath)
	}
	return nil
}

func check(now time.Time, jobs []Job) error {
	if len(jobs) == 0 {
		return fmt.Errorf("%w: no jobs given", embed.ErrInvalidArgument)
	}
	names := make(map[string]bool)
	for _, j := range jobs {
		if err := j.check(now.UTC().Round(0)); err != nil {
			return fmt.Errorf("job %q: %w", j.Name, err)
		}
		if names[j.Name] {
			return fmt.Errorf("%w: two jobs have the name %q", embed.ErrInvalidArgument, j.Name)
		}
		names[j.Name] = true
	}
	return nil
}

// A runner runs one job on this member.
type runner struct {
	job   Job
	path  string
	clock func() time.Time
}

// final returns err if no further attempt can succeed, and otherwise nil.
func final(err error) error {
	return sessions.Final(err, lock.ErrLockExhausted, ErrUnreadable, embed.ErrQuotaExceeded)
}

// each takes turns with one session, until it ends.
func (r *runner) each(ctx context.Context, s *embed.Session) error {
	for s.Err() == nil && ctx.Err() == nil {
		err := r.turn(ctx, s)
		if err := final(err); err != nil {
			return err
		}
		if err != nil && !sessions.Pause(ctx) {
			return nil
		}
	}
	return nil
}

// turn waits for the job's lock, and then for the next tick, which it runs. An error is never that
// of Job.Run.
func (r *runner) turn(ctx context.Context, s *embed.Session) error {
	hold, err := lock.NewMutex(s, queue.Child(r.path, "lock")).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	life, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	before, now, err := r.await(life, hold)
	if err != nil {
		return err
	}
	tick := newTick(r, hold, now)
	if err := life.Err(); err != nil {
		return errors.Join(err, tick.save(before)) // it has not begun, so it is left to the next one
	}
	return tick.run(life)
}

// await waits until a tick is due and writes that it has begun. It returns what the record was
// before, and what it is now.
func (r *runner) await(ctx context.Context, hold *lock.Hold) (before, now *ticks, err error) {
	for {
		t, err := r.read(ctx, hold.Session())
		if err != nil {
			return nil, nil, err
		}
		p, err := r.job.plan(t, r.now())
		switch {
		case err != nil:
			return nil, nil, err
		case p.write == nil:
			if err := r.sleep(ctx, p.next); err != nil {
				return nil, nil, err
			}
		case !p.run:
			err = r.write(hold, p.write)
		default:
			r.begin(ctx, hold, &p.write.Records[0])
			return t, p.write, r.write(hold, p.write)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// now returns the time of the clock, without what time.Time has of a monotonic one.
func (r *runner) now() time.Time { return r.clock().UTC().Round(0) }

// sleep waits until a time, or only until the clock should be looked at again.
func (r *runner) sleep(ctx context.Context, until time.Time) error {
	pause := lookPause
	if !until.IsZero() {
		pause = min(pause, until.Sub(r.now()))
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read returns the job's record, and creates it on first use.
func (r *runner) read(ctx context.Context, s *embed.Session) (*ticks, error) {
	path := recordPath(r.path)
	for {
		data, _, err := s.Get(ctx, path)
		if err == nil {
			t, err := decode(data)
			if err != nil {
				err = fmt.Errorf("read %s: %w", path, err)
			}
			return t, err
		}
		if !errors.Is(err, embed.ErrNoNode) {
			return nil, err
		}
		if data, err = json.Marshal(&ticks{Since: r.now()}); err != nil {
			return nil, err
		}
		_, _, err = s.CreateWith(ctx, path, data, embed.CreateOptions{Parents: true})
		if err != nil && !errors.Is(err, embed.ErrNodeExists) {
			return nil, err
		}
	}
}

// begin completes the record of a tick that begins.
func (r *runner) begin(ctx context.Context, hold *lock.Hold, tick *Record) {
	tick.State, tick.Token, tick.Began, tick.Ended = Started, hold.Token(), r.now(), time.Time{}
	s := hold.Session()
	tick.Member, _ = s.Member(ctx, s.ID()) // zero if it cannot say
}

// write writes the job's record, after other operations and in one transaction with them. All is
// applied only while the hold lasts. So nobody else writes the record meanwhile, and what is
// written twice is the same. write waits for the outcome as long as the hold lasts.
func (r *runner) write(hold *lock.Hold, t *ticks, ops ...embed.Op) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	set := embed.OpSet(recordPath(r.path), data, embed.AnyVersion)
	ops = append(ops[:len(ops):len(ops)], lock.Guard(hold), set)
	p := hold.Session().Submit(hold.Context(), ops...)
	select {
	case <-p.Done():
	default:
		select {
		case <-p.Done():
		case <-hold.Done():
			return fmt.Errorf("%w: the lock was lost: %w", embed.ErrUnknownOutcome, hold.Err())
		}
	}
	_, err = p.Result()
	return err
}
