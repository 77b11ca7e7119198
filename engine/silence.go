package engine

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// # Silence of remote clients
//
// A session's client is silent by the clock of its class: the sessions of this node with the same
// timeout. The clock moves in ticks, and the session ends when it has moved by the timeout, and a
// tick, since its client was heard.
//
// While the class is Connected, the clock moves by a tick for each tick:
//   - however long the node was stopped in it. One that comes late does not count at all,
//     unless the one before was late too: what has arrived meanwhile is read first;
//   - while nobody listens to a client, because a request of it takes its time, it is not silent.
//
// While the class is Suspended, this node keeps its clients away, so its clock stands still as
// long as nothing of this node is committed. A batch that is applied, and proves this node
// alive until it was sent, shows that a client could have come. Then the clock moves by half of
// the time of the suspension that is shown, half a timeout at most. Where nothing was committed
// for longer, nobody could have come. When a suspension is over, a client has its full timeout
// anew if it was heard since it had it last.
//
// Let T be the timeout and q a tick, and let ticks be punctual.
//
// Never early: the clock does not move by more than the time that passes. The tick that is
// added to the timeout is for the one in which the client was heard.
//
// Soon enough: a client that has gone for good loses its session T+2q after it was heard last,
// if its class was not Suspended meanwhile. Otherwise let S be 4T+4q, or the time in which four
// batches of this node are applied one after the other, if that is more. Then it is 2S at most,
// however slow commits are:
//   - A suspension of length B shows all of B when it is over: the proof that it began with was
//     T/3 old or more, the last one is less. So the clock counts half of it.
//   - In one that is not over, let a batch take L. Each waits for the one before, so the newest
//     proof is 2L old at most. If L is at most T, then after 4T the proofs have moved by 2T and
//     T/3, and the clock by T. If L is more, each batch but the first moves it by T/2.
//   - The client has its timeout anew once, when the first suspension is over: hence twice S.
//
// The log cannot do that. Where commits are slow, so are the steps of silence, and they come in
// vain. The next batch of the node is always committed before them.
//
// A suspension by one timeout is none by another: a client with a short one holds up nobody else.

const (
	// ticksPerTimeout is how exactly silence is counted: a session ends up to two ticks late.
	ticksPerTimeout = 20
	remoteTickMin   = 100 * time.Millisecond
	// suspendedParts is the part of its timeout after which a remote session is Suspended.
	// Twice as long as an idle node takes to prove itself alive; and then its client has as
	// much left as it needs.
	suspendedParts = 3
	// exactTicks is how many ticks a timeout has, at least, that is rounded to whole ones. Of fewer
	// that would be too much: a client would be kept away between any two beats of its node.
	exactTicks = 10
	// slowParts is the part that counts of a suspension. A client that was heard as late as its
	// pings allow, a third of its timeout ago, has four thirds to come back.
	slowParts = 2
)

// A class is the remote sessions of this node that have the same timeout, in whole ticks if it
// has many. They are Suspended together, and one clock counts their silence. There are few
// classes, so no choice of timeouts makes a tick look at each session by itself.
type class struct {
	timeout time.Duration // the least that sessions here can have; immutable

	clock atomic.Int64 // moved with the keeper's mu held

	// Guarded by the keeper's mu.
	list      []silent
	proved    time.Duration // remotes.proved, as of the newest judgement
	suspended bool
	// Of the suspension: when it began, the proof that it began with, and how much of it was shown.
	since, from, shown time.Duration
}

// silent is a session whose client has to be heard before a moment. A tick looks at these
// alone, which lie side by side: see BenchmarkTick.
type silent struct {
	due int64
	s   *Session
}

// remoteTick is how often silence is counted.
func remoteTick(least time.Duration) time.Duration { return max(least/ticksPerTimeout, remoteTickMin) }

// find returns where the class of a timeout is, or would be.
func (r *remotes) find(timeout time.Duration) (i int, there bool) {
	return slices.BinarySearchFunc(r.classes, timeout, func(c *class, t time.Duration) int { return cmp.Compare(c.timeout, t) })
}

// rounded is what the timeouts of one class have in common.
func rounded(timeout, tick time.Duration) time.Duration {
	if timeout < exactTicks*tick {
		return timeout
	}
	return timeout.Truncate(tick)
}

