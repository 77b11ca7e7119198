package view

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// batchLen is how many events are applied before readers see them. Under load this saves copies of
// the table. It is small beside the history, so that a consumer that keeps up is woken in time.
const batchLen = 512

// batchBytes bounds the data of such events. The watch bounds what waits there.
const batchBytes = 1 << 20

// followLoop applies events until the view's lifetime ends.
func (v *View[T]) followLoop() {
	var err error
	for err == nil {
		err = v.follow()
	}
	_ = v.watch.Close()
	if cause := context.Cause(v.ctx); cause != nil {
		err = cause
	}
	v.cancel(err)
	v.mu.Lock()
	v.mu.err = err
	v.wakeLocked()
	v.mu.Unlock()
	close(v.done)
}

// follow waits for events, or for somebody who asks, and applies what there is.
func (v *View[T]) follow() error {
	if len(v.pending) == 0 {
		select {
		case e, ok := <-v.watch.Events():
			if !ok {
				return v.repair()
			}
			v.pending = append(v.pending, e)
		case a := <-v.asks:
			return v.answer(a)
		case <-v.ctx.Done():
			return v.ctx.Err()
		}
	}
	select {
	case a := <-v.asks: // even if there are always events
		return v.answer(a)
	default:
		return v.advance()
	}
}

// answer takes in all events up to a zxid that this node shows, and answers.
func (v *View[T]) answer(a ask) error {
	for v.state.Load().zxid < a.zxid {
		if over := v.receive(1); len(v.pending) > 0 {
			if err := v.advance(); err != nil {
				return err
			}
		} else if over {
			if err := v.repair(); err != nil {
				return err
			}
		} else {
			now := v.state.Load()
			v.state.Store(&state[T]{now.table, a.zxid}) // nothing changed in between
		}
	}
	close(a.done)
	return nil
}

// receive moves events that wait to pending, until it has n or has moved batchBytes of data. It
// reports whether the watch has ended and no event is left.
func (v *View[T]) receive(n int) (over bool) {
	for bytes := 0; len(v.pending) < n && bytes < batchBytes; {
		select {
		case e, ok := <-v.watch.Events():
			if !ok {
				return true
			}
			v.pending = append(v.pending, e)
			stat, _ := e.Stat()
			bytes += int(stat.DataLength)
		default:
			return false
		}
	}
	return false
}

// advance applies pending events, of which there are some, and those that follow: whole transactions
// only.
func (v *View[T]) advance() error {
	v.receive(min(batchLen, max(1, v.mu.history.max/4)))
	z := v.pending[len(v.pending)-1].Zxid
	// A transaction's events are all in the channel before reads show it.
	if err := v.s.Await(v.ctx, v.path, z); err != nil {
		return v.pause() // it is about to be shown; look again
	}
	over := false
	for !over && v.pending[len(v.pending)-1].Zxid == z {
		n := len(v.pending)
		if over = v.receive(n + 1); len(v.pending) == n {
			break
		}
	}
	if over {
		// A watch that overflowed, or whose connection broke, may have taken in a part of its last
		// transaction. The repair has it whole.
		z--
	}
	n := len(v.pending)
	for n > 0 && v.pending[n-1].Zxid > z {
		n--
	}
	v.apply(v.pending[:n])
	if v.pending = slices.Delete(v.pending, 0, n); len(v.pending) == 0 && cap(v.pending) > 4*batchLen {
		v.pending = nil // the room of a large transaction
	}
	if over {
		return v.repair()
	}
	return nil
}

// apply changes the state as the events of whole transactions say.
func (v *View[T]) apply(events []embed.Event) {
	now := v.state.Load()
	v.edits++
	next := edit[T]{table: now.table, number: v.edits}
	zxid := now.zxid
	var records []record[T]
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Zxid == events[0].Zxid {
			n++
		}
		if z := events[0].Zxid; z > now.zxid { // what Walk has shown is there already
			records = v.applyOne(&next, events[:n], records)
			zxid = z
		}
		events = events[n:]
	}
	if zxid > now.zxid {
		v.publish(&state[T]{next.table, zxid}, records)
	}
}

// applyOne applies the events of one transaction and appends its changes.
//
// Every event shows how the whole transaction left its znode. So of several events of one znode
// only the last one counts, and what counts is the znode before and after the transaction.
func (v *View[T]) applyOne(next *edit[T], events []embed.Event, records []record[T]) []record[T] {
	var newest map[string]int
	if len(events) > 1 {
		newest = make(map[string]int, len(events))
		for i, e := range events {
			newest[e.Path] = i
		}
	}
	before := len(records)
	for i, e := range events {
		if newest != nil && newest[e.Path] != i || !v.shows(e.Path) {
			continue
		}
		was := next.get(e.Path)
		var is *Entry[T]
		if stat, there := e.Stat(); there {
			is = v.entry(was, stat, e.Data)
		}
		switch {
		case is == was:
			continue
		case is == nil:
			next.remove(e.Path)
		default:
			next.put(e.Path, is)
		}
		records = differ(records, record[T]{path: e.Path, zxid: e.Zxid, old: was, new: is})
	}
	if len(records) > before {
		records[len(records)-1].last = true
	}
	return records
}

