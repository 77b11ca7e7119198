package gateway

import (
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// figures counts the traffic of one connection, or of all of them.
type figures struct {
	received, sent atomic.Int64 // requests; answers and events
	replies        atomic.Int64
	total          atomic.Int64 // nanoseconds from request to answer, over all answers
	least          atomic.Int64 // nanoseconds plus one; zero means none yet
	most           atomic.Int64
}

func (f *figures) answered(after time.Duration) {
	n := int64(max(after, 0))
	f.replies.Add(1)
	f.total.Add(n)
	for was := f.most.Load(); n > was && !f.most.CompareAndSwap(was, n); {
		was = f.most.Load()
	}
	for was := f.least.Load(); (was == 0 || n+1 < was) && !f.least.CompareAndSwap(was, n+1); {
		was = f.least.Load()
	}
}

func (f *figures) reset() {
	for _, v := range []*atomic.Int64{&f.received, &f.sent, &f.replies, &f.total, &f.least, &f.most} {
		v.Store(0)
	}
}

// latency returns milliseconds, as ZooKeeper shows them.
func (f *figures) latency() (least int64, mean float64, most int64) {
	if n := f.replies.Load(); n > 0 {
		mean = float64(f.total.Load()) / float64(n) / 1e6
	}
	return max(f.least.Load()-1, 0) / 1e6, mean, f.most.Load() / 1e6
}

// counted returns the number of answers, and their latency.
func (f *figures) counted() (n int64, mean float64, least, most int64) {
	least, mean, most = f.latency()
	return f.replies.Load(), mean, least, most
}

// counts are what mntr shows of the metrics, which are never reset: since the last srst.
type counts struct {
	received, sent uint64 // bytes
	connects       uint64 // handshakes, however they ended
	states         uint64 // whole states that this member has sent to others
	fsyncs         meter.Reading
}

// count returns the counts since the start.
func (g *Gateway) count() (c counts) {
	c.received, c.sent = g.meters.received.Read(), g.meters.sent.Read()
	for i := range g.meters.handshakes {
		c.connects += g.meters.handshakes[i].Read()
	}
	f := g.node.Engine.Figures()
	for i := range f.Shards {
		if raft := f.Shards[i].Raft; raft != nil {
			c.states += raft.Snapshots.Read()
		}
	}
	c.fsyncs = f.Fsyncs.Log.Read()
	return c
}

// counted returns the counts since the last srst.
func (g *Gateway) counted() counts {
	old := g.reset.Load() // first: the counts of a later srst may be larger
	c := g.count()
	if old == nil {
		return c
	}
	c.received -= old.received
	c.sent -= old.sent
	c.connects -= old.connects
	c.states -= old.states
	c.fsyncs = c.fsyncs.Less(old.fsyncs)
	return c
}
