package campaign

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// watchStep arms a watch where there are many writes, usually for a short while: the moment of
// arming is hard to get right.
func watchStep(_ context.Context, c *client) {
	path, _ := c.register()
	q := Request{Call: callWatch, Path: path, Data: path}
	switch c.rng.IntN(6) {
	case 0:
		q.Mode = int(embed.WatchOnce)
	case 1, 2:
		q.Mode = int(embed.WatchPersistent)
	case 3:
		q.Path, q.Mode = rootPath, int(embed.WatchRecursive)
	default:
		q.Path, q.Mode = areaOf(path)+registersPath, int(embed.WatchRecursive)
	}
	switch n := c.rng.IntN(10); {
	case n < 6:
		q.Length = between(c.rng, 5*time.Millisecond, 100*time.Millisecond)
	case n < 9:
		q.Length = between(c.rng, 200*time.Millisecond, 2*time.Second)
	default:
		q.Length = between(c.rng, 2*time.Second, 8*time.Second)
	}
	c.watch(q)
}

// stormStep sets one znode many times at once while watches of it are armed.
func stormStep(_ context.Context, c *client) {
	q := Request{Call: callStorm, Path: stormOf(c.area(), c.member), Data: c.next()}
	o := op{Client: c.name, Session: c.session, Member: c.member, Run: c.run.number, Call: callSet, Path: q.Path, Version: embed.AnyVersion}
	places := make([]int, stormSets)
	begun := c.w.h.now()
	for i := range places {
		o.Data, o.Crowd = string(stormData(q.Data, i)), i+1
		places[i] = c.w.h.beginAt(begun, o)
	}
	r := c.call(q, nil)
	for i, set := range r.Sets {
		c.w.h.end(places[i], Reply{Outcome: set.Outcome, Stat: set.Stat})
	}
	// If every outcome is known, no snapshot came in between. Each watch then reported the first
	// change after it was armed.
	if slices.ContainsFunc(r.Sets, func(s stormSet) bool { return s.Outcome != applied }) {
		return
	}
	for _, t := range r.Tapes {
		t.Member = c.member
		add(c.w.h, tapes, t)
	}
}

// installStep watches a znode that is written while a member lags. If the watch ends with a gap,
// the member installed a snapshot.
func installStep(_ context.Context, c *client) {
	c.watch(Request{Call: callWatch, Path: c.area() + bulkPath, Mode: int(embed.WatchPersistent), Length: between(c.rng, 10*time.Second, 30*time.Second)})
}

// sentinelStep watches a znode that nobody touches, or the markers, which show the ends of
// sessions.
func sentinelStep(_ context.Context, c *client) {
	q := Request{Call: callWatch, Path: c.area() + stillPath, Mode: int(embed.WatchPersistent), Length: between(c.rng, time.Second, 20*time.Second)}
	if c.rng.IntN(2) == 0 {
		q.Path, q.Mode = c.area()+markersPath, int(embed.WatchRecursive)
	}
	c.watch(q)
}

// watch arms a watch and records what it delivers.
func (c *client) watch(q Request) {
	places := make(map[string]int) // the places of its tapes, by area
	r := c.call(q, func(r Reply) {
		if len(places) == 0 {
			c.addTapes(q, r, places)
			return
		}
		c.noteRemovals(r)
		for _, e := range r.Events {
			if at, ok := places[areaOf(e.Path)]; ok { // a watch of the root also shows changes of the members
				edit(c.w.h, tapes, at, func(t *tape) { t.Events = append(t.Events, e) })
			}
		}
	})
	if r.Wrong != "" {
		c.w.report.violate("watch no gap", "member %d: %s", c.member, r.Wrong)
	}
	if len(places) == 0 {
		return
	}
	for i, area := range c.w.areas {
		if at, ok := places[area]; ok {
			edit(c.w.h, tapes, at, func(t *tape) {
				if t.Why = r.Error; len(r.Zxids) > 0 {
					t.Synced = r.Zxids[i]
				}
			})
		}
	}
	if why := cmp.Or(r.End, r.Error); why != "" {
		if strings.Contains(why, embed.ErrWatchGap.Error()) {
			why = embed.ErrWatchGap.Error() // without its zxid
		}
		c.w.report.count(sectionSeen, "watch ended: "+why, 1)
	}
}

// addTapes begins the tapes of an armed watch: one tape, or one for each area if the watch is on
// the root.
func (c *client) addTapes(q Request, armed Reply, places map[string]int) {
	for i, area := range c.w.areas {
		t := tape{Member: c.member, Path: q.Path, Mode: embed.WatchMode(q.Mode), Since: armed.Since[i], Armed: armed.Zxids[i]}
		switch {
		case q.Path == rootPath:
			t.Path = area
		case areaOf(q.Path) != area:
			continue
		}
		places[area] = add(c.w.h, tapes, t)
	}
}

// noteRemovals records the ends of sessions that a watch of the markers delivered.
func (c *client) noteRemovals(r Reply) {
	for _, e := range r.Events {
		if e.Type == embed.NodeDeleted && strings.HasPrefix(inArea(e.Path), markersPath+"/") {
			add(c.w.h, removals, removal{e.Path, e.Zxid, c.w.h.now()})
		}
	}
}
