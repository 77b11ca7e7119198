package replication

import (
	"fmt"
	"testing"
)

// BenchmarkWrite proposes one command of 64 bytes at a time and waits until it is applied on the
// leader. It reports the fsyncs of all members; each write costs every member one. The carrier is
// in memory.
//
//	go test -run '^$' -bench Write ./replication
func BenchmarkWrite(b *testing.B) {
	for _, members := range []int{1, 3} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			e := found(b, members, 1)
			e.tick = DefaultTick
			e.startAll()
			e.write(e.nodes[0], 1, "warm")
			n := e.node(awaitLeader(b, e.nodes[0], 1).Member)
			applied := make(chan struct{}, 1)
			e.write(n, 1, "warmer")
			m := n.tapes[0]
			m.mu.Lock()
			m.onApply = func(Entry) { applied <- struct{}{} }
			m.mu.Unlock()
			before := uint64(0)
			for _, o := range e.nodes {
				before += o.disk.Syncs()
			}
			cmd := make([]byte, 64)
			for b.Loop() {
				if _, err := n.host.Propose(1, cmd); err != nil {
					b.Fatal(err)
				}
				<-applied
			}
			after := uint64(0)
			for _, o := range e.nodes {
				after += o.disk.Syncs()
			}
			b.ReportMetric(float64(after-before)/float64(b.N), "fsyncs/op")
		})
	}
}
