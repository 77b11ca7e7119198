package campaign

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// memberFaults change the members of an ensemble whose members come and go. They last until a new
// member may have become a voter.
var memberFaults = []fault{
	{"newcomer", longer, longest, changing("newcomer", newcomer)},
	{"wipe", longer, longest, changing("wipe", wipe)},
	{"readdress", longer, longest, changing("readdress", readdress)},
	{"leave", longer, longest, changing("leave", leave)},
	{"evict", longer, longest, changing("evict", evict)},
	{"graveyard", longer, longest, changing("graveyard", graveyard)},
	{"imposter", longer, longest, changing("imposter", imposter)},
}

const (
	longer  = 6 * time.Second // a new member is a voter 200 ticks after it has caught up
	longest = 12 * time.Second
)

// changes reports whether a fault needs members that come and go.
func (f fault) changes() bool {
	for _, m := range memberFaults {
		if m.name == f.name {
			return true
		}
	}
	return f.recovers()
}

// changing lets no other change of the members happen meanwhile, and measures how long no write is
// acknowledged. Three of four wait until the change before is complete. The others may meet a vote
// that is lost already.
func changing(name string, change func(s *strike) (said string, changed bool)) func(*strike) string {
	return func(s *strike) string {
		if !s.e.changing.TryLock() {
			return "another change is under way"
		}
		defer s.e.changing.Unlock()
		rested := s.rng.IntN(4) > 0 && s.awaitRest()
		measured, writable := s.measure()
		said, changed := change(s)
		<-s.ctx.Done()
		gap := measured()
		if s.alone && changed && rested && writable {
			s.report.stood(name, gap)
		}
		return fmt.Sprintf("%s, no write for %v", said, gap.Round(time.Millisecond))
	}
}

// awaitRest waits until the members are at rest, but leaves time for the strike.
func (s *strike) awaitRest() bool {
	ctx, cancel := limit(s.ctx, longer)
	defer cancel()
	return s.e.rest(ctx) == ""
}

// probes is how many members a shard's writes come from while they are measured. One of them may be
// the one that goes.
const probes = 2

// measure writes to each shard again and again until the strike ends. It returns when each shard
// has acknowledged a write, and reports whether that was so before the end. The function that it
// returns tells the longest time since then in which no write to some shard was acknowledged.
func (s *strike) measure() (measured func() time.Duration, writable bool) {
	var mu sync.Mutex
	var longest time.Duration
	last := make(map[string]time.Duration) // by area
	note := func(area string) {
		mu.Lock()
		defer mu.Unlock()
		now := s.w.h.now()
		if last[area] > 0 {
			longest = max(longest, now-last[area])
		}
		last[area] = now
	}
	begun := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(last) == len(s.w.areas)
	}
	for _, area := range s.w.areas {
		for _, id := range s.some(probes) {
			c := s.w.newClient(id, "probe")
			s.w.clients.Go(func() {
				for ; s.ctx.Err() == nil; pause(s.ctx, tick) {
					if (c.alive || c.enter(s.ctx)) && c.call(Request{Call: callSet, Path: area + bulkPath, Version: embed.AnyVersion}, nil).Outcome == applied {
						note(area)
					}
				}
				c.close()
			})
		}
	}
	for !begun() && s.ctx.Err() == nil {
		pause(s.ctx, tick)
	}
	return func() time.Duration {
		for _, area := range s.w.areas {
			note(area)
		}
		mu.Lock()
		defer mu.Unlock()
		return longest
	}, begun()
}

// newcomer starts a new member in a vacant place. It may die while it loads.
func newcomer(s *strike) (said string, changed bool) {
	place := s.e.vacant()
	if place == 0 {
		return "no place is vacant", false
	}
	said = fmt.Sprintf("member %d", place)
	s.e.renew(place)
	if s.rng.IntN(2) == 0 {
		loaded := between(s.rng, 0, 2*time.Second)
		pause(s.ctx, loaded)
		s.e.kill(place)
		said += fmt.Sprintf(", killed after %v", loaded)
	}
	return said, true
}

