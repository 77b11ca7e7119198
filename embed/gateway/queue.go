package gateway

import "time"

// queued returns how many answers are in the queue.
func (c *conn) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) - c.head
}

// awaitRoom waits until another request may be read. It returns false if the connection has ended.
// A connection with no request in flight always has room for one.
func (c *conn) awaitRoom() bool {
	most := c.gate.cfg.Outstanding
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.stage != stageEnded && len(c.queue) > c.head &&
		(len(c.queue)-c.head >= most || c.bytes >= queueBytesMax || c.gate.outstanding.Load() >= int64(most)) {
		c.waitLocked()
	}
	return c.stage != stageEnded
}

// awaitPlaced waits until every answer in the queue has its place: all writes, and what was queued
// behind them, are answered. It returns false if the connection has ended.
func (c *conn) awaitPlaced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.stage != stageEnded && c.unplaced > 0 {
		c.waitLocked()
	}
	return c.stage != stageEnded
}

// waitLocked waits for progress. First it has the answers that are ready sent.
func (c *conn) waitLocked() {
	if c.readyLocked() {
		c.nudge()
	}
	c.session.Busy(true)
	c.progress.Wait()
}

// readyLocked reports whether the first answer in the queue can be sent.
func (c *conn) readyLocked() bool {
	return c.head < len(c.queue) && c.queue[c.head].ready()
}

// push queues an answer.
func (c *conn) push(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushLocked(a)
}

func (c *conn) pushLocked(a *answer) {
	c.deferEvents = false
	switch {
	case a.state != answerMade:
	case c.unplaced > 0:
		a.goTo(answerFollowing)
	default:
		a.placeAt(c.watches.Here())
	}
	if a.state != answerPlaced {
		c.unplaced++
	}
	c.bytes += a.bytes
	c.hold(a.bytes + answerBytes)
	// Without this a queue that is never empty would grow for ever.
	if n := len(c.queue); n == cap(c.queue) && c.head > n/2 {
		left := copy(c.queue, c.queue[c.head:])
		clear(c.queue[left:])
		c.queue, c.head = c.queue[:left], 0
	}
	c.queue = append(c.queue, *a)
	c.gate.outstanding.Add(1)
}

// first returns the first answer in the queue, or false if it is not ready. The answer stays in the
// queue until pop.
func (c *conn) first() (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readyLocked() {
		return answer{}, false
	}
	return c.queue[c.head], true
}

// pop takes the first answer out of the queue, to be sent.
func (c *conn) pop(a *answer) {
	after := c.removeFirst(a, time.Now())
	c.gate.outstanding.Add(-1)
	c.figures.answered(after)
	c.gate.figures.answered(after)
	class := c.gate.meters.answered(a, after)
	switch {
	case a.readOnly:
		c.gate.reads.answered(after)
	case class == classWrite:
		c.gate.writes.answered(after)
	}
}

func (c *conn) removeFirst(a *answer, now time.Time) (after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue[c.head].state != answerPlaced { // a is a copy, which has its place by now
		c.unplaced--
	}
	c.queue[c.head] = answer{}
	c.head++
	if c.head == len(c.queue) {
		c.queue, c.head = c.queue[:0], 0
	}
	c.bytes -= a.bytes
	after = now.Sub(a.arrived)
	c.last = lastAnswer{op: a.reply.Op, xid: a.reply.Xid, zxid: a.reply.Zxid, at: now, latency: after}
	c.progress.Signal()
	return after
}
