package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// stuckTime is the time between two calls of Options.Stuck.
const stuckTime = 10 * time.Second

// A team is the parts of a member that it owns or should own, each with a goroutine. Only the
// goroutine of share uses it; the goroutines of parts use work.
type team struct {
	// Immutable.
	r      *runner
	keys   *lock.Keys
	ctx    context.Context // of all parts
	cancel context.CancelCauseFunc
	ended  chan end       // unbuffered
	talks  sync.WaitGroup // the goroutines that tell of stuck functions

	members []member        // of whom want was computed
	want    map[string]bool // what the member should own
	parts   map[string]*worker
}

// A worker is the goroutine of one part.
type worker struct {
	cancel context.CancelCauseFunc
	moves  bool // its ctx has ended
}

// An end tells that the goroutine of a part has ended. The error is one for which Run must end.
type end struct {
	part string
	err  error
}

func newTeam(ctx context.Context, r *runner, s *embed.Session) *team {
	t := &team{r: r, ended: make(chan end), parts: make(map[string]*worker)}
	below := partsName
	if r.o.Kazoo {
		below = kazooPartsName
	}
	t.keys = lock.NewKeys(s, queue.Child(r.dir, below))
	t.keys = t.keys.With(lock.KeysOptions{Lock: lock.Options{Note: r.o.ID, Kazoo: r.o.Kazoo}})
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	return t
}

// followLoop starts and stops the goroutines of parts as members come and go. It ends with ctx, when
// the member is lost, and with an error for which Run must end.
func (t *team) followLoop(ctx context.Context, me *claim.Claim, look *watcher) error {
	settled := &settled{after: t.r.o.Settle, eager: t.r.o.Kazoo}
	defer settled.stop()
	for {
		select {
		case <-look.changed:
			settled.see(look.members())
			t.change(settled.members)
		case <-settled.over():
			settled.accept()
			t.change(settled.members)
		case e := <-t.ended:
			if e.err != nil {
				t.forget(e.part)
				return e.err
			}
			t.again(e.part)
		case <-look.done:
			return nil // with the session
		case <-me.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// change makes the parts that the member should own those that it gets from all members.
func (t *team) change(members []member) {
	if slices.Equal(members, t.members) {
		return
	}
	t.members = members
	want := t.r.owns(members)
	t.want = want
	for part, w := range t.parts {
		if !want[part] && !w.moves {
			w.moves = true
			w.cancel(ErrMoved)
		}
	}
	for part := range want {
		if t.parts[part] == nil {
			t.start(part)
		}
	}
}

// owns returns the parts that the member should own.
func (r *runner) owns(members []member) map[string]bool {
	want := make(map[string]bool)
	if r.o.Kazoo {
		for _, part := range kazooParts(r.o.ID, members, r.parts) {
			want[part] = true
		}
		return want
	}
	for part, owner := range assign(members) {
		if owner == r.o.ID {
			want[part] = true
		}
	}
	return want
}

func (t *team) start(part string) {
	w := new(worker)
	ctx, cancel := context.WithCancelCause(t.ctx)
	w.cancel = cancel
	t.parts[part] = w
	go func() { t.ended <- end{part, t.work(ctx, part)} }()
}

// again starts the goroutine of a part once more if the part has come back while it stopped.
func (t *team) again(part string) {
	t.forget(part)
	if t.want[part] {
		t.start(part)
	}
}

func (t *team) forget(part string) {
	t.parts[part].cancel(nil)
	delete(t.parts, part)
}

// stop ends all goroutines and waits for them. It returns their errors for which Run must end.
func (t *team) stop(why error) (err error) {
	t.cancel(why) // nil means context.Canceled
	for len(t.parts) > 0 {
		e := <-t.ended
		t.forget(e.part)
		err = errors.Join(err, e.err)
	}
	t.talks.Wait()
	return err
}

// work owns a part again and again until ctx ends. It returns an error only if Run must end.
func (t *team) work(ctx context.Context, part string) error {
	for ctx.Err() == nil {
		hold, err := t.keys.Lock(ctx, part)
		if err != nil {
			if err := final(err); err != nil && ctx.Err() == nil {
				return err
			}
		} else {
			err = t.call(ctx, part, hold)
			owns := ctx.Err() == nil && hold.Err() == nil
			_ = hold.Release() // if it cannot be sent, the node keeps trying until the session ends
			if err != nil && owns {
				return fmt.Errorf("part %s: %w", part, err)
			}
		}
		if !sessions.Pause(ctx) {
			break
		}
	}
	return nil
}

// call calls the function of a part.
func (t *team) call(ctx context.Context, part string, hold *lock.Hold) error {
	both, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	if t.r.o.Stuck != nil {
		returned := make(chan struct{})
		defer close(returned)
		t.talks.Go(func() { t.stuckLoop(both, part, returned) })
	}
	return t.r.fn(both, part, hold)
}

// stuckLoop tells that a function does not return after its ctx has ended.
func (t *team) stuckLoop(ctx context.Context, part string, returned <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-returned:
		return
	}
	begun := time.Now()
	tick := time.NewTicker(stuckTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-returned:
			return
		}
		select {
		case <-returned: // at the same time
			return
		default:
			t.r.o.Stuck(part, time.Since(begun))
		}
	}
}