// wipe ends a member and empties its directory. It comes back as a new one. It needs members at
// rest: a majority that has lost its directories is lost for good, and until a change is complete
// there may be two voters on some shard.
func wipe(s *strike) (said string, changed bool) {
	id := s.anyone()
	if why := s.e.unrest(s.ctx); why != "" || s.e.isTaken(id) {
		return fmt.Sprintf("member %d: the ensemble may need it: %s", id, why), false
	}
	s.e.abandon(id)
	pause(s.ctx, between(s.rng, 0, long/2))
	s.e.renew(id)
	return fmt.Sprintf("member %d", id), true
}

// readdress restarts a member at another address.
func readdress(s *strike) (said string, changed bool) {
	id := s.anyone()
	if s.rng.IntN(2) == 0 {
		s.kill(id)
	} else {
		s.shutDown(id)
	}
	s.e.host.Readdress(id)
	return fmt.Sprintf("member %d", id), true
}

// leave lets a member leave. If there are others enough, its place becomes vacant. If not, a new
// member comes there, with an empty directory or with the one that has left.
func leave(s *strike) (said string, changed bool) {
	id := s.anyone()
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	s.e.setLeft(id, true)
	r := s.e.run(id)
	s.e.resume(id) // another fault may have stopped it
	r.orderly.Store(true)
	_, err := s.e.call(ctx, id, Request{Call: callLeave})
	s.e.abandon(id)
	said = fmt.Sprintf("member %d", id)
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", said, err), true // perhaps it stays, perhaps it joins anew
	case len(s.e.here()) > s.e.voters:
		s.e.setAway(id, true)
		return said + ", its place is vacant", true
	case s.rng.IntN(2) == 0:
		s.e.renew(id)
		return said + ", and another came", true
	}
	return said + ", and joins again", true
}

// An eviction is what is known of a member that is out.
type eviction struct {
	member embed.MemberID
	sure   bool // RemoveMember has returned nil, or the member is superseded
	// A forced recovery has gone on without the member. Otherwise another member removed it.
	superseded bool
}

// String says why the member is out.
func (ev eviction) String() string {
	if ev.superseded {
		return "superseded"
	}
	return "removed"
}

// refused reports whether a node on the member's directory is refused, by why the node has failed
// and what it waits for.
func (ev eviction) refused(failed, joining string) bool {
	if ev.superseded {
		return strings.Contains(failed, supersededText)
	}
	return strings.Contains(failed, outText) || strings.Contains(joining, dismissedText)
}

// evictAny removes any member as evict does. It returns its place, or zero.
func (s *strike) evictAny() (id embed.MemberID, ev eviction) {
	id = s.anyone()
	if s.e.isTaken(id) {
		return 0, ev
	}
	if ev = s.evict(id); ev.member == 0 {
		return 0, ev
	}
	return id, ev
}

// evict removes the member in a place, which may be dead or alive. Its process is dead then, and its
// directory is as it was. It removes nobody if the member there does not say its id.
func (s *strike) evict(id embed.MemberID) (ev eviction) {
	if ev.member = s.e.idOf(id); ev.member == 0 {
		return ev
	}
	others := s.e.others(id)
	s.e.setAway(id, true)
	s.e.setEvicted(id, ev)
	dead := s.rng.IntN(2) == 0
	if dead {
		s.e.abandon(id)
	}
	for by := s.anyOf(others); !ev.sure && s.ctx.Err() == nil; by = s.anyOf(others) {
		s.e.resume(by)
		_, err := s.e.call(s.ctx, by, Request{Call: callRemove, To: ev.member, Within: requestTimeout})
		if ev.sure = err == nil; !ev.sure && s.ctx.Err() != nil {
			s.e.kill(by) // it may be stopped, and would remove the member once it goes on
		}
		pause(s.ctx, tick)
	}
	s.e.setEvicted(id, ev)
	for !dead && ev.sure && s.ctx.Err() == nil {
		if a, err := s.e.call(s.ctx, id, Request{Call: callStatus}); err != nil || a.Failed != "" {
			s.report.count(sectionSeen, "removed member has heard of it", 1)
			break
		}
		pause(s.ctx, tick)
	}
	s.e.abandon(id)
	return ev
}

// evict removes a member. It comes back with an empty directory.
func evict(s *strike) (said string, changed bool) {
	id, ev := s.evictAny()
	switch {
	case id == 0:
		return "nobody", false
	case !ev.sure:
		return fmt.Sprintf("member %d, perhaps", id), true
	}
	s.e.renew(id)
	return fmt.Sprintf("member %d", id), true
}

