package gateway

import (
	"cmp"
	"slices"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// nudge sees to it that what is ready is sent, by a goroutine of its own. It may be called by anybody, under any lock.
func (c *conn) nudge() {
	if c.turn.take() {
		go c.sendLoop() // which hush waits for
	}
}

// lookAgain is nudge when the session's state may be another.
func (c *conn) lookAgain() {
	c.turned.Store(true)
	c.nudge()
}

// sendHere has the reader send what is ready, unless somebody else does.
func (c *conn) sendHere() error {
	if !c.turn.take() {
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

// sendLoop sends until nothing is ready. Who starts it has the turn.
func (c *conn) sendLoop() {
	for again := true; again; {
		again, _ = c.sendOnce()
	}
}

// sendOnce sends what is ready, and gives the turn up unless there is more since. The error says that the connection has ended.
func (c *conn) sendOnce() (again bool, err error) {
	if err = c.contain(c.sendReady); err == nil {
		again, over := c.turn.giveUp()
		if over {
			c.endTurn()
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
	c.endTurn()
	return false, err
}

// endTurn is for who has the turn, and will not give it to anybody else.
func (c *conn) endTurn() {
	c.turn.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
	c.settled.Broadcast()
}

// awaitSilence waits until nothing is sent any more, or the connection has ended.
func (c *conn) awaitSilence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.silent && !c.ended {
		c.settled.Wait()
	}
}

// hush has nothing sent any more when it returns. The connection has ended, so that whoever is sending ends soon.
func (c *conn) hush() {
	if !c.turn.end() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.silent {
		c.settled.Wait()
	}
}

// look returns why the session is not to be served on this connection.
func (c *conn) look() error {
	now := c.session.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now == embed.Connected || c.leaving {
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
	if c.turned.Load() && c.turned.Swap(false) {
		if err := c.look(); err != nil {
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
				return w.flush()
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
			return cmp.Or(w.flush(), errLast)
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
	if w.coming { // it may be applied, and what comes is of later ones; who queues it has it sent
		return nil, false, nil
	}
	if cap(w.queue) > queueKept {
		w.queue = nil
	}
	events, err = w.watches.Take(w.watches.Here())
	return events, len(events) > 0, err
}

// fill puts the outcome of a write into its reply. The error is one that the client cannot be told.
func (a *answer) fill(results []tree.Result, err error) error {
	if a.multi != nil {
		return a.fillMulti(results, err)
	}
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Err = code
	if code == wire.OK {
		a.reply.Path, a.reply.Stat = results[0].Path, statOf(&results[0].Stat)
	}
	return nil
}

// answer gathers an answer with the events before it, and takes it out of the queue.
func (w *writer) answer(a *answer) error {
	if a.write {
		if err := a.fill(a.pending.Result()); err != nil {
			return err
		}
	}
	switch {
	case !a.write && !a.placed:
		a.place = w.told // it shows nothing that the write before it does not
	case a.write:
		if a.place = w.watches.Behind(a.pending); a.place.Zxid < w.told.Zxid {
			a.place = w.told // that of one which was never applied may be late
		}
	}
	w.told = a.place
	events, err := w.watches.Take(a.place)
	if err != nil {
		return err
	}
	if err := w.events(events); err != nil {
		return err
	}
	if !a.fixed {
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
	if bytes > flushAt { // in one go, and not again and again by doubling
		*w.out = slices.Grow(*w.out, bytes)
	}
	*w.out = r.AppendFrame(*w.out)
	w.figures.sent.Add(1)
	w.gate.figures.sent.Add(1)
	if len(*w.out) < flushAt {
		return nil
	}
	*r = wire.Reply{}
	return w.flush()
}

// flush sends what was gathered. The system has it then, or the reader is too slow.
func (w *writer) flush() error {
	out := w.out
	if out == nil {
		return nil
	}
	err := w.send(*out)
	w.hold(-w.gathered)
	w.out, w.gathered = nil, 0
	if *out = (*out)[:0]; cap(*out) <= 2*flushAt {
		outs.Put(out)
	}
	return err
}
