package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// Once runs fn on one of the members that call it with the same path, and returns fn's result on
// all of them, also on those that call it later. It is for what a service does once in the life of
// its ensemble, such as a migration at the start. The result is at most embed.Config.MaxDataSize
// bytes long.
//
// fn runs at least once: if its member is lost before the result is recorded, another member runs
// fn again. One result is recorded, and that is what all callers get. fn's ctx ends with ctx, and
// when the lock is lost; context.Cause says why. A fn that obeys it runs on one member at a time,
// and the token fences what it has sent elsewhere.
//
// The members that do not run fn wait until there is a result. So Once returns nil only if the work
// is done. If fn returns an error while it has the lock, its caller gets the error, nothing is
// recorded, and the next member that waits runs its fn.
//
// If the ensemble refuses the result, for example because of a hard quota, fn is not run again.
// Once logs the refusal, keeps the lock, and tries to record the result again, after pauses of up
// to a minute. It does so until ctx ends; the error then also says why the result was refused, and
// the next member that waits runs its fn.
//
// To run fn anew, delete <path>/done. Errors: the ctx's; fn's; embed.ErrClosed or embed.ErrFailed
// when the node ends; embed.ErrTooLarge for the result, after fn has run; embed.ErrInvalidPath,
// embed.ErrQuotaExceeded, embed.ErrNoChildrenForEphemerals, embed.ErrAuthFailed, embed.ErrNoAuth,
// embed.ErrCrossShard (on the root, in an ensemble with several shards) or lock.ErrLockExhausted,
// before fn has run, if it cannot have the lock, or if the ensemble would refuse any result.
func Once(
	ctx context.Context, from embed.Opener, path string,
	fn func(context.Context, lock.Token) ([]byte, error),
) ([]byte, error) {
	if err := isPath(path); err != nil {
		return nil, fmt.Errorf("once: %w", err)
	}
	o := once{path: path, done: queue.Child(path, "done"), fn: fn}
	switch err := sessions.Each(ctx, from, o.each); {
	case errors.Is(err, errOver):
		return o.result, nil
	case o.failed != nil:
		return nil, o.failed
	case err == ctx.Err():
		return nil, err
	default:
		return nil, fmt.Errorf("once %s: %w", path, err)
	}
}

// They end the loop of a Once.
var errOver, errFailed = errors.New("there is a result"), errors.New("there is none")

// A once is one call of Once.
type once struct {
	path, done string
	fn         func(ctx context.Context, t lock.Token) ([]byte, error)
	ran        bool   // fn has returned nil
	result     []byte // fn's, or what is recorded
	failed     error  // what Once returns: fn's error, or that its result is not recorded
}

// each runs fn with one session, unless there is a result.
func (o *once) each(ctx context.Context, s *embed.Session) error {
	for s.Err() == nil && ctx.Err() == nil {
		err := o.attempt(ctx, s)
		if errors.Is(err, errOver) || err == errFailed {
			return err
		}
		if err := final(err); err != nil {
			return err
		}
		if !sessions.Pause(ctx) {
			return nil
		}
	}
	return nil
}

// attempt returns errOver if there is a result, and errFailed if Once is to return failed.
func (o *once) attempt(ctx context.Context, s *embed.Session) error {
	hold, err := o.lock(ctx, s)
	if err != nil {
		return err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	if err := o.look(ctx, s); err != nil {
		return err
	}
	life, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	if !o.ran {
		// fn is not to run for a result that the ensemble would refuse.
		create := embed.OpCreate(o.done, nil, embed.Persistent)
		if err := queue.Rehearse(life, s, o.done, lock.Guard(hold), create); err != nil {
			return err
		}
		o.result, err = o.fn(life, hold.Token())
		if err != nil {
			if hold.Err() != nil {
				return nil // perhaps another member runs it by now
			}
			o.failed = err
			return errFailed
		}
		o.ran = true
	}
	err = sessions.Record(life, s, o.done, life.Done(), func() error { return o.record(hold) })
	switch {
	case err == nil:
		o.ran = false // if somebody deletes the result now, it is to run anew
		return o.look(ctx, s)
	case ctx.Err() != nil:
		o.failed = fmt.Errorf("once %s: fn has run, but its result is not recorded: %w: %w", o.path,
			ctx.Err(), err)
		return errFailed
	case hold.Err() != nil:
		return nil // the next attempt records it, unless another member has run its fn by then
	}
	return err
}

// record creates the result's znode while the lock is held. If it exists, look says with what.
func (o *once) record(hold *lock.Hold) error {
	p := hold.Session().Submit(hold.Context(), lock.Guard(hold),
		embed.OpCreate(o.done, o.result, embed.Persistent))
	select {
	case <-p.Done():
	case <-hold.Done():
		return hold.Err()
	}
	_, err := p.Result()
	if errors.Is(err, embed.ErrNodeExists) {
		return nil
	}
	return err
}

// look takes the result if there is one, and then returns errOver.
func (o *once) look(ctx context.Context, s *embed.Session) error {
	result, _, err := s.Get(context.WithoutCancel(ctx), o.done)
	switch {
	case err == nil:
		o.result = result
		return errOver
	case errors.Is(err, embed.ErrNoNode):
		return nil
	}
	return err
}

// lock waits for the lock. It returns errOver as soon as there is a result.
func (o *once) lock(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
	if _, err := s.Sync(ctx, o.done); err != nil { // else a result may be shown that was deleted
		return nil, err
	}
	w, err := s.Watch(ctx, o.done, embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := o.look(ctx, s); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.Events(): // also when the watch ends: then look again
			cancel()
		case <-waiting.Done():
		}
	}()
	hold, err := lock.NewMutex(s, queue.Child(o.path, "lock")).Lock(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		if over := o.look(ctx, s); over != nil {
			return nil, over
		}
	}
	return hold, err
}
