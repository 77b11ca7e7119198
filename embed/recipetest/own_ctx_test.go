package recipetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// with calls test with ctxs that hang on another one: itself, and one that is derived from it.
func with(t *testing.T, test func(t *testing.T, derive func(context.Context) context.Context)) {
	for name, derive := range map[string]func(t *testing.T, ctx context.Context) context.Context{
		"itself": func(_ *testing.T, ctx context.Context) context.Context { return ctx },
		"with a deadline": func(t *testing.T, ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, func(ctx context.Context) context.Context { return derive(t, ctx) })
			})
		})
	}
}

// A leader gives its leadership to a candidate, with the ctx that ends when it does. The candidate
// leads, and nobody else.
func TestTransfer_WithTheCtxThatItEnds(t *testing.T) {
	for name, of := range map[string]func(fn context.Context, l *election.Leadership) context.Context{
		"of Run":            func(fn context.Context, l *election.Leadership) context.Context { return fn },
		"of the leadership": func(fn context.Context, l *election.Leadership) context.Context { return l.Context() },
	} {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, derive func(context.Context) context.Context) {
				ens := embedtest.New(t, 1, embedtest.Options{})
				ctx, stop := context.WithCancel(t.Context())
				begun, given, over := make(chan *election.Leadership, 1), make(chan error, 1), make(chan error, 1)
				to := make(chan string)
				go func() {
					over <- election.RunWith(ctx, ens.Node(1), "/e", nil, election.Options{}, func(fn context.Context, l *election.Leadership) error {
						begun <- l
						given <- l.Transfer(derive(of(fn, l)), <-to)
						return nil
					})
				}()
				<-begun
				got := make(chan string, 2)
				var chosen string
				for _, name := range []string{"first", "second"} {
					c, err := election.New(ens.Session(1, embed.SessionOptions{}), "/e").Enter(ctx, []byte(name), election.Options{})
					must(t, err)
					chosen = c.Path()
					go func() {
						if _, err := c.Wait(ctx); err == nil {
							got <- name
						}
					}()
				}
				synctest.Wait()
				to <- chosen
				must(t, <-given)
				if name := <-got; name != "second" {
					t.Errorf("%s leads", name)
				}
				stop()
				must(t, is(<-over, context.Canceled))
			})
		})
	}
}

// The end of what Run hangs on ends a Transfer, also after the leadership has ended.
func TestTransfer_EndsWithTheCtxOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx, stop := context.WithCancel(t.Context())
		c := make(chan string)
		given, over := make(chan error, 1), make(chan error, 1)
		go func() {
			over <- election.RunWith(ctx, ens.Node(1), "/e", nil, election.Options{}, func(fn context.Context, l *election.Leadership) error {
				given <- l.Transfer(fn, <-c) // the candidate does not answer
				return nil
			})
		}()
		synctest.Wait()
		stands, err := election.New(ens.Session(1, embed.SessionOptions{}), "/e").Enter(ctx, nil, election.Options{})
		must(t, err)
		c <- stands.Path()
		<-time.After(time.Second)
		began := time.Now()
		stop()
		must(t, is(<-given, context.Canceled))
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
		must(t, is(<-over, context.Canceled))
	})
}

// What ends a Hold or a leadership and goes on may be called with its ctx.
func TestHold_IsChangedWithItsOwnCtx(t *testing.T) {
	with(t, func(t *testing.T, derive func(context.Context) context.Context) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		rw := lock.NewRWMutex(s, "/rw")
		read, err := rw.RLock(t.Context())
		must(t, err)
		write, err := rw.Upgrade(derive(read.Context()), read)
		must(t, err)
		read, err = rw.Downgrade(derive(write.Context()), write)
		must(t, err)
		must(t, errors.Join(read.Err(), read.Context().Err(), read.Release()))

		l, err := election.New(s, "/e").Campaign(t.Context(), nil)
		must(t, err)
		c, err := l.Requeue(derive(l.Context()))
		must(t, err)
		l, err = c.Wait(t.Context())
		must(t, err)
		must(t, errors.Join(l.Err(), l.Resign()))
	})
}

// Who evicts itself learns that it has.
func TestEvict_WithTheCtxThatItEnds(t *testing.T) {
	with(t, func(t *testing.T, derive func(context.Context) context.Context) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		hold, err := lock.NewMutex(s, "/lock").Lock(t.Context())
		must(t, err)
		must(t, lock.Evict(derive(hold.Context()), s, hold.Path()))
	})
}

// A function that Supervise calls ends its node with the ctx that it was given.
func TestSupervise_EndsItsNodeWithItsCtx(t *testing.T) {
	must(t, embed.Supervise(t.Context(), embed.Config{Dir: t.TempDir()}, func(ctx context.Context, n *embed.Node) error {
		if _, err := n.NewSession(ctx, embed.SessionOptions{}); err != nil {
			return err
		}
		return n.Shutdown(ctx)
	}))
}
