package campaign

import (
	"testing"
	"time"
)

// lookFor is a synced read of a marker by another session.
func lookFor(marker string, outcome outcome) op {
	return op{Client: "peek", Call: callSyncGet, Path: marker, Outcome: outcome}
}

// markersOf returns a session's markers on the home shard and on another shard.
func markersOf(session string) []string {
	return []string{a0 + markersPath + "/" + session, "/area1" + markersPath + "/" + session}
}

func TestFindEarlyEnds(t *testing.T) {
	own := markersOf("c")
	write := func(path string) op { return at(5, 6, set(path, "x", 9, 1)) }
	of := func(ops ...op) past { return past{Ops: ops, Lives: []life{{Name: "c", Markers: own}}} }
	told := func(ms int, ops ...op) past {
		p := of(ops...)
		p.Removals = []removal{{Path: own[1], Zxid: 7, At: time.Duration(ms) * time.Millisecond}}
		return p
	}
	hold(t, findEarlyEnds, []badHistory{
		{"gone on another shard, and alive at home", of(at(3, 4, lookFor(own[1], noNode)), write(a0+"/a")), of(at(3, 8, lookFor(own[1], noNode)), write(a0+"/a")), own[1] + " was gone"},
		{"gone on a shard, and alive there", of(at(3, 4, lookFor(own[1], noNode)), write("/area1/a")), of(at(3, 4, lookFor(own[1], noNode)), write("/area2/a")), own[1] + " was gone"},
		{"gone at home, and alive there", of(at(3, 4, lookFor(own[0], noNode)), write(a0+"/a")), of(at(3, 4, lookFor(own[0], applied)), write(a0+"/a")), own[0] + " was gone"},
		{"a watch is told that it is gone", told(4, write(a0+"/a")), told(6, write(a0+"/a")), own[1] + " was gone"},
		{"only another session's is gone", of(at(3, 4, lookFor(own[1], noNode)), write(a0+"/a")), of(at(3, 4, lookFor(markersOf("d")[1], noNode)), write(a0+"/a")), "was gone"},
	})
}

func TestFindLeftovers(t *testing.T) {
	own := markersOf("c")
	of := func(closed int, ops ...op) past {
		return past{Ops: ops, Lives: []life{{Name: "c", Markers: own, Closed: time.Duration(closed) * time.Millisecond}}}
	}
	hold(t, findLeftovers, []badHistory{
		{"left on another shard", of(2, at(3, 4, lookFor(own[1], applied))), of(2, at(3, 4, lookFor(own[1], noNode))), "was closed"},
		{"left after the end", of(2, at(3, 4, lookFor(own[0], applied))), of(3, at(3, 4, lookFor(own[0], applied))), "was closed"},
		{"closed for sure", of(2, at(3, 4, lookFor(own[0], applied))), of(0, at(3, 4, lookFor(own[0], applied))), "was closed"},
	})
}
