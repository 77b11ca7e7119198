package gateway

import (
	"cmp"
	"slices"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/watch"
)

// nudge has what is ready sent by another goroutine. It may be called by any goroutine, under any
// lock.
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

// sendHere sends what is ready in the reader's goroutine, unless another goroutine sends already.
func (c *conn) sendHere() error {
	if !c.baton.pickUp() {
		return nil
	}
	c.session.Busy(true)
	defer c.session.Busy(false)
	again, err := c.sendOnce()
	if again { // more may become ready without end, and the reader has to go on
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

// sendOnce sends what is ready. Then it puts the baton down, unless there is more to send. The
// error says that the connection has ended.
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
		c.gate.log.Debug("client's connection dropped", "client", c.sock.RemoteAddr().String(), "cause", err)
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

// awaitRetired waits until the baton is retired, so that nothing is sent any more, or the
// connection has ended.
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

// checkSession returns an error if the session must not be served on this connection any more.
func (c *conn) checkSession() error {
	now := c.session.CurrentState()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now == embed.Connected || c.stage == stageClosing {
		return nil
	}
	return sessionError(now)
}

// A sessionError ends a connection because of its session's state. A Suspended session's connection
// ends at once. This node may be cut off, and the client needs the remaining time to find another.
type sessionError embed.State

func (e sessionError) Error() string { return "the session is " + embed.State(e).String() }

// A writer gathers answers and events for the holder of the baton.
type writer struct {
	*conn
	out      *[]byte // gathered and not sent yet; nil if there is nothing
	gathered int     // how many bytes hold counts for it
}

var outs = sync.Pool{New: func() any { return new([]byte) }}

// sendReady sends the answers and events that are ready. It returns errLast if the last answer is
// among them.
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

// idle returns the events that belong to no answer, and whether there is more to gather. It looks
// at the queue under the same lock, because an answer that is being made comes before those events.
func (w *writer) idle() (events []embed.Event, more bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.head < len(w.queue) {
		return nil, w.readyLocked(), nil
	}
	// The events may belong behind the answer that the reader makes. They are sent after it is
	// queued.
	if w.deferEvents {
		return nil, false, nil
	}
	if cap(w.queue) > queueKept {
		w.queue = nil
	}
	events, err = w.watches.Take(w.watches.Here())
	return events, len(events) > 0, err
}

// answer gathers an answer and the events before it, and takes the answer out of the queue.
func (w *writer) answer(a *answer) error {
	switch a.state {
	case answerPending:
		if err := a.fill(a.pending.Result()); err != nil {
			return err
		}
		place := w.watches.Behind(a.pending)
		if place.Zxid < w.lastPlace.Zxid {
			// The answer before may be that of a write that was never applied. Such an answer gets
			// a place as late as the moment at which it is sent.
			place = w.lastPlace
		}
		a.placeAt(place)
	case answerFollowing:
		a.placeAt(w.lastPlace) // it shows no more than the answer before it
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

// events gathers events. They count as held until they are sent, because a slow client may have
// many of them.
func (w *writer) events(events []embed.Event) error {
	w.hold(watch.Weight(events...))
	for _, e := range events {
		w.gathered += watch.Weight(e)
		r := wire.Reply{Xid: wire.XidEvent, Zxid: int64(e.Zxid), Result: wire.Result{Op: wire.OpEvent},
			Event: wire.Event{Type: wire.EventType(e.Type), State: wire.StateSyncConnected, Path: e.Path}}
		if w.isNative.Load() {
			nativeEvent(&r, &e)
		}
		if err := w.append(&r, len(r.Event.Znode.Data)); err != nil {
			return err
		}
	}
	return nil
}

// append gathers a reply of about so many bytes, and sends what is gathered when there is enough of
// it. It clears the reply before it sends, so that a slow client does not keep both alive.
func (w *writer) append(r *wire.Reply, bytes int) error {
	if w.out == nil {
		w.out = outs.Get().(*[]byte)
	}
	if bytes > portionBytes {
		if w.hasEnded() {
			return errEnded
		}
		w.hold(bytes)                       // for a moment there are both the reply and its frame
		*w.out = slices.Grow(*w.out, bytes) // once, instead of doubling again and again
		*w.out = r.AppendFrame(*w.out)
		*r = wire.Reply{}
		w.hold(-bytes)
	} else {
		*w.out = r.AppendFrame(*w.out)
	}
	w.figures.sent.Add(1)
	w.gate.figures.sent.Add(1)
	if len(*w.out) < portionBytes {
		return nil
	}
	*r = wire.Reply{}
	return w.sendGathered()
}

// sendGathered sends what was gathered. It returns when the system has accepted it, or when the
// client was too slow.
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
