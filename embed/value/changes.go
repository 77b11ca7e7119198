package value

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/vivarium-go/vivarium/embed"
)

// changesBuffer is how many changes may wait for the consumer of Changes. One that lags further
// misses some: it reads again. The room is taken at once, 12 KiB.
const changesBuffer = 256

// Changes yields the present value, and then every value that the znode gets, each once and in
// order. Values are not compared: each write counts, also one of the same value. What several
// operations of one transaction leave is one value.
//
// Two kinds of errors are part of the sequence, which goes on after them:
//
//   - embed.ErrNoNode while the znode does not exist. The znodes above it may come and go too.
//   - What the Codec returns for data that does not decode. The Versioned has all but its Value.
//
// When ctx, the session or the node ends, or if the session may not read the znode, Changes yields
// that error and stops. Another range over the result begins anew.
//
// The loop may miss values, but never the newest, if it lags by more than 256 changes or 32 MiB,
// and when the node was away for so long that it gets the state of another member.
func (v Value[T]) Changes(ctx context.Context) iter.Seq2[Versioned[T], error] {
	return func(yield func(Versioned[T], error) bool) {
		f := follower{session: v.session, path: v.path, tell: func(now state) bool {
			if !now.exists {
				return yield(Versioned[T]{}, wrap("changes", v.path, embed.ErrNoNode))
			}
			return yield(v.versioned(now.data, now.stat))
		}}
		if err := f.follow(ctx); err != nil {
			yield(Versioned[T]{}, wrap("changes", v.path, err))
		}
	}
}

// A state is a znode as a transaction left it. A znode that does not exist has only a zxid.
type state struct {
	zxid   embed.Zxid // the state is that of this transaction, or an earlier one
	exists bool
	data   []byte
	stat   embed.Stat
}

// A follower tells of the states of one znode. Their zxids grow, and each differs from the one
// before.
type follower struct {
	session *embed.Session
	path    string
	tell    func(state) bool // returns false to stop

	ahead   *embed.Event // received already, but not looked at
	told    bool
	last    state // if told; without its data
	stopped bool
}

// follow tells of states until it is stopped, or until ctx or the session ends.
func (f *follower) follow(ctx context.Context) error {
	for {
		err := f.watch(ctx)
		if f.stopped {
			return nil
		}
		if !errors.Is(err, embed.ErrWatchGap) && !errors.Is(err, embed.ErrWatchOverflow) {
			return err
		}
	}
}

// watch follows the znode with one watch.
func (f *follower) watch(ctx context.Context) error {
	w, err := f.session.WatchWith(ctx, f.path, embed.WatchPersistent, embed.WatchOptions{Buffer: changesBuffer, Values: true})
	if err != nil {
		return err
	}
	defer w.Close()
	f.ahead = nil
	now, err := f.read(ctx)
	if err != nil {
		return err
	}
	f.show(now)
	for !f.stopped {
		e, open := f.next(ctx, w)
		if !open {
			return cmp.Or(ctx.Err(), w.Err())
		}
		stat, ok := e.Stat()
		switch {
		case ok:
			f.show(state{zxid: e.Zxid, exists: true, data: e.Data(), stat: stat})
		case e.Type == embed.NodeDeleted && !f.goesOn(ctx, w, e.Zxid):
			f.show(state{zxid: e.Zxid})
		}
	}
	return nil
}

// next waits for an event. It returns false when ctx or the watch has ended.
func (f *follower) next(ctx context.Context, w *embed.Watch) (e embed.Event, open bool) {
	if f.ahead != nil {
		e, f.ahead = *f.ahead, nil
		return e, true
	}
	if ctx.Err() != nil {
		return embed.Event{}, false
	}
	select {
	case e, open = <-w.Events():
	case <-ctx.Done():
	}
	return e, open
}

// goesOn reports whether the next event is of the same transaction, which may have created a znode
// again that it deleted.
func (f *follower) goesOn(ctx context.Context, w *embed.Watch, z embed.Zxid) bool {
	// A read waits until the transaction is published. By then all its events are there.
	_, _, _ = f.session.Exists(ctx, f.path)
	select {
	case e, open := <-w.Events():
		if open {
			f.ahead = &e
		}
		return open && e.Zxid == z
	default:
		return false
	}
}

// read returns the present state with the zxid that it is of, even if there is no znode. That zxid
// tells which events of the watch are older.
func (f *follower) read(ctx context.Context) (now state, err error) {
	for z, err := range f.session.Walk(ctx, f.path) {
		if errors.Is(err, embed.ErrNoNode) {
			return state{zxid: z.Zxid}, nil
		}
		return state{zxid: z.Zxid, exists: true, data: z.Data, stat: z.Stat}, err
	}
	return state{}, nil // unreachable: a Walk yields a znode or an error
}

// show tells of a state, if it is a newer one than the last.
func (f *follower) show(now state) {
	if f.stopped || f.told && now.zxid <= f.last.zxid {
		return
	}
	same := f.told && now.exists == f.last.exists && now.stat.Mzxid == f.last.stat.Mzxid
	f.told, f.last = true, now
	f.last.data = nil
	if !same {
		f.stopped = !f.tell(now)
	}
}