// differ appends a change, or two if one znode has replaced another.
func differ[T any](records []record[T], r record[T]) []record[T] {
	if r.old != nil && r.new != nil && r.old.Stat.Czxid != r.new.Stat.Czxid {
		gone := r
		gone.new, r.old = nil, nil
		records = append(records, gone)
	}
	return append(records, r)
}

// entry returns the entry of a znode, which is was itself if nobody has written since.
func (v *View[T]) entry(was *Entry[T], stat embed.Stat, data func() []byte) *Entry[T] {
	if was.isOf(stat) {
		return was
	}
	same := was != nil && was.Stat.Czxid == stat.Czxid
	e := &Entry[T]{Stat: stat}
	if e.Value, e.Err = v.decode(data()); e.Err != nil {
		e.Value = *new(T)
		if same {
			e.Value = was.Value
		}
	}
	return e
}

// isOf reports whether the Stat's znode has not been written since the entry, which may be nil.
func (e *Entry[T]) isOf(stat embed.Stat) bool {
	return e != nil && e.Stat.Czxid == stat.Czxid && e.Stat.Mzxid == stat.Mzxid
}

// publish shows a state to readers and then adds the changes that led to it to the history.
func (v *View[T]) publish(now *state[T], records []record[T]) {
	v.state.Store(now)
	if len(records) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.history.add(records)
	v.wakeLocked()
}

func (v *View[T]) wakeLocked() {
	if v.mu.wake != nil {
		close(v.mu.wake)
		v.mu.wake = nil
	}
}

// repair arms the watch again, reads everything, and records how it differs. It does not give up:
// no error but the end of the session lasts.
func (v *View[T]) repair() error {
	was := v.state.Load()
	now, err := v.look(v.ctx)
	if err != nil {
		return v.pause() // the watch has ended, so it is repaired again
	}
	if now.zxid <= was.zxid {
		return nil // nothing was missed, and the new watch has every change after that
	}
	var records []record[T]
	merge(was.table, now.table, func(path string, old, new *Entry[T]) {
		if old != new {
			records = differ(records, record[T]{path: path, zxid: now.zxid, old: old, new: new, repaired: true})
		}
	})
	if len(records) > 0 {
		records[len(records)-1].last = true
	}
	v.publish(now, records)
	return nil
}

// pause waits before something is tried again: a client's session may be unable to read for now. The
// error says that the view is over.
func (v *View[T]) pause() error {
	sessions.Pause(v.ctx)
	return v.ctx.Err()
}

// merge calls fn with every path of two tables, in order, and its entry in each or nil.
func merge[T any](a, b table[T], fn func(path string, a, b *Entry[T])) {
	var rest []item[T] // of a
	for it := range a.all {
		rest = append(rest, it)
	}
	for it := range b.all {
		for len(rest) > 0 && rest[0].path < it.path {
			fn(rest[0].path, rest[0].entry, nil)
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0].path == it.path {
			fn(it.path, rest[0].entry, it.entry)
			rest = rest[1:]
			continue
		}
		fn(it.path, nil, it.entry)
	}
	for _, it := range rest {
		fn(it.path, it.entry, nil)
	}
}

// decodeAll returns the entries of what a walk has found. A Decode may hang, so it is not called
// during the walk: the node keeps in memory all that is written until a walk has ended.
func (v *View[T]) decodeAll(was *state[T], found []embed.Znode) []item[T] {
	items := make([]item[T], len(found))
	for i := range found {
		z := &found[i]
		items[i] = item[T]{z.Path, v.entry(was.get(z.Path), z.Stat, func() []byte { return z.Data })}
		z.Data = nil // or all data would be in memory twice
	}
	return items
}

// look arms a watch and reads the present state. Entries that nobody has written since the last one
// are taken from there. The watch has every change later than the state.
func (v *View[T]) look(ctx context.Context) (*state[T], error) {
	was := v.state.Load()
	watch, err := v.s.WatchWith(ctx, v.path, embed.WatchRecursive, embed.WatchOptions{Buffer: v.buffer, Values: true})
	if err != nil {
		return nil, err
	}
	var found []embed.Znode
	var zxid embed.Zxid
	for z, err := range v.s.WalkWith(ctx, v.path, embed.WalkOptions{Depth: v.o.Depth}) {
		zxid = z.Zxid
		hidden := errors.Is(err, embed.ErrNoAuth) && v.watch != nil // a view that is open goes on
		switch {
		case errors.Is(err, embed.ErrNoNode), hidden:
			continue
		case err != nil:
			_ = watch.Close()
			return nil, err
		case !v.shows(z.Path):
			continue
		}
		if was.get(z.Path).isOf(z.Stat) {
			z.Data = nil
		}
		found = append(found, z)
	}
	items := v.decodeAll(was, found)
	slices.SortFunc(items, func(a, b item[T]) int { return strings.Compare(a.path, b.path) })
	v.watch, v.pending = watch, nil
	return &state[T]{tableOf(items), zxid}, nil
}
