package disktest

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// "A slow disk" of docs/runbook.md: the leader, whose disk is slow, hands its leadership over. From
// then on no write waits for that disk, even if it hangs. It is in real time: the log is locked
// while it waits for its disk, and the time of a bubble would stand still for others who want it.
func TestRunbook_ASlowDiskCostsLittleWhereNobodyLeads(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient})
	ens.TransferLeadership(1)
	s := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	ctx := bounded(t)
	_, err := s.Create(ctx, "/a", nil, embed.Persistent)
	must(t, err)
	ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: 20 * time.Millisecond})
	ens.TransferLeadership(2)
	ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Hour})
	defer ens.Faults(1).SetDisk(embedtest.Disk{})
	for range 10 {
		_, err := s.Set(ctx, "/a", nil, embed.AnyVersion)
		must(t, err)
	}
}
