package embed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// D3: a consumer that reads nothing finds every event that fitted, in order, and then the end with
// its reason. It delays neither the writer nor another watch, and its session lives. A full buffer
// is not yet an overflow.
//
// (etcd#17529: one that was starved lost events and was not told.)
func TestWatch_AConsumerThatReadsNothingIsToldSo(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, s := bounded(t), embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{Timeout: time.Minute})
		watch := func(path string, mode embed.WatchMode) *embed.Watch {
			t.Helper()
			w, err := s.Watch(ctx, path, mode)
			must(t, err)
			return w
		}
		wantOverflow := func(w *embed.Watch, first embed.Zxid) {
			t.Helper()
			told, over := embedkit.Drain(w)
			if len(told) != embedkit.WatchBuffer || !over || !errors.Is(w.Err(), embed.ErrWatchOverflow) {
				t.Errorf("told of %d changes, ended %v: %v", len(told), over, w.Err())
			}
			for i, e := range told {
				if e.Type != embed.NodeDataChanged || e.Path != "/w" || e.Zxid != first+embed.Zxid(i) {
					t.Errorf("event %d is %v", i, e)
				}
			}
		}
		_, err := s.Create(ctx, "/w", nil, embed.Persistent)
		must(t, err)
		idle, deep, once, read := watch("/w", embed.WatchPersistent), watch("/", embed.WatchRecursive), watch("/w", embed.WatchOnce), watch("/w", embed.WatchPersistent)
		first := idle.Zxid() + 1
		for i := range embedkit.WatchBuffer + 1 {
			if err := errors.Join(idle.Err(), deep.Err()); err != nil {
				t.Fatalf("after %d changes: %v", i, err)
			}
			stat, err := s.Set(ctx, "/w", nil, embed.AnyVersion)
			must(t, err)
			if e := <-read.Events(); e.Zxid != stat.Mzxid {
				t.Fatalf("change %d is told as %v", stat.Mzxid, e)
			}
		}
		wantOverflow(idle, first)
		wantOverflow(deep, first)
		if told, over := embedkit.Drain(once); len(told) != 1 || !over || once.Err() != nil {
			t.Errorf("once: %v, %v: %v", told, over, once.Err())
		}

		// A single transaction can have more events than fit.
		burst := watch("/", embed.WatchRecursive)
		var ops []embed.Op
		for range embedkit.WatchBuffer + 1 {
			ops = append(ops, embed.OpSet("/w", nil, embed.AnyVersion))
		}
		results, err := s.Multi(ctx, ops...)
		must(t, err)
		told, over := embedkit.Drain(burst)
		if len(told) != embedkit.WatchBuffer || !over || !errors.Is(burst.Err(), embed.ErrWatchOverflow) || told[0].Zxid != results[0].Stat.Mzxid {
			t.Errorf("of one transaction told of %d changes, ended %v: %v", len(told), over, burst.Err())
		}
		must(t, s.Err())
	})
}

// Watch refuses modes that this package does not define, even those that package watch has for
// clients of the gateway.
func TestWatch_UnknownModes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{})
		for mode := embed.WatchMode(0); mode < 8; mode++ {
			_, err := s.Watch(bounded(t), "/a", mode)
			if known := mode <= embed.WatchRecursive; known != (err == nil) || !known && !errors.Is(err, embed.ErrInvalidMode) {
				t.Errorf("mode %d: %v", mode, err)
			}
		}
	})
}
