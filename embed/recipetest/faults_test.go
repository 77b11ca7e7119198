package recipetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A fault disturbs a schedule for a while.
type fault struct {
	name string
	do   func(*schedule)
}

// losing are the faults by which sessions are lost.
var losing = []fault{
	{"isolate long", func(s *schedule) { s.isolate(true) }},
	{"pause long", func(s *schedule) { s.pause(true) }},
	{"sleep", (*schedule).sleep},
	{"kill", func(s *schedule) { s.kill(s.member()) }},
}

var otherFaults = []fault{
	{"isolate", func(s *schedule) { s.isolate(false) }},
	{"pause", func(s *schedule) { s.pause(false) }},
	{"cut", (*schedule).cut},
	{"kill all", func(s *schedule) { s.kill(s.ens.Members()...) }},
	{"stop", (*schedule).stop},
	{"lag", (*schedule).lag},
	{"move leader", func(s *schedule) { s.ens.TransferLeadership(s.member()) }},
	{"bad links", (*schedule).badLinks},
	{"wall clock", (*schedule).wallClock},
	{"close sessions", (*schedule).closeSessions},
	{"delete by hand", (*schedule).deleteByHand},
}

var lockFaults = []fault{
	{"revoke", (*schedule).revoke},
	{"resize", (*schedule).resize},
}

// disturb plays one fault after the other.
func (s *schedule) disturb() {
	const calm = 300 // at most so many events between two faults
	others := slices.Concat(otherFaults, s.faults)
	deck := slices.Concat(losing, losing, others)
	if !long() {
		first := losing
		if !testkit.Night() {
			// A member that is paused while it holds a mutex would stop the clock of the bubble.
			pauses := func(f fault) bool { return strings.HasPrefix(f.name, "pause") }
			first, others = slices.DeleteFunc(slices.Clone(first), pauses), slices.DeleteFunc(others, pauses)
		}
		deck = []fault{pick(s.rng, first...), pick(s.rng, others...), pick(s.rng, others...)}
	}
	s.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	for _, f := range deck {
		s.pass(s.rng.IntN(calm), time.Second/2)
		s.nextFault()
		s.model.notef("fault: %s", f.name)
		f.do(s)
		s.model.notef("fault over: %s", f.name)
		s.mu.Lock()
		s.mu.faults[f.name]++
		s.mu.Unlock()
	}
	s.nextFault()
	s.pass(40, time.Second/2)
}

// member returns a random member.
func (s *schedule) member() embed.MemberID { return pick(s.rng, s.ens.Members()...) }

// outlast waits while a member is away: for a moment, or until its sessions are Suspended or have
// ended.
func (s *schedule) outlast(id embed.MemberID, long bool) {
	if !long {
		s.pass(20, 200*time.Millisecond)
		return
	}
	over := s.rng.IntN(2) == 0
	for _, sl := range s.slots {
		if sl.member != id || sl.timeout > shortTimeout {
			continue
		}
		sl.turn <- struct{}{}
		session := sl.session
		<-sl.turn
		if session == nil {
			continue
		}
		for {
			now, changed := session.State()
			if now != embed.Connected && (!over || now != embed.Suspended) {
				break
			}
			<-changed
		}
	}
	s.pass(s.rng.IntN(20), 500*time.Millisecond)
}

func (s *schedule) isolate(long bool) {
	id := s.member()
	s.ens.Isolate(id)
	s.outlast(id, long)
	s.ens.HealAll()
}

func (s *schedule) pause(long bool) {
	id := s.member()
	s.ens.Pause(id)
	s.outlast(id, long)
	s.ens.Resume(id)
}

// cut cuts one link. A member that lags then is not the leader, or not for long.
func (s *schedule) cut() {
	a := s.member()
	b := a%3 + 1
	s.ens.Cut(a, b)
	s.outlast(a, false)
	s.ens.HealAll()
}

// badLinks delays and drops messages.
func (s *schedule) badLinks() {
	for _, a := range s.ens.Members() {
		for _, b := range s.ens.Members() {
			if a != b {
				s.ens.Faults(a).SetLink(b, embedtest.Link{Loss: 0.2 * s.rng.Float64(), Delay: time.Duration(s.rng.IntN(20)) * time.Millisecond})
			}
		}
	}
	s.pass(80, 800*time.Millisecond)
	s.ens.HealAll()
}

func (s *schedule) kill(ids ...embed.MemberID) {
	for _, id := range ids {
		s.ens.Kill(id)
	}
	s.pass(s.rng.IntN(30), 200*time.Millisecond)
	s.start(ids...)
}

