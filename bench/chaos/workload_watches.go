//go:build unix

package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// watchStep arms a watch where much is written, mostly for a short while: the moment of arming is what is hard to get right.
func watchStep(_ context.Context, c *client) {
	path, _ := c.register()
	q := request{Call: callWatch, Path: path, Data: path}
	switch c.rng.IntN(6) {
	case 0:
		q.Mode = int(embed.WatchOnce)
	case 1, 2:
		q.Mode = int(embed.WatchPersistent)
	default:
		q.Path, q.Mode = registersPath, int(embed.WatchRecursive)
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
	q := request{Call: callStorm, Path: stormOf(c.member), Data: c.next()}
	o := op{Client: c.name, Session: c.session, Member: c.member, Run: c.run.number, Call: callSet, Path: q.Path, Version: embed.AnyVersion}
	places := make([]int, stormSets)
	begun := now()
	for i := range places {
		o.Data, o.Crowd = string(stormData(q.Data, i)), i+1
		places[i] = c.w.h.beginAt(begun, o)
	}
	r := c.call(q, nil)
	for i, set := range r.Sets {
		c.w.h.end(places[i], reply{Outcome: set.Outcome, Stat: set.Stat})
	}
	// Where every outcome is known no snapshot has come in between: each watch was told of the first change after it was armed.
	if slices.ContainsFunc(r.Sets, func(s stormSet) bool { return s.Outcome != applied }) {
		return
	}
	for _, t := range r.Tapes {
		t.Member = c.member
		add(c.w.h, tapes, t)
	}
}

// installStep watches a znode that is touched while a member lags: that it ends with a gap tells of a snapshot's install.
func installStep(_ context.Context, c *client) {
	c.watch(request{Call: callWatch, Path: bulkPath, Mode: int(embed.WatchPersistent), Length: between(c.rng, 10*time.Second, 30*time.Second)})
}

// sentinelStep watches a znode that nobody touches, or what tells of the ends of sessions.
func sentinelStep(_ context.Context, c *client) {
	q := request{Call: callWatch, Path: stillPath, Mode: int(embed.WatchPersistent), Length: between(c.rng, time.Second, 20*time.Second)}
	if c.rng.IntN(2) == 0 {
		q.Path, q.Mode = markersPath, int(embed.WatchRecursive)
	}
	c.watch(q)
}

// watch has a watch armed and notes what it delivers.
func (c *client) watch(q request) {
	at := -1
	r := c.call(q, func(r reply) {
		if at < 0 {
			at = add(c.w.h, tapes, tape{Member: c.member, Path: q.Path, Mode: embed.WatchMode(q.Mode), Armed: r.Zxid})
			return
		}
		c.noteRemovals(r)
		edit(c.w.h, tapes, at, func(t *tape) { t.Events = append(t.Events, r.Events...) })
	})
	if r.Wrong != "" {
		c.w.report.violate("watch no gap", "member %d: %s", c.member, r.Wrong)
	}
	if at < 0 {
		return
	}
	edit(c.w.h, tapes, at, func(t *tape) { t.Synced, t.Why = r.Zxid, r.Error })
	if why := cmp.Or(r.End, r.Error); why != "" {
		if strings.Contains(why, embed.ErrWatchGap.Error()) {
			why = embed.ErrWatchGap.Error() // without its zxid
		}
		c.w.report.count(sectionSeen, "watch ended: "+why, 1)
	}
}

// noteRemovals notes the ends of sessions that a watch of the markers was told of.
func (c *client) noteRemovals(r reply) {
	for _, e := range r.Events {
		if e.Type == embed.NodeDeleted && strings.HasPrefix(e.Path, markersPath+"/") {
			add(c.w.h, removals, removal{e.Path, e.Zxid})
		}
	}
}
