package operationtest

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// M96, M113: an ensemble begins while its clock is fast, and the clock is set right. Whoever restores
// any of its backups, again or for the first time, gets larger fencing tokens.
func TestSeed_TokensGrowAfterAClockThatWasFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seeded := func(p *past, fast time.Duration) *embedtest.Ensemble {
			ens := embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) { c.Seed = p.seed }})
			ens.Faults(1).SetWallClock(fast)
			ens.Start(1)
			ens.Ready(1)
			return ens
		}
		ens := seeded(newPast(t, 1), 50*time.Minute)
		ens.Faults(1).SetWallClock(0)
		<-time.After(time.Minute)
		pasts := make([]past, 4)
		for i := range pasts { // the distance from the clock passes 2048 seconds
			var file bytes.Buffer
			_, err := ens.Node(1).Backup(t.Context(), &file)
			must(t, err)
			pasts[i].file = file.Bytes()
			<-time.After(5 * time.Minute)
		}
		ens.Kill(1)
		var last lock.Token
		for i := range 2 * len(pasts) {
			next := seeded(&pasts[i%len(pasts)], 0)
			hold, err := lock.NewMutex(next.Session(1, embed.SessionOptions{}), "/report").Lock(t.Context())
			must(t, err)
			if hold.Token().Zxid <= last.Zxid {
				t.Errorf("token %v after %v", hold.Token(), last)
			}
			last = hold.Token()
			next.Kill(1)
			<-time.After(time.Minute)
		}
	})
}
