package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// expiryRoom is how long the end of a session may take beyond its timeout while there is a quorum
// and a leader. It covers an election, a few commits, and the delays of a busy machine.
const expiryRoom = 4 * time.Second

const (
	// expiryExact is the same where time is virtual: commits then take no time, and only the
	// leader counts the silence once a tick.
	expiryExact = 2 * tick
	// expiryAnew is what the loss of the leader adds: the step that was lost with it, and two
	// elections, since the votes of the first may be split.
	expiryAnew = sessionTimeoutMin/4 + 2*electionMax
	// electionMax is engine.LongestElection.
	electionMax = 24 * tick
)

// sessionTimeouts are the timeouts of sessions that bury waits for, in ascending order.
var sessionTimeouts = []time.Duration{sessionTimeoutMin, sessionTimeoutShort}

// bury kills a member and leaves it dead until its sessions with the least timeout must be gone. If
// nothing else is broken, bury checks that they are.
func bury(s *strike) string {
	id := s.anyone()
	others := s.e.others(id)
	c := s.visitor(others[s.rng.IntN(len(others))], "peek")
	if c == nil {
		return "nobody"
	}
	defer s.w.clients.Go(c.close)
	all := s.w.h.snapshot().Lives
	number := s.e.run(id).number
	room := expiryRoom
	if s.w.virtual {
		room = expiryExact
		if leader := s.e.leader(homeShard); leader == id || leader == 0 {
			room += expiryAnew
		}
	}
	s.e.kill(id)
	killed := s.w.h.now()
	said := fmt.Sprintf("member %d", id)
	for _, timeout := range sessionTimeouts {
		pause(s.ctx, killed+timeout+room-s.w.h.now())
		if !s.alone || s.ctx.Err() != nil {
			break
		}
		for _, l := range all {
			// a remote session has perhaps another member, and up to expiryRemote; see over
			if l.Member == id && !l.Remote && l.Run == number && l.Ended == never && l.Timeout == timeout {
				s.expectGone(c, l, killed)
			}
		}
	}
	<-s.ctx.Done()
	return said
}

// visitor opens a session for a strike. It returns nil if that fails or takes longer than the
// strike: the strike itself may keep the member from answering.
func (s *strike) visitor(id embed.MemberID, kind string) *client {
	c := s.w.newClient(id, kind)
	opened := make(chan bool)
	s.w.clients.Go(func() {
		ok := c.open(s.ctx)
		select {
		case opened <- ok:
		case <-s.ctx.Done():
			c.close()
		}
	})
	select {
	case ok := <-opened:
		if ok {
			return c
		}
	case <-s.ctx.Done():
	}
	return nil
}

// expectGone checks that nothing is left on any shard of a session that ended at some moment.
func (s *strike) expectGone(c *client, l life, since time.Duration) {
	for _, marker := range l.Markers {
		asked := s.w.h.now()
		switch r := c.call(Request{Call: callSyncGet, Path: marker}, nil); r.Outcome {
		case applied:
			s.report.violate("expiry bounded", "%s of member %d still exists %v after its process was killed or its session closed; the timeout is %v", marker, l.Member, asked-since, l.Timeout)
		case noNode:
			s.report.count(sectionChecks, "ephemeral of a session that must be over", 1)
		}
	}
}

// leavers is how many sessions end at once.
const leavers = 5

// farewell kills the leader of the home shard during or right after the closing of sessions that
// have something on every shard. The other shards may not have heard yet that the sessions ended.
// If nothing else is broken, farewell checks that everything of the sessions goes.
func farewell(s *strike) string {
	leader := s.leaderOf(homeShard)
	others := s.e.others(leader)
	c := s.visitor(others[s.rng.IntN(len(others))], "peek")
	if c == nil {
		return "nobody"
	}
	defer s.w.clients.Go(c.close)
	var leaving []*client
	for range leavers {
		if l := s.visitor(s.anyone(), "leaver"); l != nil {
			leaving = append(leaving, l)
		}
	}
	all := s.w.h.snapshot().Lives
	for _, l := range leaving {
		s.w.clients.Go(l.close)
	}
	pause(s.ctx, between(s.rng, 0, 4*tick))
	s.e.kill(leader)
	killed := s.w.h.now()
	pause(s.ctx, sessionTimeoutMin+expiryRoom-(s.w.h.now()-killed))
	for _, l := range leaving {
		if s.alone && s.w.h.now()-killed >= sessionTimeoutMin+expiryRoom {
			s.expectGone(c, all[l.life], killed)
		}
	}
	return fmt.Sprintf("member %d, %d sessions", leader, len(leaving))
}

// estrange lets sessions end before the other shards have heard of them. It delays what a member
// sends to the others. Sessions on that member then begin to use every shard. Then estrange
// separates the member from the leader of the home shard. It ends the separation before the
// sessions' node has given them up, because the node would then close them everywhere.
func estrange(s *strike) string {
	leader := s.leaderOf(homeShard)
	others := s.e.others(leader)
	id := others[s.rng.IntN(len(others))]
	late := link{Delay: between(s.rng, sessionTimeoutMin, 2*sessionTimeoutMin)}
	for _, to := range s.e.others(leader, id) {
		s.e.setLink(id, to, late)
	}
	for range leavers {
		l := s.w.newClient(id, "leaver")
		s.w.clients.Go(func() { l.linger(s.ctx) })
	}
	pause(s.ctx, between(s.rng, moment/4, 2*moment))
	s.e.setLink(id, leader, link{Cut: true})
	s.e.setLink(leader, id, link{Cut: true})
	<-s.ctx.Done()
	return fmt.Sprintf("member %d from %d, %v late", id, leader, late.Delay)
}

// linger opens a session. After ctx it waits until the session's node can have heard that the
// session is over, and closes it.
func (c *client) linger(ctx context.Context) {
	if !c.open(ctx) {
		return
	}
	<-ctx.Done()
	for until := c.w.h.now() + long; c.alive && c.w.h.now() < until; pause(context.Background(), tick) {
		c.call(Request{Call: callGet, Path: c.w.areas[0]}, nil)
	}
	c.close()
}

// bulkSets fills the log with more than it keeps for members that lag: 64 MiB make a snapshot due,
// and the 64 MiB before it stay. On a busy machine with the race detector that may take more than a
// minute; then the strike gives up.
const bulkSets = 140

// lag cuts a member off and fills the log until only a snapshot can bring the member back.
func lag(s *strike) string {
	id := s.follower()
	s.split(link{Cut: true}, id)
	said := fmt.Sprintf("member %d", id)
	c := s.visitor(s.e.others(id)[0], "bulk")
	if c == nil {
		return said
	}
	path := s.w.areas[s.rng.IntN(len(s.w.areas))] + bulkPath
	filled := make(chan outcome, 1)
	s.w.clients.Go(func() {
		filled <- c.call(Request{Call: callBulk, Path: path, Count: bulkSets, Within: patience}, nil).Outcome
		c.close()
	})
	enough := s.ctx.Done()
	if s.alone {
		enough = nil // otherwise the member that fills the log may be stopped until this ends
	}
	select {
	case o := <-filled:
		s.report.count(sectionSeen, "log filled beyond a member: "+string(o), 1)
		return said + ", " + string(o)
	case <-enough:
		return said + ", not to the end"
	}
}
