package promisetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// C12.3: All members write while the leadership goes round. Each transfer is over long before the
// leader would give it up, after an election timeout in which nobody can write.
func TestHandover_WhileMuchIsWritten(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = time.Minute }})
		embedkit.Write(t, ens.Node(1), "/n")
		embedkit.Distant(ens, time.Millisecond)
		var acked atomic.Int64
		var over atomic.Bool
		var callers sync.WaitGroup
		for _, id := range ens.Members() {
			s := ens.Session(id, embed.SessionOptions{Timeout: time.Minute})
			for range 8 {
				callers.Go(func() {
					for !over.Load() {
						if _, err := s.Set(t.Context(), "/n", nil, embed.AnyVersion); err != nil {
							t.Error(err)
							return
						}
						acked.Add(1)
						breathe()
					}
				})
			}
		}
		shards := len(ens.Node(1).Status().Shards)
		for i := range 24 {
			before := acked.Load()
			ens.Until("some writes", func() bool { return acked.Load() > before+100 || t.Failed() })
			to, began := ens.Members()[i%3], time.Now()
			ens.TransferLeadership(to)
			const electionTicks = 10
			most := time.Duration(shards) * electionTicks / 2 * embedtest.DefaultTick
			if took := time.Since(began); took > most && !testkit.Night() {
				t.Errorf("%v until member %d leads", took, to)
			}
		}
		over.Store(true)
		callers.Wait()
	})
}
