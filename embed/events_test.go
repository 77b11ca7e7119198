package embed_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// A panic of an observer is the service's defect, and so is a Goexit. It ends neither the process nor
// the calls.
func TestEvents_APanic(t *testing.T) {
	t.Parallel()
	for cause, fail := range map[string]func(){"a defect": func() { panic("a defect") }, "runtime.Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			logs := &embedkit.Journal{}
			var calls atomic.Int32
			e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
				c.Logger = logs.Logger()
				c.Events.LeaderChanged = func(embed.LeaderChange) { calls.Add(1); fail() }
			}})
			before := calls.Load()
			must(t, e.Node(1).Close())
			if before == 0 || calls.Load() <= before {
				t.Errorf("%s: %d calls, then %d", cause, before, calls.Load())
			}
			if !logs.Says("an observer of Config.Events panicked") || !logs.Says(cause) {
				t.Errorf("the log says nothing of %s", cause)
			}
		})
	}
}

// When Close has returned, no observer is called any more, however slow it is. What was queued before
// is told if there is time.
func TestEvents_NoneAfterClose(t *testing.T) {
	t.Parallel()
	for _, slow := range []time.Duration{0, time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var over atomic.Bool
			var last atomic.Pointer[embed.LeaderChange]
			e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
				c.Events.LeaderChanged = func(l embed.LeaderChange) {
					if last.Store(&l); over.Load() {
						t.Error("called after Close")
					}
					<-time.After(slow)
				}
			}})
			must(t, e.Node(1).Close())
			over.Store(true)
			if l := last.Load(); slow < time.Hour && l.Leader != 0 {
				t.Errorf("told last of %+v", l)
			}
			<-time.After(10 * time.Hour)
		})
	}
}

// An observer may close its node.
func TestEvents_AnObserverCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var node atomic.Pointer[embed.Node]
		closed := make(chan error, 1)
		e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Events.MembersChanged = func() {
				if n := node.Swap(nil); n != nil {
					closed <- n.Close()
				}
			}
			c.Events.LeaderChanged = func(embed.LeaderChange) {
				if n := node.Swap(nil); n != nil {
					closed <- n.Close()
				}
			}
		}})
		n := e.Node(1)
		node.Store(n)
		n.Close()
		if err := <-closed; err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	})
}
