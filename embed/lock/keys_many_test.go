package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Very many keys are used once each, over a quarter of an hour, or over an hour by night. What they
// take is bounded all the time by what is kept and what was used in the last minutes, and nothing
// is left at the end (conductor-community#246).
func TestKeys_VeryManyOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(c *embed.Config) { c.Tick = 100 * time.Millisecond }
		ens := embedtest.New(t, 1, embedtest.Options{Config: slow})
		s, look := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		size := func() (znodes int, bytes int64) {
			znodes, err := look.CountDescendants(t.Context(), "/")
			must(t, err)
			return znodes, ens.Node(1).Status().Shards[0].TreeSize
		}
		<-time.After(time.Minute) // the member has said where it is
		atFirst, bytesAtFirst := size()
		const pause, kept = 3600 * time.Millisecond, 50
		callers, each := 20, 250
		if testkit.Night() {
			callers, each = 100, 1000
		}
		keys := keyed(s, 10*time.Second, kept)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for i := range each {
					<-time.After(pause)
					h, err := keys.Lock(t.Context(), fmt.Sprint(caller, "/", i))
					if err == nil {
						err = h.Release()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		most := 0
		for range each / 10 {
			<-time.After(10 * pause)
			if n := lock.KeptBy(keys); n > kept+callers {
				t.Fatalf("%d locks are remembered", n)
			}
			n, _ := size()
			most = max(most, n-atFirst)
		}
		wg.Wait()
		must(t, s.Close())             // and with it what is kept
		<-time.After(10 * time.Minute) // the ensemble removes what is empty
		n, bytes := size()
		if n != atFirst || bytes != bytesAtFirst || lock.KeptBy(keys) > 0 {
			t.Errorf("%d znodes of %d bytes, were %d of %d; %d locks are remembered", n, bytes, atFirst,
				bytesAtFirst, lock.KeptBy(keys))
		}
		// A container goes within two minutes; a lock that is kept has two znodes.
		if bound := callers*int(2*time.Minute/pause) + 2*(kept+callers); most > bound {
			t.Errorf("%d znodes at a time, want at most %d", most, bound)
		}
		t.Logf("at most %d znodes at a time for %d keys", most, callers*each)
	})
}