// classOf returns the class of a timeout, which there is from now on.
func (r *remotes) classOf(timeout, tick time.Duration) *class {
	timeout = rounded(timeout, tick)
	i, there := r.find(timeout)
	if !there {
		r.classes = slices.Insert(r.classes, i, &class{timeout: timeout, proved: r.proved})
	}
	return r.classes[i]
}

// add takes in a session whose client has just been heard.
func (c *class) add(s *Session, tick time.Duration) {
	s.remote.class, s.remote.place, s.remote.renewed = c, len(c.list), -1
	s.Heard()
	c.list = append(c.list, silent{due: c.due(s, tick), s: s})
}

// leave takes a session out of its class.
func (r *remotes) leave(s *Session) {
	c := s.remote.class
	last := len(c.list) - 1
	c.list[s.remote.place] = c.list[last]
	c.list[s.remote.place].s.remote.place = s.remote.place
	c.list[last] = silent{}
	c.list = c.list[:last]
	if i, there := r.find(c.timeout); there && last == 0 {
		r.classes = slices.Delete(r.classes, i, i+1)
	}
}

// due is when a session has been silent for its timeout: the tick in which it was heard may
// have been over soon after.
func (c *class) due(s *Session, tick time.Duration) int64 {
	return s.remote.heard.Load() + int64(tick+s.timeout)
}

// countSilence counts a tick if it is time to, and closes the sessions whose clients have been
// silent for their timeout.
func (k *keeper) countSilence() {
	k.mu.Lock()
	gone := k.tickLocked(k.clock.Boot())
	k.mu.Unlock()
	k.drop(gone)
	if len(gone) > 0 {
		k.home.pump()
	}
}

func (k *keeper) tickLocked(now time.Duration) (gone []*Session) {
	r := &k.mu.remotes
	took := now - r.ticked
	if len(r.byID) == 0 || took < k.tick {
		return nil
	}
	r.ticked = now
	r.late = took >= 2*k.tick && !r.late
	for i := len(r.classes) - 1; i >= 0; i-- { // backwards: a class goes with its last session
		c := r.classes[i]
		k.judgeLocked(c, now)
		if r.late {
			continue
		}
		if !c.suspended {
			c.clock.Add(int64(k.tick))
		}
		gone = append(gone, k.silentLocked(c)...)
	}
	return gone
}

// silentLocked ends the sessions of a class whose clients have been silent for their timeout.
func (k *keeper) silentLocked(c *class) (gone []*Session) {
	now := c.clock.Load()
	for i := 0; i < len(c.list); i++ {
		if c.list[i].due > now {
			continue
		}
		s := c.list[i].s
		if since := s.remote.busy.Load(); since > 0 && now > since { // for a whole tick at least
			s.remote.heard.Store(now)
		}
		if c.list[i].due = c.due(s, k.tick); c.list[i].due > now {
			continue
		}
		k.endLocked(s, session.Expired, ErrSessionExpired)
		k.queueCloseLocked(s, true)
		gone = append(gone, s)
		i-- // another has its place
	}
	return gone
}

// judgeLocked tells the sessions of a class when they are Suspended, and when no longer.
func (k *keeper) judgeLocked(c *class, now time.Duration) {
	r := &k.mu.remotes
	suspended := now-r.proved >= c.timeout/suspendedParts
	if c.suspended && r.proved != c.proved {
		shown := min(now-c.since, r.proved-c.from)
		c.clock.Add(int64(min(shown-c.shown, c.timeout) / slowParts))
		c.shown = shown
	}
	c.proved = r.proved
	if suspended == c.suspended {
		return
	}
	c.suspended, c.since, c.from, c.shown = suspended, now, r.proved, 0
	for i := range c.list {
		if !suspended {
			k.renewLocked(c, i)
		}
		c.list[i].s.turnLocked()
	}
	c.clock.Add(1) // who is heard from now on was heard after it had its timeout anew
}

// renewLocked gives a session's client its full timeout, if it was heard since it had it last.
func (k *keeper) renewLocked(c *class, i int) {
	s := c.list[i].s
	if s.remote.heard.Load() <= s.remote.renewed {
		return
	}
	s.Heard()
	s.remote.renewed = s.remote.heard.Load()
	c.list[i].due = c.due(s, k.tick)
}
