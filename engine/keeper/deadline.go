package keeper

import (
	"math"
	"time"

	"github.com/vivarium-go/vivarium/session"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// BeatsPerTimeout is how often an idle node proves itself alive within its smallest session timeout. The leader counts
// silence in quarters of that timeout, so a node that beats more often than that never costs a silence entry.
const BeatsPerTimeout = 6

// calm is how far clocks may go before sessions have to be looked at one by one. The zero value is not at all.
type calm struct {
	until     time.Duration // boot clock
	low, high time.Duration // drift
}

// endless is the calm of no session.
var endless = calm{until: math.MaxInt64, low: math.MinInt64, high: math.MaxInt64}

func (c calm) holds(now, drift time.Duration) bool {
	return now < c.until && c.low <= drift && drift <= c.high
}

// narrow adds that a session may change at a moment, or when the drift is more than a margin from one it was judged by.
func (c *calm) narrow(until, drift, margin time.Duration) {
	c.until = min(c.until, until)
	c.low = max(c.low, drift-margin)
	c.high = min(c.high, drift+margin)
}

// timeouts say how many sessions have each timeout. The zero value is of none.
type timeouts struct {
	n     map[time.Duration]int
	least time.Duration // zero if there are none
}

func (l *timeouts) add(t time.Duration) {
	if l.n == nil {
		l.n = make(map[time.Duration]int)
	}
	l.n[t]++
	if l.least == 0 || t < l.least {
		l.least = t
	}
}

func (l *timeouts) remove(t time.Duration) {
	if l.n[t]--; l.n[t] > 0 {
		return
	}
	delete(l.n, t)
	l.least = 0
	for t := range l.n {
		if l.least == 0 || t < l.least {
			l.least = t
		}
	}
}

// leastLocked is the smallest timeout of all sessions, zero if there are none.
func (k *Keeper) leastLocked() time.Duration {
	a, b := k.mu.timeouts.least, k.mu.remotes.timeouts.least
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Proved is told that a batch of this node was applied that was first sent at sent, when the clocks differed by drift.
func (k *Keeper) Proved(sent, drift time.Duration) {
	expired, ends := k.extend(sent, drift)
	k.dropCalls(expired)
	if ends {
		k.signalAll() // not pump: this is the apply goroutine
	}
}

func (k *Keeper) extend(sent, drift time.Duration) (expired []*Session, ends bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Boot()
	expired, ends = k.lookLocked(now)
	k.mu.proved, k.mu.drift = sent, drift // batches are applied in the order in which they were sent
	k.mu.remotes.proved = sent
	for s := range k.mu.suspended {
		if state, _ := s.life.Proved(now, sent); state == session.Connected {
			delete(k.mu.suspended, s)
			s.lost = 0
			s.stateChangedLocked()
		}
	}
	k.mu.calm = calm{}
	if len(k.mu.suspended) == 0 {
		// The least timeout has the nearest deadline and the smallest margin.
		least := k.mu.timeouts.least
		margin := session.Margin(least)
		k.mu.calm = endless
		k.mu.calm.narrow(k.mu.proved+least-margin, k.mu.drift, margin)
	}
	return expired, ends
}

// CheckDeadlines compares the clock with the deadlines of all sessions.
func (k *Keeper) CheckDeadlines() {
	k.mu.Lock()
	expired, ends := k.lookLocked(k.clock.Boot())
	k.mu.Unlock()
	k.dropCalls(expired)
	if ends {
		k.pumpAll()
	}
}

// lookAndLock compares the clock as look does, and returns with mu locked. While all is calm by the quick clock it takes one lock and no
// system call, not two and four: taking and releasing a lock that a Mutex keeps is little else than two of these.
func (k *Keeper) lookAndLock() {
	k.mu.Lock()
	if k.mu.timeouts.least == 0 {
		return
	}
	if now, drift, ok := k.clock.Glance(k.mu.anchor); ok && k.mu.calm.holds(now, drift) {
		return
	}
	k.mu.Unlock()
	k.CheckDeadlines()
	k.mu.Lock()
}

// lookLocked suspends and expires sessions whose time has come. It returns those that expired, and whether it queued
// ends. It costs by the number of sessions only when something can have happened.
func (k *Keeper) lookLocked(now time.Duration) (expired []*Session, ends bool) {
	if k.mu.timeouts.least == 0 {
		return nil, false
	}
	drift := k.clock.Drift()
	k.mu.anchor = k.clock.Mark(now, drift)
	if k.mu.calm.holds(now, drift) {
		return nil, false
	}
	for _, s := range k.mu.sessions {
		ends = k.suspendLocked(s, now, drift) || ends
	}
	for s := range k.mu.suspended {
		if state, _ := s.life.Look(now); state == session.Expired {
			// Expired here before the log says so: this node keeps proving all its sessions alive, so it has to
			// close this one itself, or its claims would stay for ever.
			k.endLocked(s, session.Expired, outbox.ErrSessionExpired)
			k.queueCloseLocked(s, true)
			expired, ends = append(expired, s), true
		}
	}
	k.calmLocked()
	return expired, ends
}

// calmLocked finds out when sessions have to be looked at again.
func (k *Keeper) calmLocked() {
	k.mu.calm = endless
	for _, s := range k.mu.sessions {
		judged := k.mu.drift
		if _, suspended := k.mu.suspended[s]; suspended {
			judged = s.drift
		}
		next, _ := s.life.Next() // which has one: ended sessions are not among these
		k.mu.calm.narrow(next, judged, session.Margin(s.timeout))
	}
}

// beyond reports whether a jump of the clocks, either way, is more than the margin.
func beyond(jump, margin time.Duration) bool { return jump > margin || jump < -margin }

// suspendLocked suspends a connected session that is past its deadline, or any on a jump of the clocks. Its held claims
// end, and their znodes are deleted ahead of everything that this node sends from now on.
func (k *Keeper) suspendLocked(s *Session, now, drift time.Duration) (ends bool) {
	if _, already := k.mu.suspended[s]; already {
		if beyond(drift-s.drift, session.Margin(s.timeout)) {
			s.life.Suspend(now) // what was sent before another jump proves nothing after it
			s.drift = drift
		}
		return false
	}
	s.life.Extend(k.mu.proved)
	if state, _ := s.life.Jump(now, drift-k.mu.drift); state == session.Connected {
		return false
	}
	s.drift = drift
	k.mu.suspended[s] = struct{}{}
	s.stateChangedLocked()
	k.Signal() // a batch that is applied brings it back: no need to wait until a beat is due
	for _, c := range s.claims {
		if c.wasHeld {
			c.endLocked(ErrSuspended, c.state == claimHeld, c.outbox.QueueEnd) // ahead of what the holder had still to write
			s.lost++
			ends = true
		}
	}
	return ends
}

// Loop wakes at the next deadline, so that channels close without being asked, and in time for a beat. It ends with
// stop.
func (k *Keeper) Loop(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-k.wake:
		case <-timer.C:
		}
		k.CheckDeadlines()
		k.countSilence()
		timer.Reset(k.next())
	}
}

// BeatInterval is how often this node has to prove itself alive, zero if no session lives by it.
func (k *Keeper) BeatInterval() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leastLocked() / BeatsPerTimeout
}

// next beats if it is time to and returns how long the loop may sleep.
func (k *Keeper) next() time.Duration {
	k.mu.Lock()
	now := k.clock.Boot()
	least, own, quiet := k.leastLocked(), k.mu.timeouts.least, now-k.mu.proved
	suspended := len(k.mu.suspended) > 0
	again := time.Hour
	if len(k.mu.remotes.byID) > 0 {
		again = max(k.mu.remotes.ticked+k.tick-now, 0)
	}
	k.mu.Unlock()
	if least == 0 {
		return time.Hour
	}
	beat := least / BeatsPerTimeout
	if quiet < beat && !suspended {
		return min(again, beat-quiet)
	}
	k.home.Beat()
	again = min(again, beat/4)
	if deadline := own - session.Margin(own) - quiet; own > 0 && deadline > 0 && !suspended {
		again = min(again, deadline)
	}
	return again
}
