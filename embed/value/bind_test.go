package value_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The pointer has the present value when Bind returns, then every newer one, and keeps the last
// good one. Nobody sees a value that is refused.
func TestBind_KeepsTheLastGoodValue(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, s := one(t)
		ctx := bounded(t)
		raw := value.New(s, path, value.Codec[string]{})
		put := func(text string) {
			t.Helper()
			_, err := raw.Set(ctx, text)
			must(t, err)
		}
		var p atomic.Pointer[config]
		p.Store(&config{Rate: 1, Name: "built in"})
		refused := make(chan error, 10)
		tooFast := errors.New("too fast")
		stop, err := value.Bind(ctx, s, path, value.JSON[config](), &p, value.BindOptions[config]{
			Validate: func(c config) error {
				if c.Rate > 100 {
					return tooFast
				}
				return nil
			},
			Refused: func(err error) { refused <- err },
		})
		must(t, err)
		rate := func(n int) func() bool {
			return func() bool {
				if now := p.Load().Rate; now > 100 {
					t.Errorf("the rate is %d", now)
				}
				return p.Load().Rate == n
			}
		}
		if !rate(1)() {
			t.Errorf("%v", p.Load())
		}
		put(`{"Rate":2}`)
		ens.Until("the value", rate(2))
		kept := p.Load()
		put(`{"Rate":`)
		put(`{"Rate":101}`)
		must(t, s.Delete(ctx, path, embed.AnyVersion))
		if err := <-refused; err == nil || !strings.Contains(err.Error(), "decode") {
			t.Errorf("%v", err)
		}
		wantErr(t, <-refused, tooFast)
		if p.Load() != kept {
			t.Errorf("%v", p.Load())
		}
		put(`{"Rate":3}`)
		ens.Until("the next value", rate(3))
		if kept.Rate != 2 {
			t.Error("a value that was loaded has changed")
		}

		again, err := value.Bind(ctx, s, path, value.JSON[config](), &p, value.BindOptions[config]{})
		must(t, err)
		for range 2 {
			must(t, stop())
		}
		must(t, s.Close())
		<-time.After(time.Second) // it ends with its session
		wantErr(t, again(), embed.ErrSessionClosed)
	})
}

// A service does not start with a value that it cannot use.
func TestBind_RefusesTheFirstValue(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		var p atomic.Pointer[config]
		_, err := value.New(s, path, value.Codec[string]{}).Set(ctx, "{")
		must(t, err)
		bind := func(s *embed.Session, path string) {
			t.Helper()
			if stop, err := value.Bind(ctx, s, path, value.JSON[config](), &p, value.BindOptions[config]{}); err == nil || stop != nil || p.Load() != nil {
				t.Errorf("%v, %v", p.Load(), err)
			}
		}
		bind(s, path)
		bind(s, "no/path")
		must(t, s.Close())
		bind(s, path)
	})
}

// What was bound and followed leaves no goroutine. Each poll of viper left one (viper#312).
func TestBind_LeavesNoGoroutine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens, s := one(t)
		ctx, cancel := context.WithCancel(bounded(t))
		for i := range 20 {
			var p atomic.Pointer[string]
			stop, err := value.Bind(ctx, s, path, value.Codec[string]{}, &p, value.BindOptions[string]{})
			must(t, err)
			if i%2 == 0 {
				must(t, stop())
			}
			for range value.New(s, path, value.Codec[string]{}).Changes(ctx) {
				break
			}
		}
		cancel()
		ens.Until("the goroutines to end", func() bool { return strings.Count(testkit.Stacks(), "embed/value.(*binding") == 0 })
	})
}

// stop may be called by Validate and Refused, and while they hang. It waits for neither, and
// nothing is stored after it.
func TestBind_StopInACallback(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		raw := value.New(s, path, value.Codec[string]{})
		for _, where := range []string{"Validate", "Validate, which accepts", "Refused", "beside Validate"} {
			_, err := raw.Set(ctx, "good")
			must(t, err)
			var p atomic.Pointer[string]
			var stop func() error
			called, hang := make(chan struct{}), make(chan struct{})
			bad := errors.New("bad")
			end, err := value.Bind(ctx, s, path, value.Codec[string]{}, &p, value.BindOptions[string]{
				Validate: func(x string) error {
					switch {
					case x == "good":
						return nil
					case where == "Refused":
						return bad
					case where == "beside Validate":
						close(called)
						<-hang
						return nil
					}
					must(t, stop())
					close(called)
					if where == "Validate" {
						return bad
					}
					return nil
				},
				Refused: func(error) {
					if where == "Refused" {
						must(t, stop())
						close(called)
					}
				},
			})
			must(t, err)
			stop = end
			_, err = raw.Set(ctx, "next")
			must(t, err)
			<-called
			must(t, stop())
			close(hang)
			_, err = raw.Set(ctx, "last")
			must(t, err)
			<-time.After(time.Second)
			if now := *p.Load(); now != "good" {
				t.Errorf("%s: %q was stored after stop", where, now)
			}
			must(t, stop())
		}
	})
}