func (s *schedule) stop() {
	id := s.member()
	s.ens.Stop(id)
	s.pass(s.rng.IntN(30), 200*time.Millisecond)
	s.start(id)
}

// lag makes a member come back to a log that has been compacted.
func (s *schedule) lag() {
	s.lagged.Store(true)
	id := s.member()
	s.ens.Kill(id)
	s.pass(60, time.Second)
	for _, other := range s.ens.Members() {
		if other != id {
			_ = s.ens.Snapshot(other) // a snapshot may be running already
		}
	}
	s.pass(20, time.Second)
	s.start(id)
}

// start starts members again.
func (s *schedule) start(ids ...embed.MemberID) {
	for _, id := range ids {
		n := s.ens.Start(id)
		s.mu.Lock()
		s.mu.nodes[id] = n
		s.mu.Unlock()
	}
	for _, id := range ids {
		s.ens.Ready(id)
	}
}

// sleep makes the machine under a member sleep, for up to twice as long as its sessions can bear.
func (s *schedule) sleep() {
	s.ens.Faults(s.member()).Sleep(time.Duration(s.rng.Int64N(int64(2 * shortTimeout))))
	s.pass(20, 200*time.Millisecond)
}

// wallClock sets a clock forward or back, and then right again.
func (s *schedule) wallClock() {
	f := s.ens.Faults(s.member())
	f.SetWallClock(pick(s.rng, -time.Hour, time.Hour))
	s.pass(20, 200*time.Millisecond)
	f.SetWallClock(0)
}

func (s *schedule) closeSessions() {
	for range 3 {
		if session := s.anySession(s.rng); session != nil {
			_ = session.Close() // the node retries
		}
		s.pass(5, 100*time.Millisecond)
	}
}

// revoke asks holders to give their locks up.
func (s *schedule) revoke() {
	for range 6 {
		k := pick(s.rng, s.kinds...)
		if session := s.anySession(s.rng); session != nil {
			err := lock.Revoke(s.ctx, session, pick(s.rng, k.cold...))
			s.model.notef("revoked: %v", err)
		}
		s.pass(5, 50*time.Millisecond)
	}
}

// resize changes the limits of the semaphores.
func (s *schedule) resize() {
	for range 6 {
		path := pick(s.rng, semaphores.paths()...)
		if session := s.anySession(s.rng); session != nil {
			s.resizeTo(session, path, s.rng.IntN(5))
		}
		s.pass(5, 50*time.Millisecond)
	}
}

// resizeTo sets a limit; zero means the one that the callers agree on.
func (s *schedule) resizeTo(session *embed.Session, path string, limit int) {
	most := limit
	if most == 0 {
		most = permitsAgreed
	}
	before := max(s.limits[path], s.unknown[path])
	s.model.limited(path, max(before, most))
	err := lock.NewSemaphore(session, path, 0).Resize(s.ctx, limit)
	s.model.notef("%s is resized to %d: %v", path, limit, err)
	if err != nil {
		s.unknown[path] = max(s.unknown[path], most) // it may still be applied
		return
	}
	s.limits[path] = most
	s.model.limited(path, max(most, s.unknown[path]))
}

// deleteByHand deletes other callers' contenders, perhaps while a member cannot hear of it.
func (s *schedule) deleteByHand() {
	if s.rng.IntN(2) == 0 {
		s.ens.Isolate(s.member())
		defer s.ens.HealAll()
	}
	for range 12 {
		session := s.anySession(s.rng)
		if session == nil {
			continue
		}
		k := pick(s.rng, s.kinds...)
		s.deleteOne(session, k, pick(s.rng, k.paths()...))
		s.pass(5, 20*time.Millisecond)
	}
}

// deleteOne deletes a contender, mostly the first.
func (s *schedule) deleteOne(session *embed.Session, k *kind, path string) {
	znodes := k.queued(s.ctx, session, path)
	if len(znodes) == 0 {
		return
	}
	znode := pick(s.rng, znodes...)
	if s.rng.IntN(4) > 0 {
		znode = slices.MinFunc(znodes, func(a, b string) int { return cmp.Compare(a[len(a)-10:], b[len(b)-10:]) })
	}
	data, _, _ := session.Get(s.ctx, znode)
	if string(data) == "__REVOKE__" {
		return // its owner is unknown
	}
	s.model.took(path, znode, string(data))
	_ = session.Delete(s.ctx, znode, embed.AnyVersion)
}
