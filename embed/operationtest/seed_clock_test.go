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

// M96: an ensemble begins while its clock is fast, and the clock is set right. Whoever restores its
// backup again gets larger fencing tokens.
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
		var file bytes.Buffer
		_, err := ens.Node(1).Backup(t.Context(), &file)
		must(t, err)
		ens.Kill(1)
		var last lock.Token
		for range 3 {
			next := seeded(&past{file: file.Bytes()}, 0)
			hold, err := lock.NewMutex(next.Session(1, embed.SessionOptions{}), "/report").Lock(t.Context())
			must(t, err)
			if hold.Token().Zxid <= last.Zxid {
				t.Errorf("token %v after %v", hold.Token(), last)
			}
			last = hold.Token()
			next.Kill(1)
			<-time.After(10 * time.Minute)
		}
	})
}
