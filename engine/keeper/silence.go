package keeper

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// # Silence of remote clients
//
// This is not the ensemble's count of a node's silence, which is in engine/replica/expirer.go.
//
// The sessions of this node with the same timeout form a class. The clock of the class counts the
// silence of its clients, in ticks. A session ends when the clock has moved by the session's
// timeout and one tick since its client was last heard.
//
// While the class is Connected, each tick of the node moves the clock by one tick:
//   - It does so however long the node was stopped during the tick. A late tick does not count at
//     all, unless the one before was late too: the node first reads what has arrived meanwhile.
//   - A client is not silent while nobody listens to it because one of its requests takes its time.
//
// While the class is Suspended, this node keeps its clients away. So the clock stands still while
// nothing of this node is committed. When a batch of this node is applied, it proves that the node
// was alive when it sent the batch. Until then a client could have come, so this shows a part of
// the suspension. The clock moves by half of the part that is newly shown. For one proof it moves
// by at most half a timeout: where nothing was committed for longer, no client could have come.
// When the suspension is over, each client gets its full timeout again, if it was heard since it
// last got it.
//
// Let T be the timeout and q a tick, and let ticks be punctual.
//
// Never early: the clock does not move by more than the time that passes. The client was heard at
// some moment within a tick, hence the tick that is added to the timeout.
//
// Soon enough: suppose that a client has gone for good. If its class was not Suspended since the
// client was last heard, the session ends within T+2q of that moment. Otherwise it ends within 2S,
// however slow commits are. S is 4T+4q, or the time in which four batches of this node are applied
// one after the other, if that is longer:
//   - When a suspension of length B is over, all of B is shown: the proof it began with was at
//     least T/3 old, and the last proof is younger than that. So the clock counts half of B.
//   - While a suspension goes on, let a batch take L. Each batch waits for the one before, so the
//     newest proof is at most 2L old. If L is at most T, then after 4T the proofs have moved by 2T
//     and T/3, and the clock by T. If L is longer, each batch but the first moves the clock by T/2.
//   - The client gets its full timeout again once, when the first suspension is over: hence twice
//     S.
//
// The log's own count of silence (replica/expirer.go) cannot do this. When commits are slow, its
// steps are slow too, and they have no effect: the node's next batch is always committed before
// them.
//
// Each class is Suspended by its own timeout, so a client with a short one holds up nobody else.

const (
	// ticksPerTimeout says how exactly silence is counted: a session ends at most two ticks late.
	ticksPerTimeout = 20
	// RemoteTickMin is the shortest tick in which silence is counted.
	RemoteTickMin = 100 * time.Millisecond
	// A remote session is Suspended after 1/SuspendedParts of its timeout. That is twice as long as
	// an idle node takes to prove itself alive, and it leaves the client enough time to reattach.
	SuspendedParts = 3
	// A timeout is rounded to whole ticks if it has at least exactTicks of them. Rounding a shorter
	// one would change it too much: its client would be kept away between any two beats of its
	// node.
	exactTicks = 10
	// Only 1/slowParts of a suspension counts. A client that last pinged as long ago as its pings
	// allow, a third of its timeout, still has four thirds of its timeout to come back.
	slowParts = 2
)

// A remoteClass is the remote sessions of this node that have the same timeout. A timeout of many
// ticks is rounded to whole ones first. The sessions are Suspended together, and one clock counts
// their silence. There are few classes, so no choice of timeouts makes a tick look at every
// session.
type remoteClass struct {
	timeout time.Duration // the least that sessions here can have; immutable

	clock atomic.Int64 // moved with the keeper's mu held

	// Guarded by the keeper's mu.
	list      []silent
	provedAt  time.Duration // remotes.provedAt, as of the newest judgement
	suspended bool
	// Of the suspension: when it began, the proof that it began with, and how much of it was shown.
	since, from, shown time.Duration
}

