//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// expiryRoom is what the end of a session may take beyond its timeout while a quorum and a leader exist: an election, a few
// commits, and what a busy machine adds.
const expiryRoom = 4 * time.Second

// bury kills a member and leaves it dead until those of its sessions that have the least timeout must be gone. If nothing
// else is broken it looks whether they are.
func bury(s *strike) string {
	id := s.anyone()
	others := s.e.others(id)
	c := s.w.newClient(others[s.rng.IntN(len(others))], "peek")
	if !c.open(s.ctx) {
		return "nobody"
	}
	defer c.close()
	all := s.w.h.snapshot().Lives
	number := s.e.run(id).number
	s.e.kill(id)
	killed := now()
	said := fmt.Sprintf("member %d", id)
	pause(s.ctx, sessionTimeoutMin+expiryRoom)
	if !s.alone {
		return said
	}
	for _, l := range all {
		if l.Member == id && l.Run == number && l.Ended == never && now()-killed >= l.Timeout+expiryRoom {
			s.expectGone(c, l, killed)
		}
	}
	return said
}

// expectGone looks whether nothing is left on any shard of a session that is at its end since some moment.
func (s *strike) expectGone(c *client, l life, since time.Duration) {
	for _, marker := range l.Markers {
		asked := now()
		switch r := c.call(request{Call: callSyncGet, Path: marker}, nil); r.Outcome {
		case applied:
			s.report.violate("expiry bounded", "%s of member %d is there %v after its process was killed or it was closed; the timeout is %v", marker, l.Member, asked-since, l.Timeout)
		case noNode:
			s.report.count(sectionChecks, "ephemeral of a session that must be over", 1)
		}
	}
}

// leavers is how many sessions end at once.
const leavers = 5

// farewell kills who leads the home shard right after sessions were closed that have something on every shard, or while they are.
// Nobody else may know yet what the others must be told. If nothing else is broken it looks whether all of it goes.
func farewell(s *strike) string {
	leader := s.leaderOf(homeShard)
	others := s.e.others(leader)
	c := s.w.newClient(others[s.rng.IntN(len(others))], "peek")
	if !c.open(s.ctx) {
		return "nobody"
	}
	defer c.close()
	var leaving []*client
	for range leavers {
		if l := s.w.newClient(s.anyone(), "leaver"); l.open(s.ctx) {
			leaving = append(leaving, l)
		}
	}
	all := s.w.h.snapshot().Lives
	var closed sync.WaitGroup
	for _, l := range leaving {
		closed.Go(l.close)
	}
	pause(s.ctx, between(s.rng, 0, 4*tick))
	s.e.kill(leader)
	killed := now()
	closed.Wait()
	pause(s.ctx, sessionTimeoutMin+expiryRoom-(now()-killed))
	for _, l := range leaving {
		if s.alone && now()-killed >= sessionTimeoutMin+expiryRoom {
			s.expectGone(c, all[l.life], killed)
		}
	}
	return fmt.Sprintf("member %d, %d sessions", leader, len(leaving))
}

// bulkSets is what takes the log beyond everything that it keeps for members that lag: 64 MiB make a snapshot due, and 64 MiB
// before it stay.
const bulkSets = 140

// lag cuts a member off and fills the log until the member can only be brought back with a snapshot.
func lag(s *strike) string {
	id := s.follower()
	s.split(link{Cut: true}, id)
	said := fmt.Sprintf("member %d", id)
	c := s.w.newClient(s.e.others(id)[0], "bulk")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !c.open(ctx) {
		return said
	}
	defer c.close()
	r := c.call(request{Call: callBulk, Path: s.w.areas[s.rng.IntN(len(s.w.areas))] + bulkPath, Count: bulkSets}, nil)
	s.report.count(sectionSeen, "log filled beyond a member: "+string(r.Outcome), 1)
	return said + ", " + string(r.Outcome)
}
