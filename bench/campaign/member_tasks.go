package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
)

// recordDeed returns the operation that says that something is done. The transaction that makes it
// so has it too.
func recordDeed(path, key string) embed.Op {
	return embed.OpCreate(areaOf(path)+deedsPath+"/d-", []byte(key), embed.Sequential)
}

// done tells the campaign how an attempt to record a deed ended.
func (q *Request) done(path, key string, token lock.Token, err error) {
	q.say(Reply{Deed: &deed{Kind: deedDone, Path: path, Key: key, Token: token, Outcome: outcomeOf(err)}}, true)
}

// put puts a task into a queue. The reply has its path.
func put(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	name, err := task.New(s, q.Path, task.Options{}).Put(ctx, []byte(q.Data), task.PutOptions{})
	r.Path = q.Path + "/" + name
	return err
}

// work claims a task, by itself or by task.Work, and works on it.
func (a *holders) work(ctx context.Context, n opener) error {
	begun := a.m.Now()
	if !a.q.Hold.Do {
		t, err := task.New(a.s, a.q.Path, task.Options{}).Claim(ctx)
		if err == nil {
			a.finish(begun, t)
		}
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return task.Work(ctx, a.q.opener(n), a.q.Path, task.Options{}, func(_ context.Context, t *task.Task) error {
		a.finish(begun, t)
		stop()
		return nil
	})
}

// finish works on a claimed task. Then it finishes the task or gives it back.
func (a *holders) finish(asked time.Duration, t *task.Task) {
	a.q.say(Reply{Deed: &deed{Kind: deedBegin, Path: a.q.Path, Key: string(t.Data()), Token: t.Token()}}, true)
	u := a.holder(kindTask, asked, named{held: t, name: t.Name(), guard: t.Guard, s: t.Session()})
	u.use(a.q.Length, func() {})
	u.give()
	if a.q.TTL > 0 {
		_ = t.Retry(stretch(a.q.TTL))
		u.end()
		return
	}
	err := t.Finish(recordDeed(a.q.Path, string(t.Data())))
	if errors.Is(err, embed.ErrNoNode) {
		u.wrong("the task %s with token %v was claimed, and is gone: %v", t.Name(), t.Token(), err)
	}
	a.q.done(a.q.Path, string(t.Data()), t.Token(), err)
	u.end()
}

// drain finishes the tasks that are left, until there is none.
func drainTasks(ctx context.Context, s *embed.Session, q *Request) error {
	tasks := task.New(s, q.Path, task.Options{})
	for {
		if _, err := s.Sync(ctx, q.Path); err != nil {
			return err
		}
		left, _, err := s.Children(ctx, q.Path+"/entries")
		if err != nil && !errors.Is(err, embed.ErrNoNode) || len(left) == 0 {
			return unless(embed.ErrNoNode, err)
		}
		t, err := tasks.Claim(ctx)
		if err != nil {
			return err
		}
		err = t.Finish(recordDeed(q.Path, string(t.Data())))
		q.done(q.Path, string(t.Data()), t.Token(), err)
		if err != nil {
			return err
		}
	}
}

// unless returns err unless it is the given one.
func unless(not, err error) error {
	if errors.Is(err, not) {
		return nil
	}
	return err
}

// jobs runs jobs for a while.
func (a *holders) jobs(ctx context.Context, n opener) error {
	begun := a.m.Now()
	var all []job.Job
	for i, name := range jobNames {
		j := job.Job{Name: name, Schedule: job.Every(stretch(a.q.TTL)), Crash: job.Crash(i)}
		j.Run = func(ctx context.Context, t *job.Tick) error { return a.tick(ctx, begun, t) }
		all = append(all, j)
	}
	return job.Run(ctx, a.q.opener(n), a.q.Path, all...)
}

// tick is one run of a job. The ctx of the run may end before the lock does, so its end says
// nothing about the guard.
func (a *holders) tick(ctx context.Context, asked time.Duration, t *job.Tick) error {
	path, key := a.q.Path+"/"+t.Job, fmt.Sprintf("%s %d", t.Job, t.Time.UnixMilli())
	a.q.say(Reply{Deed: &deed{Kind: deedBegin, Path: path, Key: key, Token: t.Token()}}, true)
	h := running{ctx: ctx, token: t.Token()}
	u := a.holder(kindTick, asked, named{held: h, name: t.Job, guard: t.Guard, s: t.Session(), lax: true, long: true})
	u.heard, u.heed = ctx.Done(), "tick cut short"
	u.use(a.q.Length, func() {})
	u.give()
	err := t.Commit(recordDeed(a.q.Path, key))
	a.q.done(path, key, t.Token(), err)
	u.end()
	return nil
}

// once does something once. The reply has the result, whoever did it.
func (a *holders) once(ctx context.Context, n opener, r *Reply) error {
	begun := a.m.Now()
	result, err := job.Once(ctx, a.q.opener(n), a.q.Path, func(ctx context.Context, t lock.Token) ([]byte, error) {
		u := a.holder(kindOnce, begun, running{ctx: ctx, token: t, name: "lock"})
		u.use(a.q.Length, func() {})
		u.give()
		return []byte(a.q.Data), nil
	})
	r.Data = string(result)
	return err
}

// partNames are the names of the parts of each set.
var partNames = []string{"a", "b", "c", "d", "e", "f/g"}

// partSettle is partition.Options.Settle.
const partSettle = 200 * time.Millisecond

// parts owns parts for a while.
func (a *holders) parts(ctx context.Context, n opener) error {
	begun := a.m.Now()
	var ends sync.WaitGroup
	defer ends.Wait()
	return partition.Run(ctx, a.q.opener(n), a.q.Path, partNames, partition.Options{Settle: stretch(partSettle)}, func(ctx context.Context, part string, h *lock.Hold) error {
		u := a.holder(kindPart, begun, named{held: h, name: part, guard: func() embed.Op { return lock.Guard(h) }, s: h.Session(), long: true})
		u.heard, u.heed = ctx.Done(), "part handed over"
		u.use(a.q.Length, func() {})
		u.give()
		ends.Go(func() {
			<-h.Done()
			u.end()
		})
		return nil
	})
}
