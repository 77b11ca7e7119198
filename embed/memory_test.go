package embed_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// After Close the host gets back the memory that a node used. It may keep the Node. dragonboat's
// metrics keep what belongs to the first node of a process. In a bubble the disk would be in memory
// too.
func TestClose_GivesTheMemoryBack(t *testing.T) {
	inUse := func() int {
		runtime.GC()
		runtime.GC() // the second one empties pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	ens := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient})
	s := ens.Session(1, embed.SessionOptions{})
	const znodes = 64
	data := make([]byte, embed.DefaultMaxDataSize/2)
	empty := inUse()
	for i := range znodes {
		_, err := s.Create(t.Context(), fmt.Sprintf("/z%d", i), data, embed.Persistent)
		must(t, err)
	}
	// Memory of the start may be free by now.
	if full := inUse() - empty; full < znodes*len(data)*3/4 {
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

// A read allocates only the copy of the data that belongs to its caller. While the reads run, the
// clock of the bubble stands still, and the node does nothing else.
func TestGet_AllocatesItsCopyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		for _, root := range []string{"", "/below"} {
			if root != "" {
				_, err := ens.Session(1, embed.SessionOptions{}).Create(t.Context(), root, nil, embed.Persistent)
				must(t, err)
			}
			s := ens.Session(1, embed.SessionOptions{Root: root})
			_, err := s.Create(t.Context(), "/z", make([]byte, 64), embed.Persistent)
			must(t, err)
			get := func() {
				if _, _, err := s.Get(t.Context(), "/z"); err != nil {
					t.Error(err)
				}
			}
			// The runtime allocates now and then, so the least of several runs counts. A path below a
			// root is built on the stack if it is short.
			synctest.Wait()
			least := testing.AllocsPerRun(1000, get)
			for range 4 {
				least = min(least, testing.AllocsPerRun(1000, get))
			}
			if least > 1 {
				t.Errorf("with root %q a read allocates %v times", root, least)
			}
		}
	})
}
