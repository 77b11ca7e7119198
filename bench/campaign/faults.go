package campaign

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// A fault is a kind of thing that happens to an ensemble. strike causes it and returns what it did.
// When strike's ctx has ended, the nemesis heals the fault.
type fault struct {
	name              string
	shortest, longest time.Duration
	strike            func(s *strike) string
}

// powerFaults need a PowerCutter.
var powerFaults = []fault{
	{"power cut at one", moment, long, func(s *strike) string { return s.cutPower(s.anyone()) }},
	{"power cut at a majority", moment, long, func(s *strike) string { return s.cutPower(s.most()...) }},
	{"power cut at all", moment, long / 2, func(s *strike) string { return s.cutPower(s.e.here()...) }},
}

const (
	moment = 200 * time.Millisecond
	long   = 5 * time.Second // several times the least session timeout
)

var faultKinds = []fault{
	{"kill one", moment, long, func(s *strike) string { return s.kill(s.anyone()) }},
	{"kill the leader", moment, long, func(s *strike) string { return s.kill(s.leader()) }},
	{"kill a majority", moment, long, func(s *strike) string { return s.kill(s.most()...) }},
	{"kill all", moment, long / 2, func(s *strike) string { return s.kill(s.e.here()...) }},
	{"kill until sessions expire", 7 * time.Second, 8 * time.Second, bury},
	{"kill who leads the home shard as sessions close", 7 * time.Second, 8 * time.Second, farewell},
	{"shut down one", moment, long, shutDown},
	{"stop the leader", moment, long, func(s *strike) string { return s.stop(s.leader()) }},
	{"stop a follower", moment, long, func(s *strike) string { return s.stop(s.follower()) }},
	{"stop a majority", moment, long, func(s *strike) string { return s.stop(s.most()...) }},
	{"cut one way", moment, long, cutOneWay},
	{"cut the leader's ears", moment, long, cutEars},
	{"isolate the leader", moment, long, func(s *strike) string { return s.split(link{Cut: true}, s.leader()) }},
	{"isolate one", moment, long, func(s *strike) string { return s.split(link{Cut: true}, s.anyone()) }},
	{"part one from the home shard's leader, late to others", 5 * sessionTimeoutMin / 4, 2 * sessionTimeoutMin, estrange},
	{"split", moment, long, func(s *strike) string { return s.split(link{Cut: true}, s.some(len(s.e.here())/2)...) }},
	{"delay", moment, long, func(s *strike) string {
		return s.each(link{Delay: between(s.rng, 5*time.Millisecond, 400*time.Millisecond)})
	}},
	{"lose messages", moment, long, func(s *strike) string { return s.each(link{Loss: 0.05 + 0.4*s.rng.Float64()}) }},
	{"lose messages, and delay the others", moment, long, func(s *strike) string {
		return s.each(link{Loss: 0.05 + 0.2*s.rng.Float64(), Delay: between(s.rng, 5*time.Millisecond, 200*time.Millisecond)})
	}},
	{"deaf, then cut off", 3 * sessionTimeoutMin, 4 * sessionTimeoutMin, deafen},
	{"slow disk", moment, long, func(s *strike) string {
		return s.disk(diskFault{Delay: between(s.rng, 5*time.Millisecond, 300*time.Millisecond)})
	}},
	{"disk: I/O error", 2 * time.Second, long, func(s *strike) string { return s.disk(diskFault{Errno: int(syscall.EIO)}) }},
	{"disk: full", 2 * time.Second, long, func(s *strike) string {
		return s.disk(diskFault{Errno: int(syscall.ENOSPC), On: int(embedtest.Growth)})
	}},
	{"disk: full, of all, for a moment", moment, embedtest.Patience / 2, func(s *strike) string {
		return s.disks(diskFault{Errno: int(syscall.ENOSPC), On: int(embedtest.Growth)})
	}},
	{"disk: fsync error", 2 * time.Second, long, func(s *strike) string {
		return s.disk(diskFault{Errno: int(syscall.EIO), On: int(embedtest.Syncs)})
	}},
	{"disk: read error", 2 * time.Second, long, func(s *strike) string {
		return s.disk(diskFault{Errno: int(syscall.EIO), On: int(embedtest.Reads)})
	}},
	{"no file descriptors", 2 * time.Second, long, func(s *strike) string {
		return s.disk(diskFault{Errno: int(syscall.EMFILE), On: int(embedtest.Descriptors)})
	}},
	{"directory taken away", 2 * time.Second, long, takeAway},
	{"wall clock jumps", moment, time.Second, wallClock},
	{"clock drifts", moment, 2 * long, drift},
	{"virtual machine pauses", moment, long, freeze},
	{"machine sleeps", moment, time.Second, sleep},
	{"leadership moves", time.Second, long, churn},
	{"rude clients rush in", 2 * time.Second, long, rush},
	{"lag until the log is gone", 5 * time.Second, 6 * time.Second, lag},
}

