package embed_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A faulty logger fails in Enabled, WithAttrs and Handle, from the moment that a test wants.
type faulty struct {
	slog.Handler
	fault *atomic.Pointer[func()] // nil: none yet
}

func newFaulty() faulty { return faulty{slog.DiscardHandler, new(atomic.Pointer[func()])} }

func (f faulty) fail() {
	if fault := f.fault.Load(); fault != nil {
		(*fault)()
	}
}

func (f faulty) Enabled(_ context.Context, l slog.Level) bool { f.fail(); return l >= slog.LevelInfo }
func (f faulty) Handle(context.Context, slog.Record) error    { f.fail(); return nil }
func (f faulty) WithAttrs([]slog.Attr) slog.Handler           { f.fail(); return f }
func (f faulty) WithGroup(string) slog.Handler                { f.fail(); return f }

// withFaults runs a test with a logger that hangs, panics or ends its goroutine, once fault is
// called. It is the logger of member 1 of three, which leads, and of dragonboat. These tests are not
// parallel, as dragonboat may call the logger from another test's bubble.
func withFaults(t *testing.T, test func(t *testing.T, e *embedtest.Ensemble, fault func())) {
	free := make(map[string]chan struct{})
	for name, fail := range map[string]func(){
		"hangs":  func() { <-free["hangs"] },
		"panics": func() { panic("a defect of the service") },
		"exits":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				free[name] = make(chan struct{})
				log := newFaulty()
				e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
					if c.ID == 1 {
						c.Logger = slog.New(log)
					}
				}})
				e.TransferLeadership(1)
				defer close(free[name])
				defer log.fault.Store(nil)
				test(t, e, func() { log.fault.Store(&fail) })
			})
		})
	}
}

// A member whose logger fails has its links again after a cut, and serves.
func TestLogger_AFaultKeepsTheLinks(t *testing.T) {
	withFaults(t, func(t *testing.T, e *embedtest.Ensemble, fault func()) {
		fault()
		e.Isolate(1)
		<-time.After(10 * time.Second)
		e.HealAll()
		<-time.After(time.Minute)
		if err := e.Node(1).Ready(bounded(t)); err != nil {
			t.Error(err)
		}
	})
}

// A leader whose logger fails applies what is logged while it is applied.
func TestLogger_AFaultDoesNotStopApplying(t *testing.T) {
	withFaults(t, func(t *testing.T, e *embedtest.Ensemble, fault func()) {
		s := e.Session(1, embed.SessionOptions{})
		create := func(path, data string) {
			t.Helper()
			_, err := s.Create(bounded(t), path, []byte(data), embed.Persistent)
			must(t, err)
		}
		create("/limited", "")
		create("/zookeeper/quota/limited", "")
		create("/zookeeper/quota/limited/zookeeper_limits", "count=2")
		create("/zookeeper/quota/limited/zookeeper_stats", "")
		fault()
		for _, path := range []string{"/limited/a", "/limited/b", "/limited/c", "/x"} {
			create(path, "")
		}
		if n := e.Node(1).Status().Shards[0].OverSoftQuota; n == 0 && len(e.Node(1).Status().Shards) == 1 {
			t.Error("nothing was to be logged")
		}
		<-time.After(time.Minute)
		if h := e.Node(1).Health(); !h.Ready {
			t.Errorf("%+v", h)
		}
	})
}

// A member whose logger fails says when it has lost its quorum.
func TestLogger_AFaultDoesNotFreezeHealth(t *testing.T) {
	withFaults(t, func(t *testing.T, e *embedtest.Ensemble, fault func()) {
		fault()
		e.Kill(2)
		e.Kill(3)
		<-time.After(time.Minute)
		if h := e.Node(1).Health(); h.Ready {
			t.Errorf("without a quorum: %+v", h)
		}
	})
}

// The end of a node waits a second for a logger that fails, and leaves nothing behind: a start
// follows.
func TestLogger_AFaultDoesNotHoldClose(t *testing.T) {
	withFaults(t, func(t *testing.T, e *embedtest.Ensemble, fault func()) {
		fault()
		began := time.Now()
		e.Stop(1)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		e.Start(1)
		e.Ready(1)
	})
}

// A Logger and an Audit that both hang, as those do that write to one pipe, hold Close no longer than
// it says.
func TestLogger_HangsBesideAudit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, free := newFaulty(), make(chan struct{})
		hang := func() { <-free }
		e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Logger = slog.New(log)
			c.Audit = func(embed.AuditRecord) { log.fail() }
		}})
		s := e.Session(1, embed.SessionOptions{})
		log.fault.Store(&hang)
		_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
		must(t, err)
		began := time.Now()
		must(t, e.Node(1).Close())
		if took := time.Since(began); took > embed.DefaultRequestTimeout+2*time.Second {
			t.Errorf("Close took %v", took)
		}
		log.fault.Store(nil)
		close(free)
	})
}
