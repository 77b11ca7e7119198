package lock

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func init() { onDefect = func(what string) { panic(what) } }

// An impossible change of a kept lock's state is a defect, but does not panic in the service's
// process. The lock is given up, its Hold ends, and the Mutex can acquire the lock again.
func TestKept_ImpossibleChange(t *testing.T) {
	var defects atomic.Int64
	usual := onDefect
	onDefect = func(string) { defects.Add(1) }
	t.Cleanup(func() { onDefect = usual })
	ctx := testkit.Context(t)
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute, SessionTimeout: time.Minute})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	testkit.Must(t, err)
	failed := errors.New("failed")
	for name, do := range map[string]func(k *kept, h *Hold){
		"release": func(_ *kept, h *Hold) { testkit.Must(t, h.Release()) },
		"enter": func(k *kept, _ *Hold) {
			_, err := k.enter(ctx, "lock", func(context.Context) (*Hold, error) { return nil, failed })
			testkit.WantErr(t, err, failed)
		},
		"quit": func(k *kept, _ *Hold) {
			c := &caller{granted: make(chan *Hold, 1)}
			c.granted <- nil
			k.quit(c)
		},
		"lost": func(_ *kept, h *Hold) { testkit.Must(t, h.contender.Claim.Release()) },
	} {
		m := NewMutex(s, "/"+name).With(Options{Keep: time.Hour})
		h, err := m.Lock(ctx)
		testkit.Must(t, err)
		k := m.kept
		k.mu.Lock()
		k.mu.state = keptFree
		k.mu.Unlock()
		before := defects.Load()
		do(k, h)
		testkit.Until(t, name+": a defect", func() bool { return defects.Load() > before })
		testkit.Until(t, name+": the end of the claim", func() bool { return h.Err() != nil && h.contender.Claim.Err() != nil })
		next, err := m.Lock(ctx)
		testkit.Must(t, err)
		testkit.Must(t, next.Release())
		again, err := m.Lock(ctx)
		testkit.Must(t, err)
		testkit.Must(t, again.Release())
	}
}
