package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// free checks that nobody has the lock.
func free(t *testing.T, s *embed.Session) {
	t.Helper()
	_, err := s.Sync(bounded(t), path) // its member may not know yet about a release on another
	must(t, err)
	h, err := lock.NewMutex(s, path).TryLock(bounded(t))
	must(t, err)
	release(t, h)
}

func TestDo_RunsUnderTheLockAndGivesItBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		var last lock.Token
		ctx := context.WithValue(bounded(t), key{}, "value")
		deadline, _ := ctx.Deadline()
		for range 3 {
			must(t, lock.Do(ctx, ens.Opener(1), path, func(ctx context.Context, token lock.Token) error {
				if token.Compare(last) <= 0 {
					t.Errorf("token %v after %v", token, last)
				}
				last = token
				if _, err := lock.NewMutex(s, path).TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("inside Do: %v", err)
				}
				if ctx.Value(key{}) != "value" || ctx.Err() != nil {
					t.Errorf("ctx: value %v, %v", ctx.Value(key{}), ctx.Err())
				}
				if at, ok := ctx.Deadline(); !ok || !at.Equal(deadline) {
					t.Errorf("deadline %v, %v, want %v", at, ok, deadline)
				}
				return nil
			}))
			free(t, s)
		}
	})
}

func TestDo_ReturnsTheErrorOfFn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		want := errors.New("wanted")
		if err := lock.Do(bounded(t), ens.Opener(1), path, func(context.Context, lock.Token) error { return want }); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
		free(t, ens.Session(1, embed.SessionOptions{}))
	})
}

func TestDo_APanicGivesTheLockBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = lock.Do(bounded(t), ens.Opener(1), path, func(context.Context, lock.Token) error { panic("oops") })
		}()
		free(t, ens.Session(1, embed.SessionOptions{}))
	})
}

// The Hold is lost while fn works. Its ctx ends with the reason, and Do returns an error.
func TestDo_SaysThatTheHoldWasLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		err := lock.Do(bounded(t), ens.Opener(1), path, func(ctx context.Context, _ lock.Token) error {
			must(t, s.Delete(bounded(t), path+"/"+queued(t, s)[0], embed.AnyVersion)) // which ends ctx
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), embed.ErrDeleted) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return nil
		})
		if !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("got %v", err)
		}
	})
}

// The caller's ctx ends while fn works, or while Do waits for the lock.
func TestDo_EndsWithItsCtx(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bounded(t))
		err := lock.Do(ctx, ens.Opener(1), path, func(ctx context.Context, _ lock.Token) error {
			waiting, stop := context.WithCancel(ctx)
			go stop()
			if err := lock.Do(waiting, ens.Opener(1), path, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled wait: %v", err)
			}
			cancel(why)
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), why) {
				t.Errorf("at once: %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		free(t, ens.Session(1, embed.SessionOptions{}))
	})
}

// The quorum goes away as fn returns. fn has done its work under the lock, from beginning to end.
// If nobody can be told that the lock is free, that is no reason to do the work again. Closing
// waits once, not for one thing after the other. In CURATOR-41 the error of the clean-up replaced
// the one that mattered.
func TestDo_TheFarewellIsNotItsOutcome(t *testing.T) {
	wanted := errors.New("wanted")
	for name, want := range map[string]error{"fn succeeds": nil, "fn fails": wanted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				const patience = 3 * time.Second
				ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = patience }})
				ens.TransferLeadership(2)
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				var ran time.Time
				err := lock.Do(ctx, ens.Opener(1), path, func(context.Context, lock.Token) error {
					ens.Isolate(1)
					ens.Until("the quorum to be away", func() bool { return ens.Node(1).Status().Shards[0].Leader == 0 })
					cancel()
					ran = time.Now()
					return want
				})
				if err != want {
					t.Errorf("Do says %v, fn %v", err, want)
				}
				// Two waits would take this long. In real time a single one may, on a busy machine.
				if took := time.Since(ran); took >= 2*patience && !testkit.Night() {
					t.Errorf("Do returned %v after fn, it may wait %v", took, patience)
				}
				ens.HealAll()
				s := ens.Session(2, embed.SessionOptions{})
				ens.Until("the lock to be free", func() bool { return len(queued(t, s)) == 0 })
			})
		})
	}
}

// The Hold is lost while fn works, and fn does not notice. It may not have been alone.
func TestDo_SaysThatTheHoldWasLostWithTheQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 100 * time.Millisecond }})
		ens.TransferLeadership(2)
		err := lock.Do(bounded(t), ens.Opener(1), path, func(ctx context.Context, _ lock.Token) error {
			ens.Isolate(1)
			ens.Faults(1).Sleep(embed.DefaultSessionTimeout)
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, embed.ErrSuspended) || errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("got %v", err)
		}
	})
}