// graveyard removes a member, which comes back with the directory that it had.
func graveyard(s *strike) (said string, changed bool) {
	id, ev := s.evictAny()
	if id == 0 {
		return "nobody", false
	}
	return fmt.Sprintf("member %d: %s", id, s.haunt(s.ctx, id, ev)), true
}

// imposter removes a member. A new member comes in its place, and the old directory comes back at
// the address of the new member.
func imposter(s *strike) (said string, changed bool) {
	id, ev := s.evictAny()
	switch {
	case id == 0:
		return "nobody", false
	case !ev.sure:
		return fmt.Sprintf("member %d, perhaps", id), true
	}
	s.e.setAside(id, ev.member)
	s.e.appear(id)
	return fmt.Sprintf("member %d: %s", id, s.impersonate(s.ctx, id, ev)), true
}

// setAside moves the directory of a dead member to where no other member's will ever be.
func (e *ensemble) setAside(id, member embed.MemberID) {
	e.rename(id, e.host.Home(id).Dir, e.aside(id, member))
}

func (e *ensemble) aside(id, member embed.MemberID) string {
	return fmt.Sprintf("%s.%d", e.host.Home(id).Dir, member) // no member has the id again
}

func (e *ensemble) rename(id embed.MemberID, from, to string) {
	if err := e.host.Rename(id, from, to); err != nil {
		e.report.violate("harness", "member %d: %v", id, err)
	}
}

// impersonate waits until the new member in a place is ready. Then a member whose directory was set
// aside comes back there, with that directory. The new one is dead by the end, and its directory is
// back.
func (s *strike) impersonate(ctx context.Context, id embed.MemberID, ev eviction) string {
	if s.e.running(ctx, id) == nil {
		return "the new one was not ready"
	}
	dir, old := s.e.host.Home(id).Dir, s.e.aside(id, ev.member)
	next := dir + ".next"
	s.e.setAway(id, true)
	s.e.kill(id)
	s.e.rename(id, dir, next)
	s.e.rename(id, old, dir)
	how := s.haunt(ctx, id, ev)
	s.e.rename(id, dir, old)
	s.e.rename(id, next, dir)
	s.e.setAway(id, false)
	return how
}

// The ends of a haunting.
const (
	serves  = "it serves"
	refuses = "it is out"
	waits   = "it waits"
)

// haunt starts a process on a directory of a member that may be out, and ends it when it is known
// whether it is, or when ctx ends. If it is surely out, it must not serve: it fails. If somebody
// removed it, it may also ask to join anew, and is refused.
func (n *nemesis) haunt(ctx context.Context, id embed.MemberID, ev eviction) string {
	p, err := n.e.host.Spawn(id, logFile(n.e.dir, id))
	if err != nil {
		n.report.violate("harness", "member %d: %v", id, err)
		return waits
	}
	defer func() {
		p.Kill()
		<-p.Dead()
	}()
	p.Send(Request{Call: callExpired}, nil)
	a := <-p.Send(Request{Call: callStart, Start: n.e.newStart(id)}, nil)
	var joining string
	for failed := a.Error; ; pause(ctx, tick) {
		switch {
		case ev.refused(failed, joining):
			n.report.count(sectionChecks, ev.String()+" directory refused", 1)
			return refuses
		case failed != "":
			n.report.violate("guest", "member %d on the directory of member %d, which was %v: %s", id, ev.member, ev, failed)
			return waits
		case (<-p.Send(Request{Call: callReady, Within: moment}, nil)).Error == "":
			if ev.sure {
				n.report.violate(ev.String(), "member %d was %v, and serves again", ev.member, ev)
			}
			return serves
		case ctx.Err() != nil:
			return waits
		}
		a = <-p.Send(Request{Call: callStatus}, nil)
		failed, joining = a.Failed, a.Joining
	}
}

// judgeEvicted brings those back that were removed, or perhaps were. Nothing is broken any more.
func (n *nemesis) judgeEvicted(ctx context.Context) {
	for id, ev := range n.e.allEvicted() {
		switch n.haunt(ctx, id, ev) {
		case serves:
			n.e.appear(id)
		case refuses:
			n.e.renew(id)
		case waits:
			n.report.violate("available", "member %d, which was perhaps removed, neither serves nor fails", id)
		}
	}
}
