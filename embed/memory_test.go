package embed_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// What a node kept in memory is the host's again when it is closed, although the host may keep the Node, and dragonboat's metrics keep
// what belongs to the first one of a process.
func TestClose_GivesTheMemoryBack(t *testing.T) {
	inUse := func() int {
		runtime.GC()
		runtime.GC() // what the first one found in pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	ens := embedtest.New(t, 1, embedtest.Options{})
	s := ens.Session(1, embed.SessionOptions{})
	const znodes = 64
	data := make([]byte, embed.DefaultMaxDataSize/2)
	empty := inUse()
	for i := range znodes {
		_, err := s.Create(t.Context(), fmt.Sprintf("/z%d", i), data, embed.Persistent)
		must(t, err)
	}
	if full := inUse() - empty; full < znodes*len(data) {
		t.Fatalf("%d bytes of data take %d", znodes*len(data), full)
	}
	before := ens.Node(1).Status().Shards[0]
	must(t, ens.Node(1).Close())
	if left := inUse() - empty; left > znodes*len(data)/4 {
		t.Errorf("after Close %d bytes of %d are still in use", left, znodes*len(data))
	}
	if after := ens.Node(1).Status().Shards[0]; after.Applied < before.Applied || after.Zxid != before.Zxid {
		t.Errorf("status %+v, was %+v", after, before)
	}
	runtime.KeepAlive(s)
}
