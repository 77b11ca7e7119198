package gateway

import (
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A writer is what the connection's second goroutine has.
type writer struct {
	*conn
	out     *[]byte // not sent yet; nil: nothing
	changed <-chan struct{}
}

var outs = sync.Pool{New: func() any { return new([]byte) }}

// writeLoop sends answers and events until the connection ends.
func (c *conn) writeLoop() {
	defer close(c.sent)
	w := writer{conn: c}
	if err := c.contain(w.run); err != nil {
		c.gate.log.Debug("client's connection dropped", "client", c.sock.RemoteAddr(), "cause", err)
		c.drop()
	}
}

// run returns nil when the last answer was sent.
func (w *writer) run() error {
	if err := w.look(); err != nil {
		return err
	}
	for {
		a, ok := w.first()
		if !ok {
			if err := w.rest(); err != nil {
				return err
			}
			continue
		}
		if err := w.outcome(&a); err != nil {
			return err
		}
		if err := w.answer(&a); err != nil {
			return err
		}
		if a.last || w.out != nil && len(*w.out) >= flushAt {
			if err := w.flush(); err != nil || a.last {
				return err
			}
		}
	}
}

// rest is when nothing is queued: it sends events and what was gathered, and waits for more.
func (w *writer) rest() error {
	events, err := w.idle()
	if err != nil {
		return err
	}
	if len(events) > 0 {
		w.events(events)
		return nil
	}
	if w.out != nil {
		return w.flush()
	}
	select {
	case <-w.more:
	case <-w.watches.Wake():
	case <-w.changed:
		return w.look()
	case <-w.quit:
		return errEnded
	}
	return nil
}

// look returns why the session is not to be served on this connection.
func (w *writer) look() error {
	var now embed.State
	now, w.changed = w.session.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now == embed.Connected || w.leaving {
		return nil
	}
	return sessionError(now)
}

// A sessionError ends a connection. That of a session that is Suspended ends at once: this node may be cut off, and the client needs
// the time it has left to find another.
type sessionError embed.State

func (e sessionError) Error() string { return "the session is " + embed.State(e).String() }

// outcome waits for that of a write, and puts it into the reply.
func (w *writer) outcome(a *answer) error {
	if !a.write {
		return nil
	}
	for done := a.pending.Done(); ; {
		select {
		case <-done:
			results, err := a.pending.Result()
			return a.fill(results, err)
		default:
		}
		if err := w.flush(); err != nil {
			return err
		}
		select {
		case <-done:
		case <-w.changed:
			if err := w.look(); err != nil {
				return err
			}
		case <-w.quit:
			return errEnded
		}
	}
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
	if a.write || !a.placed {
		a.place = w.watches.Here()
	}
	events, err := w.watches.Take(a.place)
	if err != nil {
		return err
	}
	w.events(events)
	if !a.fixed {
		a.reply.Zxid = int64(a.place.Zxid)
	}
	w.append(&a.reply)
	w.pop(a)
	return nil
}

func (w *writer) events(events []embed.Event) {
	for _, e := range events {
		w.append(&wire.Reply{Xid: wire.XidEvent, Zxid: int64(e.Zxid), Result: wire.Result{Op: wire.OpEvent},
			Event: wire.Event{Type: wire.EventType(e.Type), State: wire.StateSyncConnected, Path: e.Path}})
	}
}

func (w *writer) append(r *wire.Reply) {
	if w.out == nil {
		w.out = outs.Get().(*[]byte)
	}
	*w.out = r.AppendFrame(*w.out)
	w.figures.sent.Add(1)
	w.gate.figures.sent.Add(1)
}

// flush sends what was gathered. The system has it then, or the reader is too slow.
func (w *writer) flush() error {
	out := w.out
	if out == nil {
		return nil
	}
	err := w.send(*out)
	w.out = nil
	if *out = (*out)[:0]; cap(*out) <= 2*flushAt {
		outs.Put(out)
	}
	return err
}
