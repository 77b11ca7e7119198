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

// M160: callers who wait for a kept lock give up at once. Each of them takes itself out of the queue
// and looks at no other.
func TestKept_QuitLooksAtNoOtherCaller(t *testing.T) {
	k := newKept(nil)
	k.mu.state = keptHeld
	callers := make([]*caller, 100)
	for i := range callers {
		callers[i] = new(caller)
		callers[i].at = k.mu.queue.PushBack(callers[i])
	}
	for _, i := range []int{99, 50, 0} {
		for _, c := range callers {
			c.at.Value = nil // who looks at it panics
		}
		k.quit(callers[i])
	}
	if n := k.mu.queue.Len(); n != 97 {
		t.Errorf("%d callers wait, want 97", n)
	}
	for _, c := range callers {
		c.at.Value = c
	}
	k.mu.state = keptEntering
	granted := callers[1]
	granted.granted = make(chan *Hold, 1)
	k.changeLocked(keptFree)
	k.nextLocked()
	if h, ok := <-granted.granted; h != nil || !ok || granted.at != nil || k.mu.queue.Len() != 96 {
		t.Errorf("the next caller got %v, and %d others wait", h, k.mu.queue.Len())
	}
}
