package gateway

import (
	"cmp"
	"slices"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/watch"
)

// nudge sees to it that what is ready is sent, by a goroutine of its own. It may be called by anybody, under any lock.
func (c *conn) nudge() {
	if c.baton.pickUp() {
		go c.sendLoop() // stopSending waits for it
	}
}

// onStateChange is nudge after the session's state may have changed.
func (c *conn) onStateChange() {
	c.stateChanged.Store(true)
	c.nudge()
}

// sendHere has the reader send what is ready, unless somebody else does.
func (c *conn) sendHere() error {
	if !c.baton.pickUp() {
		return nil
	}
	c.session.Busy(true)
	defer c.session.Busy(false)
	again, err := c.sendOnce()
	if again { // there may be no end to it
		go c.sendLoop()
	}
	return err
}

// sendLoop sends until nothing is ready. The caller holds the baton.
func (c *conn) sendLoop() {
	for again := true; again; {
		again, _ = c.sendOnce()
	}
}

// sendOnce sends what is ready. Then it puts the baton down, unless there is more to send. The error
// says that the connection has ended.
func (c *conn) sendOnce() (again bool, err error) {
	if err = c.contain(c.sendReady); err == nil {
		again, retiring := c.baton.putDown()
		if retiring {
			c.retireBaton()
		}
		return again, nil
	}
	if err == errLast {
		err = nil
	} else {
		c.gate.log.Debug("client's connection dropped", "client", c.sock.RemoteAddr(), "cause", err)
		c.drop()
		err = errEnded
	}
	c.retireBaton()
	return false, err
}

// retireBaton is for the last holder of the baton.
func (c *conn) retireBaton() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.baton.retireHeld()
	c.progress.Broadcast()
}

// awaitRetired waits until the baton is retired, so that nothing is sent any more, or the connection
// has ended.
func (c *conn) awaitRetired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.baton.retired() && c.stage != stageEnded {
		c.progress.Wait()
	}
}

// stopSending returns when nothing is sent any more. The connection has ended, so the holder of the
// baton puts it down soon.
func (c *conn) stopSending() {
	c.baton.retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.baton.retired() {
		c.progress.Wait()
	}
}

// checkSession returns why the session is not to be served on this connection.
func (c *conn) checkSession() error {
	now := c.session.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now == embed.Connected || c.stage == stageClosing {
		return nil
	}
	return sessionError(now)
}

// A sessionError ends a connection. That of a session that is Suspended ends at once: this node may be cut off, and the client needs
// the time it has left to find another.
type sessionError embed.State

func (e sessionError) Error() string { return "the session is " + embed.State(e).String() }

// A writer is what whoever has the turn gathers.
type writer struct {
	*conn
	out      *[]byte // not sent yet; nil: nothing
	gathered int     // bytes that what is in it was counted by
}

var outs = sync.Pool{New: func() any { return new([]byte) }}

// sendReady sends the answers that are ready and the events, errLast if the last answer is among them.
func (c *conn) sendReady() error {
	if c.stateChanged.Load() && c.stateChanged.Swap(false) {
		if err := c.checkSession(); err != nil {
			return err
		}
	}
	w := writer{conn: c}
	for {
		a, ok := w.first()
		if !ok {
			events, more, err := w.idle()
			if err != nil {
				return err
			}
			if !more {
				return w.sendGathered()
			}
			if err := w.events(events); err != nil {
				return err
			}
			continue
		}
		if err := w.answer(&a); err != nil {
			return err
		}
		if a.last {
			return cmp.Or(w.sendGathered(), errLast)
		}
	}
}

// idle returns the events that belong to no answer, and whether there is more to gather than was. It looks for them with the queue: an
// answer that is just being made comes before them.
func (w *writer) idle() (events []embed.Event, more bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.head < len(w.queue) {
		return nil, w.readyLocked(), nil
	}
	if w.deferEvents { // it may be applied, and what comes is of later ones; who queues it has it sent
		return nil, false, nil
	}
	if cap(w.queue) > queueKept {
		w.queue = nil
	}
	events, err = w.watches.Take(w.watches.Here())
	return events, len(events) > 0, err
}

// answer gathers an answer with the events before it, and takes it out of the queue.
func (w *writer) answer(a *answer) error {
	switch a.state {
	case answerPending:
		if err := a.fill(a.pending.Result()); err != nil {
			return err
		}
		place := w.watches.Behind(a.pending)
		if place.Zxid < w.lastPlace.Zxid {
			place = w.lastPlace // that of one which was never applied may be late
		}
		a.placeAt(place)
	case answerFollowing:
		a.placeAt(w.lastPlace) // it shows nothing that the write before it does not
	}
	w.lastPlace = a.place
	events, err := w.watches.Take(a.place)
	if err != nil {
		return err
	}
	if err := w.events(events); err != nil {
		return err
	}
	if !a.ownZxid {
		a.reply.Zxid = int64(a.place.Zxid)
	}
	w.pop(a)
	w.gathered += a.bytes + answerBytes
	return w.append(&a.reply, a.bytes)
}

// events gathers events, which count until they are sent: a slow client may have many of them taken.
func (w *writer) events(events []embed.Event) error {
	w.hold(watch.Weight(events...))
	for _, e := range events {
		w.gathered += watch.Weight(e)
		if err := w.append(&wire.Reply{Xid: wire.XidEvent, Zxid: int64(e.Zxid), Result: wire.Result{Op: wire.OpEvent},
			Event: wire.Event{Type: wire.EventType(e.Type), State: wire.StateSyncConnected, Path: e.Path}}, 0); err != nil {
			return err
		}
	}
	return nil
}

// append gathers what is sent, of about so many bytes, and sends it when that is enough for one go. The
// reply is of no use then: while a slow client reads, what was gathered is enough to keep.
func (w *writer) append(r *wire.Reply, bytes int) error {
	if w.out == nil {
		w.out = outs.Get().(*[]byte)
	}
	if bytes > portionBytes { // in one go, and not again and again by doubling
		*w.out = slices.Grow(*w.out, bytes)
	}
	*w.out = r.AppendFrame(*w.out)
	w.figures.sent.Add(1)
	w.gate.figures.sent.Add(1)
	if len(*w.out) < portionBytes {
		return nil
	}
	*r = wire.Reply{}
	return w.sendGathered()
}

// sendGathered sends what was gathered. The system has it then, or the reader is too slow.
func (w *writer) sendGathered() error {
	out := w.out
	if out == nil {
		return nil
	}
	err := w.send(*out)
	w.hold(-w.gathered)
	w.out, w.gathered = nil, 0
	if *out = (*out)[:0]; cap(*out) <= 2*portionBytes {
		outs.Put(out)
	}
	return err
}
