package replication

import (
	"fmt"
	"io"
	"sync"
	"testing"
)

// C11.1: dragonboat gives each shard to one of its apply workers. If one worker served all shards,
// a shard with a slow machine would keep the others from applying.
func TestShards_ASlowOneKeepsNoOtherFromApplying(t *testing.T) {
	e := found(t, 1, 3)
	stuck, release := make(chan struct{}), make(chan struct{})
	e.prepare = func(n *node) {
		n.tapes[0].onApply = func(Entry) {
			close(stuck)
			<-release
		}
	}
	n := e.nodes[0]
	e.start(n)
	defer close(release)
	awaitLeader(t, n, 1)
	if _, err := n.host.Propose(1, []byte("slow")); err != nil {
		t.Fatal(err)
	}
	<-stuck
	for _, shard := range []ShardID{2, 3} {
		e.write(n, shard, "quick")
	}
}

// C11.2: A stream to a slow member holds a snapshot worker for its whole length. The snapshots that
// cut the logs of the shards must not wait for it.
func TestStream_ASlowOneKeepsNoShardFromItsSnapshots(t *testing.T) {
	e := found(t, 3, 2)
	streaming, release := make(chan *node, 3), make(chan struct{})
	e.prepare = func(n *node) {
		n.host.keepEntries = 1
		var once sync.Once
		n.tapes[0].onWrite = func(io.Writer) error {
			once.Do(func() { streaming <- n })
			<-release
			return nil
		}
	}
	e.startAll()
	defer close(release)
	for shard := ShardID(1); shard <= 2; shard++ {
		e.write(e.nodes[0], shard, "warm")
	}
	behind := e.nodes[awaitLeader(t, e.nodes[0], 1).Member%3]
	e.stop(behind)
	others := slicesWithout(e.nodes, behind)
	for i := range 10 {
		e.write(others[0], 1, fmt.Sprintf("missed-%d", i))
	}
	for _, n := range others { // the new leader then has to stream
		e.barrier(n, 1)
		snapshotNow(t, n)
		eventually(t, "cut log", func() bool { return compacted(n) })
	}
	e.start(behind)
	sender := <-streaming
	e.write(sender, 2, "meanwhile")
	index := sender.tapes[1].lastIndex()
	if err := sender.host.RequestSnapshot(2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a snapshot of the other shard", func() bool {
		ss, err := sender.host.store.GetSnapshot(2, uint64(sender.id))
		if err != nil {
			t.Fatal(err)
		}
		return ss.OnDiskIndex >= index
	})
}