// clientFaults break the connections between clients and gateways.
var clientFaults = []fault{
	{"clients: cut off", moment, long, func(s *strike) string { return s.wires(link{Cut: true}) }},
	{"clients: delay", moment, long, func(s *strike) string {
		return s.wires(link{Delay: between(s.rng, 5*time.Millisecond, 400*time.Millisecond)})
	}},
	{"clients: lose connections", moment, long, func(s *strike) string { return s.wires(link{Loss: 0.01 + 0.1*s.rng.Float64()}) }},
}

// wires breaks the connections of the clients of one process, or of all.
func (s *strike) wires(l link) string {
	ids := []embed.MemberID{s.anyone()}
	if s.rng.IntN(3) == 0 {
		ids = s.e.here()
	}
	for _, id := range ids {
		s.e.setLink(id, gateways, l)
	}
	return fmt.Sprintf("member %v, %+v", ids, l)
}

func (s *strike) kill(ids ...embed.MemberID) string {
	for _, id := range ids {
		s.e.kill(id)
	}
	return fmt.Sprint("member ", ids)
}

func (s *strike) cutPower(ids ...embed.MemberID) string {
	s.e.cutPower(ids...)
	return fmt.Sprint("member ", ids)
}

func (s *strike) stop(ids ...embed.MemberID) string {
	for _, id := range ids {
		s.e.stop(id)
	}
	return fmt.Sprint("member ", ids)
}

// split breaks the links between some members and the others.
func (s *strike) split(l link, some ...embed.MemberID) string {
	for _, a := range some {
		for _, b := range s.e.others(some...) {
			s.e.setLink(a, b, l)
			s.e.setLink(b, a, l)
		}
	}
	return fmt.Sprint("member ", some)
}

// each breaks every link in the same way.
func (s *strike) each(l link) string {
	for _, a := range s.e.here() {
		for _, b := range s.e.others(a) {
			s.e.setLink(a, b, l)
		}
	}
	return fmt.Sprintf("%+v", l)
}

func cutOneWay(s *strike) string {
	from := s.anyone()
	others := s.e.others(from)
	to := others[s.rng.IntN(len(others))]
	s.e.setLink(from, to, link{Cut: true})
	return fmt.Sprintf("from member %d to %d", from, to)
}

// cutEars cuts off the leader in one direction: either the leader receives nothing, or the others
// receive nothing from it.
func cutEars(s *strike) string {
	leader, deaf := s.leader(), s.rng.IntN(2) == 0
	for _, id := range s.e.others(leader) {
		if deaf {
			s.e.setLink(id, leader, link{Cut: true})
		} else {
			s.e.setLink(leader, id, link{Cut: true})
		}
	}
	return fmt.Sprintf("member %d, to it: %v", leader, deaf)
}

func (s *strike) disk(d diskFault) string {
	id := s.anyone()
	d.After = s.rng.IntN(50)
	s.e.breakDisk(id, d)
	return fmt.Sprintf("member %d: %+v", id, d)
}

// disks breaks the disks of all members at the same moment.
func (s *strike) disks(d diskFault) string {
	for _, id := range s.e.here() {
		s.e.breakDisk(id, d)
	}
	return fmt.Sprintf("all members: %+v", d)
}

