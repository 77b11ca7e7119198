package operationtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// M113: the loading of a backup dies at any part, and goes on after another ensemble has begun with
// the same backup and served. The later tokens are larger, on every shard.
func TestSeed_ResumedAfterAnotherOneHasServed(t *testing.T) {
	for _, shards := range []int{1, 4} {
		for after := time.Millisecond; after < 200*time.Millisecond; after *= 2 {
			synctest.Test(t, func(t *testing.T) {
				p := newPast(t, 1)
				stopped := func() *embedtest.Ensemble {
					return embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
						inParts(c)
						c.Shards, c.Seed = shards, p.seed
					}})
				}
				last := make(map[string]embed.Zxid)
				serves := func(ens *embedtest.Ensemble) {
					ens.Ready(1)
					s := p.session(ens, 1)
					for _, at := range embedkit.OnShard {
						hold, err := lock.NewMutex(s, at+"/lock").Lock(t.Context())
						must(t, err)
						if now := hold.Token().Zxid; now <= last[at] {
							t.Errorf("%d shards, %v, %s: token %#x after %#x", shards, after, at, now, last[at])
						}
						last[at] = hold.Token().Zxid
					}
				}
				first, second := stopped(), stopped()
				n := first.Start(1)
				for n.Status().Shards[0].Zxid < 1<<32 {
					<-time.After(time.Millisecond)
				}
				<-time.After(after)
				if n.Health().Ready {
					return // it dies too late
				}
				first.Kill(1)
				<-time.After(time.Minute)
				second.Start(1)
				serves(second)
				<-time.After(time.Minute)
				second.Kill(1)
				first.Restart(1)
				serves(first)
			})
		}
	}
}
