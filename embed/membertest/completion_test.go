package membertest

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// M87: the first start after a recovery takes long, because the disk stands still for a while. Nobody
// is admitted before it is complete: the lost majority may have given the next ids.
func TestRecover_AdmitsNobodyBeforeItIsComplete(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var armed, stood atomic.Bool
		var renames atomic.Int64
		e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Shards = 3
			if c.ID != 1 {
				return
			}
			c.Inside = &inside.Seams{Fault: func(op disk.Op, name string) error {
				switch {
				case !armed.Load():
				case op == disk.OpRename && strings.Contains(name, "identity"):
					renames.Add(1)
				case renames.Load() >= 2 && strings.Contains(name, "node-2-") && stood.CompareAndSwap(false, true):
					<-time.After(4 * time.Second)
				}
				return nil
			}}
		}})
		ofAge(e)
		writes(t, e, 1, "/a")
		embedkit.Synced(t, e.Node(1))
		killAll(e)
		must(t, e.Recover(1, 2, 3))
		joiner := e.Join()
		armed.Store(true)
		e.Start(1)
		e.Ready(1)
		e.Ready(joiner)
		if id := e.Node(joiner).Status().Member; !stood.Load() || id < 1000 {
			t.Errorf("the disk stood still: %v; the new member is %d", stood.Load(), id)
		}
	})
}
