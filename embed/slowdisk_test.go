package embed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// "A slow disk" of docs/runbook.md: the disk of the leader delays writes. As soon as another
// member leads, no write waits for that disk, from whichever member it comes.
func TestRunbook_ASlowDiskCostsLittleWhereNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100 * time.Millisecond
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		s := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		ctx := t.Context()
		_, err := s.Create(ctx, "/a", nil, embed.Persistent)
		must(t, err)
		write := func() time.Duration {
			began := time.Now()
			_, err := s.Set(ctx, "/a", nil, embed.AnyVersion)
			must(t, err)
			return time.Since(began)
		}
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: delay})
		waited := 0 // a write need not wait if the others have stored it and the leader knows
		for range 20 {
			if write() >= delay {
				waited++
			}
		}
		if waited == 0 {
			t.Errorf("no write waits for the leader's disk, leader %d", ens.Leader())
		}
		ens.TransferLeadership(2)
		write() // may have begun before the new leader serves
		for range 3 {
			if took := write(); took >= delay {
				t.Errorf("a write takes %v, and the disk of a member that does not lead %v", took, delay)
			}
		}
		must(t, ens.Node(1).Err())
	})
}
