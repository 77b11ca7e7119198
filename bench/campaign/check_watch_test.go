package campaign

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

func TestFindGaps(t *testing.T) {
	const (
		r1    = a0 + registersPath + "/0-1"
		other = "/area1" + registersPath + "/0-0"
	)
	changed := func(path string, z embed.Zxid) event { return event{embed.NodeDataChanged, path, z} }
	tapeOf := func(path string, mode embed.WatchMode, armed, synced embed.Zxid, events ...event) tape {
		return tape{Member: 1, Path: path, Mode: mode, Since: armed, Armed: armed, Events: events, Synced: synced}
	}
	of := func(ops []op, tapes ...tape) past { return past{Ops: ops, Tapes: tapes} }
	sets := []op{at(1, 2, set(r0, "x", 9, 1)), at(3, 4, set(r0, "y", 10, 2))}
	s1 := stormOf(a0, 1)
	storm := []op{at(1, 2, set(s1, "x", 9, 1)), at(1, 2, set(s1, "y", 10, 2))}
	maybe := set(r0, "z", 0, 0)
	maybe.Outcome = unknown
	const p, once, all = embed.WatchPersistent, embed.WatchOnce, embed.WatchRecursive
	// Part of a watch on the root that was armed between 6 and 8.
	part := func(area string, synced embed.Zxid, events ...event) tape {
		t := tapeOf(area, all, 8, synced, events...)
		t.Since = 6
		return t
	}
	late := func(events ...event) tape { // it was armed between 6 and 10
		t := part(a0, 10, events...)
		t.Armed = 10
		return t
	}
	two := append(sets[:2:2], at(5, 6, set(other, "v", 3, 1)), at(7, 8, set(other, "w", 9, 2)))
	ended := tapeOf(a0+stillPath, p, 8, 0)
	ended.Why = embed.ErrWatchGap.Error()
	hold(t, findGaps, []badHistory{
		{"the first change is missing", of(sets, tapeOf(r0, p, 8, 0, changed(r0, 10), changed(r0, 11))), of(sets[1:], tapeOf(r0, p, 8, 0, changed(r0, 10))), "did not deliver {NodeDataChanged " + r0 + " 9}"},
		{"armed late", of(sets, tapeOf(r0, p, 8, 10, changed(r0, 10))), of(sets, tapeOf(r0, p, 9, 10, changed(r0, 10))), "did not deliver"},
		{"nothing came before the Sync", of(sets, tapeOf(r0, p, 9, 10)), of(sets, tapeOf(r0, p, 9, 9)), "did not deliver"},
		{"another watch was told", of(nil, tapeOf(r0, once, 8, 0), tapeOf(a0+registersPath, all, 8, 20, changed(r0, 9)), tapeOf(r0, p, 8, 20)), of([]op{at(1, 2, maybe)}, tapeOf(r0, once, 8, 0), tapeOf(a0+registersPath, all, 8, 20, changed(r0, 9)), tapeOf(r0, p, 8, 20, changed(r0, 9))), "which a watch of " + a0},
		{"a once-watch misses the first", of(storm, tapeOf(s1, once, 8, 0, changed(s1, 10))), of(storm, tapeOf(s1, once, 8, 0, changed(s1, 9))), "did not deliver"},
		{"a once-watch misses all", of(sets, tapeOf(r0, once, 8, 10)), of(sets, tapeOf(r0, once, 10, 10)), "did not deliver"},
		{"a once-watch fires twice", of(sets, tapeOf(r0, once, 8, 0, changed(r0, 9), changed(r0, 10))), of(sets, tapeOf(r0, once, 8, 0, changed(r0, 9))), "fired 2 times"},
		{"an event comes twice", of(sets, tapeOf(r0, p, 8, 0, changed(r0, 9), changed(r0, 9))), of(sets, tapeOf(r0, p, 8, 0, changed(r0, 9), changed(r0, 10))), "} twice"},
		{"events are out of order", of(sets, tapeOf(r0, p, 8, 0, changed(r0, 10), changed(r0, 9))), of(sets, tapeOf(r0, p, 8, 0, changed(r0, 9), changed(r0, 10))), "after zxid"},
		{"an event of before it was armed", of(sets, tapeOf(r0, p, 9, 0, changed(r0, 9))), of(sets, tapeOf(r0, p, 9, 0, changed(r0, 10))), "after zxid"},
		{"a change that nobody made", of(sets, tapeOf(r1, p, 8, 0, changed(r1, 12))), of(append(sets, at(5, 6, set(r1, "q", 12, 1))), tapeOf(r1, p, 8, 0, changed(r1, 12))), "were not acknowledged"},
		{"a watch of the root misses a change in one area", of(two, part("/area1", 9), part(a0, 10, changed(r0, 9), changed(r0, 10))), of(two, part("/area1", 9, changed(other, 9)), part(a0, 10, changed(r0, 9), changed(r0, 10))), "the watch of /area1 on member 1"},
		{"a watch of the root is out of order in one area", of(two, part(a0, 0, changed(r0, 10), changed(r0, 9))), of(two, part(a0, 0, changed(r0, 9), changed(r0, 10))), "after zxid 10"},
		{"a watch of the root is told of before it was armed", of(two, part("/area1", 0, changed(other, 3))), of(two, part("/area1", 0, changed(other, 9))), "after zxid 6"},
		{"a watch of the root is told of a change and not of the next", of(sets, late(changed(r0, 8), changed(r0, 10))), of(sets, late(changed(r0, 10))), "did not deliver {NodeDataChanged " + r0 + " 9}"},
		{"an untouched watch ends for a gap", of(nil, ended), of(nil, tapeOf(a0+stillPath, p, 8, 0)), "nobody ever touched the znode"},
	})
}
