package keeper

import (
	"math"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// BeatsPerTimeout is how often an idle node proves itself alive within its smallest session
// timeout. The leader counts silence in quarters of that timeout, so a node that beats more often
// than that never costs a silence entry.
const BeatsPerTimeout = 6

// calm is a window of the clocks. While both clocks stay in it, no session's state can change, so
// nobody has to look at the sessions one by one. The zero window is empty.
type calm struct {
	until     time.Duration // boot clock
	low, high time.Duration // of the wall clock's offset
}

// endless is the calm without sessions.
var endless = calm{until: math.MaxInt64, low: math.MinInt64, high: math.MaxInt64}

func (c calm) holds(now, offset time.Duration) bool {
	return now < c.until && c.low <= offset && offset <= c.high
}

// narrow adds that a session may change at until, or when the offset differs by more than margin
// from the given one.
func (c *calm) narrow(until, offset, margin time.Duration) {
	c.until = min(c.until, until)
	c.low = max(c.low, offset-margin)
	c.high = min(c.high, offset+margin)
}

// timeouts counts the sessions of each timeout. The zero value counts none.
type timeouts struct {
	n     map[time.Duration]int
	least time.Duration // zero without sessions
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

// leastLocked returns the smallest timeout of all sessions, or zero without sessions.
func (k *Keeper) leastLocked() time.Duration {
	a, b := k.mu.timeouts.least, k.mu.remotes.timeouts.least
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// shown is what the clocks showed at the newest look. The zero value stands for no look.
type shown struct{ boot, offset time.Duration }

// slewPart is the largest part of the passing time by which a wall clock is slewed. Time services
// slew by half of that.
const slewPart = 1000

// noteClocksLocked tells of a jump of the wall clock since the last look. It ignores a look that is
// older than another.
func (k *Keeper) noteClocksLocked(boot, offset time.Duration) {
	old := k.mu.shown
	if boot < old.boot || k.options.JumpMin == 0 {
		return
	}
	k.mu.shown = shown{boot, offset}
	if jump := offset - old.offset; old != (shown{}) && beyond(jump, k.options.JumpMin+(boot-old.boot)/slewPart) {
		k.options.Jumped(jump)
	}
}

// Proved records that a batch of this node was applied. It was first sent at sent, when the wall
// clock had that offset.
func (k *Keeper) Proved(sent, offset time.Duration) {
	expired, ends := k.extend(sent, offset)
	k.dropCalls(expired)
	if ends {
		k.signalAll() // not pump: this is the apply goroutine
	}
}

func (k *Keeper) extend(sent, offset time.Duration) (expired []*Session, ends bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Boot()
	expired, ends = k.lookLocked(now)
	k.noteClocksLocked(sent, offset)
	k.mu.provedAt, k.mu.offset = sent, offset // batches are applied in the order in which they were sent
	k.mu.remotes.provedAt = sent
	before := len(k.mu.suspended)
	for s := range k.mu.suspended {
		if state, _ := s.life.Proved(now, sent); state == session.Connected {
			delete(k.mu.suspended, s)
			s.lost = 0
			s.stateChangedLocked()
		}
	}
	k.noteLocked(false, before-len(k.mu.suspended))
	k.mu.calm = calm{}
	if len(k.mu.suspended) == 0 {
		// The least timeout has the nearest deadline and the smallest margin.
		least := k.mu.timeouts.least
		margin := session.Margin(least)
		k.mu.calm = endless
		k.mu.calm.narrow(k.mu.provedAt+least-margin, k.mu.offset, margin)
	}
	return expired, ends
}

// noteLocked tells of sessions that were suspended or resumed, if there are any.
func (k *Keeper) noteLocked(suspended bool, n int) {
	if n > 0 && k.options.Noted != nil {
		k.options.Noted(suspended, n)
	}
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

// lookAndLock compares the clock as CheckDeadlines does, and returns with mu locked. While all is
// calm by the quick clock, it locks once and makes no system call, instead of two and four. That
// matters: when a lock.Mutex keeps its lock, Lock and Unlock cost little more than two of these
// calls.
func (k *Keeper) lookAndLock() {
	k.mu.Lock()
	if k.mu.timeouts.least == 0 {
		return
	}
	if now, offset, ok := k.clock.Glance(k.mu.anchor); ok && k.mu.calm.holds(now, offset) {
		return
	}
	k.mu.Unlock()
	k.CheckDeadlines()
	k.mu.Lock()
}

// lookLocked suspends and expires the sessions whose time has come. It returns those that expired,
// and whether it queued ends. Its cost grows with the number of sessions only when something can
// have happened.
func (k *Keeper) lookLocked(now time.Duration) (expired []*Session, ends bool) {
	if k.mu.timeouts.least == 0 {
		return nil, false
	}
	offset := k.clock.Offset()
	k.mu.anchor = k.clock.Mark(now, offset)
	k.noteClocksLocked(now, offset)
	if k.mu.calm.holds(now, offset) {
		return nil, false
	}
	before := len(k.mu.suspended)
	for _, s := range k.mu.sessions {
		ends = k.suspendLocked(s, now, offset) || ends
	}
	k.noteLocked(true, len(k.mu.suspended)-before)
	for s := range k.mu.suspended {
		if state, _ := s.life.Look(now); state == session.Expired {
			// It expires here before the log says so. This node keeps proving all its sessions
			// alive, so it must close this one itself: otherwise its claims would stay for ever.
			k.endLocked(s, session.Expired, session.ErrExpired)
			k.queueCloseLocked(s, true)
			expired, ends = append(expired, s), true
		}
	}
	k.calmLocked()
	return expired, ends
}

// calmLocked computes when sessions must be looked at again.
func (k *Keeper) calmLocked() {
	k.mu.calm = endless
	for _, s := range k.mu.sessions {
		judged := k.mu.offset
		if _, suspended := k.mu.suspended[s]; suspended {
			judged = s.offset
		}
		next, _ := s.life.Next() // there is one, because these sessions have not ended
		k.mu.calm.narrow(next, judged, session.Margin(s.timeout))
	}
}

// beyond reports whether a jump of the clocks, in either direction, is more than the margin.
func beyond(jump, margin time.Duration) bool { return jump > margin || jump < -margin }

// suspendLocked suspends a connected session that is past its deadline, or any connected session on
// a jump of the clocks. Claims that are or were held end, and their znodes are deleted, or
// linger, ahead of everything that this node sends from now on.
func (k *Keeper) suspendLocked(s *Session, now, offset time.Duration) (ends bool) {
	if _, already := k.mu.suspended[s]; already {
		if beyond(offset-s.offset, session.Margin(s.timeout)) {
			s.life.Suspend(now) // a batch that was sent before this jump proves nothing
			s.offset = offset
		}
		return false
	}
	s.life.Extend(k.mu.provedAt)
	jump := offset - k.mu.offset
	if state, _ := s.life.Jump(now, jump); state == session.Connected {
		return false
	}
	k.Meters.noteSuspension(beyond(jump, session.Margin(s.timeout)))
	s.offset = offset
	k.mu.suspended[s] = struct{}{}
	s.stateChangedLocked()
	k.Signal() // beat now: an applied batch makes the session Connected again
	for _, c := range s.claims {
		if r, ended := c.SuspendedLocked(); ended {
			c.removeLocked(r, c.outbox.QueueEnd) // ahead of the holder's queued writes
			s.lost++
			ends = true
		}
	}
	return ends
}

// Loop wakes at the next deadline, so that channels are closed even if nobody asks, and in time for
// a beat. It ends with stop.
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

// BeatInterval returns how often this node has to prove itself alive, or zero without sessions.
func (k *Keeper) BeatInterval() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leastLocked() / BeatsPerTimeout
}

// next beats if it is time to, and returns how long the loop may sleep.
func (k *Keeper) next() time.Duration {
	k.mu.Lock()
	now := k.clock.Boot()
	least, own, quiet := k.leastLocked(), k.mu.timeouts.least, now-k.mu.provedAt
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
