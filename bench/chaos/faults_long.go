//go:build unix

package main

import (
	"context"
	"fmt"
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
	lives := s.w.h.snapshot().Lives
	number := s.e.run(id).number
	s.e.kill(id)
	killed := now()
	said := fmt.Sprintf("member %d", id)
	pause(s.ctx, sessionTimeoutMin+expiryRoom)
	if !s.alone {
		return said
	}
	for _, l := range lives {
		if l.Member != id || l.Run != number || l.Ended != never || l.Marker == "" || now()-killed < l.Timeout+expiryRoom {
			continue
		}
		asked := now()
		switch r := c.call(request{Call: callSyncGet, Path: l.Marker}, nil); r.Outcome {
		case applied:
			s.report.violate("expiry bounded", "%s of member %d is there %v after its process was killed; the timeout is %v", l.Marker, id, asked-killed, l.Timeout)
		case noNode:
			s.report.count(sectionChecks, "expiry of a dead member's session", 1)
		}
	}
	return said
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
	r := c.call(request{Call: callBulk, Path: bulkPath, Count: bulkSets}, nil)
	s.report.count(sectionSeen, "log filled beyond a member: "+string(r.Outcome), 1)
	return said + ", " + string(r.Outcome)
}
