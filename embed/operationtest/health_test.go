package operationtest

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine"
)

// Health is false until the member is registered, stays true through elections, and follows the
// quorum. A failed node says why.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		n := ens.Node(1)
		ens.Ready(1)
		synctest.Wait()
		ready := n.Health()
		if !ready.Ready || ready.Waiting != "" || ready.Err != nil || time.Since(ready.Since) < 0 {
			t.Fatalf("ready: %+v", ready)
		}
		patience := engine.LongestElection(embedtest.DefaultTick)
		// Leaders change one after the other, as in a rolling restart, and nobody leads in between.
		for id := embed.MemberID(2); id <= 3; id++ {
			ens.Kill(id)
			for begin := time.Now(); time.Since(begin) < 2*patience; {
				if h := n.Health(); h != ready {
					t.Fatalf("without member %d: %+v, it was %+v", id, h, ready)
				}
				<-time.After(patience / 50)
			}
			ens.Start(id)
			ens.Ready(id)
		}
		ens.Kill(2)
		ens.Kill(3)
		<-time.After(3 * patience)
		if h := n.Health(); h.Ready || h.Err != nil || !h.Since.After(ready.Since) || !strings.Contains(h.Waiting, "no connection to member 2") || !strings.Contains(h.Waiting, "no leader") {
			t.Errorf("alone: %+v", h)
		}
		ens.Start(2)
		ens.Ready(1)
		<-time.After(patience)
		if h := n.Health(); !h.Ready || h.Waiting != "" || !h.Since.After(ready.Since) {
			t.Errorf("with a quorum again: %+v", h)
		}
		ens.Kill(1)
		<-n.Done()
		if h := n.Health(); h.Ready || !errors.Is(h.Err, embed.ErrFailed) || h.Waiting != h.Err.Error() || !strings.Contains(h.Waiting, "killed") {
			t.Errorf("failed: %+v", h)
		}
		other := ens.Node(2)
		ens.Stop(2)
		if h := other.Health(); h.Ready || !errors.Is(h.Err, embed.ErrClosed) {
			t.Errorf("closed: %+v", h)
		}
	})
}
