package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// recovery loses a majority of the members for good. It belongs to rounds of its own, in which
// acknowledged writes may be lost, and it is never one of two faults at once.
var recovery = fault{"forced recovery", moment, long, loseMajority}

// ageing is how long members take until each has the ensemble's lineage on its disk. Without one, a
// directory cannot be recovered.
const ageing = 2 * time.Second

func (f fault) recovers() bool { return f.name == recovery.name }

// loseMajority kills all members while clients use them. The ensemble goes on from the directory of
// one of them, the survivor. It is alone at first. Then the others come: in some places new members,
// and later the former ones with the directories that they had; in the other places the former ones
// at once. No former member may serve, or make the survivor's ensemble lose or regain anything.
//
// The clients end with the old ensemble, and with them the history. Others begin with the new one.
func loseMajority(s *strike) (said string) {
	ctx, cancel := limit(context.Background(), 2*patience)
	defer cancel()
	if why := s.e.rest(ctx); why != "" {
		return "the members are not at rest: " + why // inspect reports it
	}
	pause(ctx, ageing)
	survivor := s.anyone()
	others := s.e.others(survivor)
	s.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	all := s.e.statuses(s.e.here())
	known, err := s.e.members(ctx, survivor)
	if err != nil || len(all) < len(others)+1 {
		return fmt.Sprintf("not all members answer: %v", err)
	}
	lost := lostWith(known.Members, all[survivor].Member)
	said = fmt.Sprintf("member %d survives, %s", survivor, s.fade(survivor, lost))
	for _, id := range others {
		s.e.kill(id)
		pause(ctx, between(s.rng, 0, 2*tick))
	}
	s.end(survivor)
	s.w.halt()
	s.w.end()
	s.e.healLinks()
	s.w.h.cut(survivor)
	s.w.age.Add(1)
	s.w.epoch.Add(1) // nobody knows what is left of the registers

	fresh := make(map[embed.MemberID]bool)
	for _, id := range others {
		s.e.setAway(id, true)
		if fresh[id] = s.rng.IntN(2) == 0; fresh[id] {
			s.e.setAside(id, all[id].Member)
		}
	}
	s.e.setRecovered()
	if !s.recover(survivor, lost) {
		return said
	}
	s.w.resume()
	said += s.serveAlone(ctx, survivor)
	for _, id := range others {
		ev := eviction{member: all[id].Member, sure: true, superseded: true}
		if !fresh[id] && s.haunt(ctx, id, ev) == waits {
			s.report.violate("available", "member %d, which is superseded, neither serves nor fails", ev.member)
		}
		s.e.appear(id)
	}
	for _, id := range others {
		ev := eviction{member: all[id].Member, sure: true, superseded: true}
		if fresh[id] {
			said += fmt.Sprintf("; in the place of member %d: %s", id, s.impersonate(ctx, id, ev))
		}
		if s.e.run(id).gone() {
			s.e.appear(id)
		}
	}
	return said
}

// lostWith returns the voters except the survivor.
func lostWith(all []fellow, survivor embed.MemberID) (lost []embed.MemberID) {
	for _, f := range all {
		if f.Votes > 0 && f.ID != survivor {
			lost = append(lost, f.ID)
		}
	}
	return lost
}

// fade takes the survivor away from what the others do until the strike's time is over: not at all,
// by its links, or by its end. In the last case the others live on, and a recovery must be refused.
func (s *strike) fade(survivor embed.MemberID, lost []embed.MemberID) string {
	switch s.rng.IntN(3) {
	case 0:
		<-s.ctx.Done()
		return "up to date"
	case 1:
		s.split(link{Cut: true}, survivor)
		<-s.ctx.Done()
		return "cut off before"
	}
	s.end(survivor)
	<-s.ctx.Done()
	if why, done := s.tryRecover(survivor, lost, patience); done {
		if why == "" {
			s.report.violate("recovery", "member %d was recovered, although members %v live", survivor, lost)
		}
		s.report.count(sectionChecks, "recovery refused while others live", 1)
	}
	return "dead before"
}

// end kills a member, or cuts its power. It may be dead already.
func (s *strike) end(id embed.MemberID) {
	if cutter, ok := s.e.host.(PowerCutter); ok && s.rng.IntN(2) == 0 {
		cutter.PowerCut(id)
		return
	}
	s.e.kill(id)
}

// tryRecover recovers a member's directory by force. It kills the process after a while. why is the
// answer, if the process has given one before.
func (s *strike) tryRecover(id embed.MemberID, lost []embed.MemberID, within time.Duration) (why string, done bool) {
	p, err := s.e.host.Spawn(id, logFile(s.e.dir, id))
	if err != nil {
		s.report.violate("harness", "member %d: %v", id, err)
		return "", false
	}
	defer func() {
		p.Kill()
		<-p.Dead()
	}()
	select {
	case a, ok := <-p.Send(Request{Call: callRecover, Start: &start{Home: s.e.home(id)}, Lost: lost, Within: patience}, nil):
		return a.Error, ok
	case <-after(within):
		return "", false
	}
}

// recover recovers a member's directory by force, whatever it takes. The process is killed a few
// times while it does so.
func (s *strike) recover(id embed.MemberID, lost []embed.MemberID) bool {
	why, done := "", false
	for n := s.rng.IntN(3); n > 0 && !done; n-- {
		why, done = s.tryRecover(id, lost, between(s.rng, 0, 2*moment))
	}
	if !done {
		why, done = s.tryRecover(id, lost, patience)
	}
	if !done || why != "" {
		s.report.violate("recovery", "member %d cannot be recovered without members %v: %s", id, lost, why)
		return false
	}
	return true
}

// serveAlone starts the survivor and waits until it is ready. It is killed a few times before.
func (s *strike) serveAlone(ctx context.Context, survivor embed.MemberID) string {
	kills := s.rng.IntN(3)
	for range kills {
		s.e.appear(survivor)
		pause(ctx, between(s.rng, 0, time.Second))
		s.end(survivor)
	}
	s.e.appear(survivor)
	begun := s.w.h.now()
	if s.e.running(ctx, survivor) == nil {
		s.e.stacks()
		s.report.violate("available", "member %d is not ready alone after its recovery", survivor)
	}
	return fmt.Sprintf(", killed %d times, ready alone %v after its start", kills, (s.w.h.now() - begun).Round(time.Millisecond))
}

// setRecovered says that the ensemble has gone through a forced recovery.
func (e *ensemble) setRecovered() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.recovered = true
	clear(e.mu.left)
}