// takeAway moves files of a member to where the member does not find them. Healing moves them back.
func takeAway(s *strike) string {
	id := s.anyone()
	part := []string{".", "raft", "image"}[s.rng.IntN(3)]
	if err := s.e.takeDir(id, part); err != nil {
		return fmt.Sprintf("member %d: %v", id, err)
	}
	return fmt.Sprintf("member %d: %s", id, part)
}

func wallClock(s *strike) string {
	id, by := s.anyone(), between(s.rng, -time.Hour, time.Hour)
	s.e.run(id).Send(Request{Call: callWall, Length: by}, nil)
	return fmt.Sprintf("member %d by %v", id, by)
}

// sleepMax is the longest sleep of a machine.
const sleepMax = 2 * long

func sleep(s *strike) string {
	id, by := s.anyone(), between(s.rng, moment, sleepMax)
	add(s.w.h, jumps, jump{s.w.h.now(), by})
	s.e.run(id).Send(Request{Call: callSleep, Length: by}, nil)
	return fmt.Sprintf("member %d for %v", id, by)
}

// drift lets a member's clock run fast or slow by one to three percent.
func drift(s *strike) string {
	const step = 10 * time.Millisecond
	id, every, fast := s.anyone(), between(s.rng, step*100/3, step*100), s.rng.IntN(2) == 0
	r := s.e.run(id)
	for s.ctx.Err() == nil {
		if fast {
			add(s.w.h, jumps, jump{s.w.h.now(), step})
			r.Send(Request{Call: callSleep, Length: step}, nil)
		} else {
			r.Send(Request{Call: callFreeze, Count: 1}, nil)
			pause(s.ctx, step)
			r.Send(Request{Call: callFreeze}, nil)
		}
		pause(s.ctx, every)
	}
	return fmt.Sprintf("member %d, fast: %t, by %v in %v", id, fast, step, every)
}

// freeze pauses the virtual machine under a member, whose clocks but for the wall clock do not
// notice.
func freeze(s *strike) string {
	id := s.anyone()
	_, _ = s.e.call(s.ctx, id, Request{Call: callFreeze, Count: 1}) // a process that dies has no clock
	s.e.stop(id)
	<-s.ctx.Done()
	s.e.resume(id)
	s.e.run(id).Send(Request{Call: callFreeze}, nil)
	return fmt.Sprintf("member %d", id)
}

// deafen lets a member hear nothing for a part of the least session timeout, though the others hear
// it. It sends again what it does not see committed. Then it hears everything at once, and is cut
// off. So its sessions must count from the first sending.
func deafen(s *strike) string {
	id := s.follower()
	for _, other := range s.e.others(id) {
		s.e.setLink(other, id, link{Cut: true})
	}
	deaf := between(s.rng, sessionTimeoutMin/3, sessionTimeoutMin)
	pause(s.ctx, deaf)
	for _, other := range s.e.others(id) {
		s.e.setLink(other, id, link{})
	}
	pause(s.ctx, between(s.rng, tick/4, 6*tick))
	s.split(link{Cut: true}, id)
	return fmt.Sprintf("member %d, deaf for %v", id, deaf)
}

func shutDown(s *strike) string { return s.shutDown(s.anyone()) }

func (s *strike) shutDown(id embed.MemberID) string {
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	r := s.e.run(id)
	s.e.resume(id) // another fault may have stopped it, and a stopped process cannot shut down
	// An error says that sessions stay until their timeouts, as when there is no quorum.
	r.orderly.Store(true)
	_, _ = s.e.call(ctx, id, Request{Call: callShutdown})
	r.Kill()
	<-r.Dead()
	return fmt.Sprintf("member %d", id)
}

// churn transfers the leadership of a shard every few hundred milliseconds.
func churn(s *strike) string {
	n := 0
	for s.ctx.Err() == nil {
		shard := s.anyShard()
		from, to := s.leaderOf(shard), s.anyone()
		s.e.run(from).Send(Request{Call: callTransfer, Shard: shard, To: s.e.idOf(to)}, nil)
		n++
		pause(s.ctx, between(s.rng, 50*time.Millisecond, 700*time.Millisecond))
	}
	return fmt.Sprintf("%d times", n)
}
