package membertest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The tick of an ensemble is changed while it runs, one member after the other. A step of a factor
// of two only causes warnings. A member that goes further is refused. Both values are logged, and
// the member can come back with the right one.
func TestTick_CanBeChangedInSteps(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var log embedkit.Journal
		var tick atomic.Int64
		tick.Store(int64(embedtest.DefaultTick))
		ens := embedtest.New(t, 3, embedtest.Options{Logger: log.Logger(), Config: func(c *embed.Config) { c.Tick = time.Duration(tick.Load()) }})
		embedkit.Write(t, ens.Node(1), "/before")
		if log.Says("another tick") {
			t.Error("it warns of equal ticks")
		}
		tick.Store(int64(2 * embedtest.DefaultTick))
		ens.Stop(3)
		ens.Restart(3)
		embedkit.Write(t, ens.Node(3), "/changed")
		if !log.Says(`level=WARN msg="another tick than this member's"`) {
			t.Error("nobody warns")
		}

		tick.Store(int64(5 * embedtest.DefaultTick))
		ens.Stop(3)
		far := ens.Start(3)
		embedkit.Complaint(t, far, "Tick is", embedtest.DefaultTick.String(), (5 * embedtest.DefaultTick).String())
		if err := far.Err(); err != nil {
			t.Errorf("another config mends it, but the node has failed: %v", err)
		}
		embedkit.Write(t, ens.Node(1), "/meanwhile")

		tick.Store(int64(2 * embedtest.DefaultTick))
		ens.Kill(3)
		embedkit.Has(t, ens.Restart(3), "/before", "/changed", "/meanwhile")
	})
}