// silent is a session whose client must be heard before the clock reaches due. A tick looks only at
// these, which lie side by side in memory: see BenchmarkTick.
type silent struct {
	due int64
	s   *Session
}

// RemoteTick returns how often silence is counted.
func RemoteTick(least time.Duration) time.Duration { return max(least/ticksPerTimeout, RemoteTickMin) }

// find returns where the class of a timeout is, or would be.
func (r *remotes) find(timeout time.Duration) (i int, there bool) {
	return slices.BinarySearchFunc(r.classes, timeout, func(c *remoteClass, t time.Duration) int { return cmp.Compare(c.timeout, t) })
}

// rounded returns the timeout of the class of a timeout.
func rounded(timeout, tick time.Duration) time.Duration {
	if timeout < exactTicks*tick {
		return timeout
	}
	return timeout.Truncate(tick)
}

// classOf returns the class of a timeout. It creates the class if there is none.
func (r *remotes) classOf(timeout, tick time.Duration) *remoteClass {
	timeout = rounded(timeout, tick)
	i, there := r.find(timeout)
	if !there {
		r.classes = slices.Insert(r.classes, i, &remoteClass{timeout: timeout, provedAt: r.provedAt})
	}
	return r.classes[i]
}

// add adds a session whose client has just been heard.
func (c *remoteClass) add(s *Session, tick time.Duration) {
	s.remote.class, s.remote.place, s.remote.renewed = c, len(c.list), -1
	s.Heard()
	c.list = append(c.list, silent{due: c.due(s, tick), s: s})
}

// leave removes a session from its class.
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

// due is when a session has been silent for its timeout. It adds a tick, because the tick in which
// the client was heard may have ended right after.
func (c *remoteClass) due(s *Session, tick time.Duration) int64 {
	return s.remote.heard.Load() + int64(tick+s.timeout)
}

// countSilence counts a tick if it is time to, and closes the sessions whose clients have been
// silent for their timeout.
func (k *Keeper) countSilence() {
	k.mu.Lock()
	gone := k.tickLocked(k.clock.Boot())
	k.mu.Unlock()
	k.dropCalls(gone)
	if len(gone) > 0 {
		k.home.Pump()
	}
}

func (k *Keeper) tickLocked(now time.Duration) (gone []*Session) {
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
func (k *Keeper) silentLocked(c *remoteClass) (gone []*Session) {
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
		k.endLocked(s, session.Expired, session.ErrExpired)
		k.queueCloseLocked(s, true)
		gone = append(gone, s)
		i-- // another session is in its place now
	}
	return gone
}

// judgeLocked moves the clock of a Suspended class, and suspends or resumes the sessions of a
// class.
func (k *Keeper) judgeLocked(c *remoteClass, now time.Duration) {
	r := &k.mu.remotes
	suspended := now-r.provedAt >= c.timeout/SuspendedParts
	if c.suspended && r.provedAt != c.provedAt {
		shown := min(now-c.since, r.provedAt-c.from)
		c.clock.Add(int64(min(shown-c.shown, c.timeout) / slowParts))
		c.shown = shown
	}
	c.provedAt = r.provedAt
	if suspended == c.suspended {
		return
	}
	c.suspended, c.since, c.from, c.shown = suspended, now, r.provedAt, 0
	k.noteLocked(suspended, len(c.list))
	for i := range c.list {
		if !suspended {
			k.renewLocked(c, i)
		}
		c.list[i].s.stateChangedLocked()
	}
	c.clock.Add(1) // so that a client heard from now on was heard after its timeout was renewed
}

// renewLocked gives a session's client its full timeout again, if it was heard since the last time.
func (k *Keeper) renewLocked(c *remoteClass, i int) {
	s := c.list[i].s
	if s.remote.heard.Load() <= s.remote.renewed {
		return
	}
	s.Heard()
	s.remote.renewed = s.remote.heard.Load()
	c.list[i].due = c.due(s, k.tick)
}
