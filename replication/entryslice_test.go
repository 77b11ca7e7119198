package replication

import (
	"fmt"
	"runtime"
	"testing"
)

func TestPropose_LeavesLittleGarbage(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	n := e.node(awaitLeader(t, e.nodes[0], 1).Member)
	e.write(n, 1, "x")
	const writes = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range writes {
		e.write(n, 1, fmt.Sprint(i))
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / writes; got > 64<<10 {
		t.Errorf("a write leaves %d bytes of garbage on three members", got)
	}
}
