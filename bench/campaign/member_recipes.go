package campaign

import (
	"context"
	"fmt"
	"path"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
)

// recipeErrors are the errors that the newer recipes add to outcomes.
var recipeErrors = []meaning{
	{embed.ErrLevel, refused},
	{job.ErrReserved, refused},
	{task.ErrFull, refused},
	{value.ErrChanged, refused},
	{value.ErrWrongClock, refused},
	{group.ErrTaken, refused},
	{partition.ErrTaken, refused},
}

// play executes the calls of the newer recipes.
func (m *Member) play(ctx context.Context, n opener, s *embed.Session, q *Request, r *Reply) error {
	switch q.Call {
	case callAdd, callUpdate:
		return count(ctx, s, q, r)
	case callSwap:
		return swap(ctx, s, q, r)
	case callPut:
		return put(ctx, s, q, r)
	case callDrain:
		return drainTasks(ctx, s, q)
	case callGather:
		return m.gather(ctx, n, s, q)
	}
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	a := &holders{m: m, s: s, q: q}
	switch q.Call {
	case callIDs:
		return takeIDs(ctx, n, q)
	case callWorker:
		return a.takeNumber(ctx)
	case callReserve:
		return a.reserve(ctx)
	case callWork:
		return a.work(ctx, n)
	case callJobs:
		return a.jobs(ctx, n)
	case callOnce:
		return a.once(ctx, n, r)
	case callParts:
		return a.parts(ctx, n)
	case callJoin:
		return a.join(ctx, n)
	case callFollow:
		return a.follow(ctx, n)
	case callRollOut:
		return rollOut(ctx, s, q, r)
	case callView:
		return m.view(ctx, n, s, q, r)
	case callRegister:
		return registerInstance(ctx, n, s, q, r)
	case callRoster:
		return m.followRoster(ctx, s, q, r)
	case callEnter, callGate, callShut, callUnlock, callDone, callWait:
		return m.meet(ctx, s, q, r)
	}
	return fmt.Errorf("no call %q", q.Call)
}

// keyLock returns the lock of the key whose path is given.
func keyLock(s *embed.Session, at string, o lock.Options) locker {
	return key{lock.NewKeys(s, path.Dir(at)).With(lock.KeysOptions{Lock: o}), path.Base(at)}
}

// A key is one of the locks of Keys.
type key struct {
	*lock.Keys
	key string
}

func (k key) Lock(ctx context.Context) (*lock.Hold, error)    { return k.Keys.Lock(ctx, k.key) }
func (k key) TryLock(ctx context.Context) (*lock.Hold, error) { return k.Keys.TryLock(ctx, k.key) }
