package value

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// changesBuffer is how many changes may wait for the consumer of Changes. One that lags further
// misses some: it reads again. The room is taken at once, 12 KiB.
const changesBuffer = 256

// Changes yields the value that this node shows, and then every value that the znode gets, each
// once and in order. Values are not compared: each write counts, also one of the same value. What
// several operations of one transaction leave is one value.
//
// Two kinds of errors are part of the sequence, which goes on after them:
//
//   - embed.ErrNoNode while the znode does not exist. The znodes above it may come and go too.
//   - What the Codec returns for data that does not decode. The Versioned has all but its Value.
//
// When ctx, the session or the node ends, or as soon as the session may not read the znode, Changes
// yields that error and stops. Another range over the result begins anew.
//
// The loop may miss values, but never the newest, if it lags by more than 256 changes or 32 MiB,
// when the node was away for so long that it gets the state of another member, and when a client's
// connection breaks.
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

// follow tells of states until it is stopped, until ctx or the session ends, or until the session
// may not read the znode. Once it has told of a state, no other error ends it: a client's session
// may be unable to read for now.
func (f *follower) follow(ctx context.Context) error {
	for {
		err := f.watch(ctx)
		switch {
		case f.stopped:
			return nil
		case errors.Is(err, embed.ErrWatchGap), errors.Is(err, embed.ErrWatchOverflow):
		case !f.told, ctx.Err() != nil,
			sessions.Final(err, embed.ErrSessionClosed, embed.ErrSessionExpired) != nil:
			return err
		default:
			sessions.Pause(ctx)
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
		if e.Type == embed.NodeChildrenChanged {
			continue
		}
		if stat, ok := e.Stat(); ok {
			f.show(state{zxid: e.Zxid, exists: true, data: e.Data(), stat: stat})
		} else if e.Type == embed.NodeDeleted {
			if err := f.deleted(ctx, w, e.Zxid); err != nil {
				return err
			}
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

// deleted tells that the znode is missing, unless the next event is of the same transaction, which
// may have created it again. If the watch has ended, nobody knows that before the next read.
func (f *follower) deleted(ctx context.Context, w *embed.Watch, z embed.Zxid) error {
	// A read waits until the transaction is published. By then all its events are there.
	if _, _, err := f.session.Exists(ctx, f.path); err != nil && !errors.Is(err, embed.ErrNoAuth) {
		return err
	}
	select {
	case e, open := <-w.Events():
		if !open {
			return w.Err()
		}
		if f.ahead = &e; e.Zxid == z {
			return nil
		}
	default:
	}
	f.show(state{zxid: z})
	return nil
}

// read returns the present state. Its zxid tells which events of the watch are older: that of the
// last write, or the one as of which there is no znode.
func (f *follower) read(ctx context.Context) (state, error) {
	for {
		data, stat, err := f.session.Get(ctx, f.path)
		if err == nil {
			return state{zxid: stat.Mzxid, exists: true, data: data, stat: stat}, nil
		}
		if !errors.Is(err, embed.ErrNoNode) {
			return state{}, err
		}
		for z, err := range f.session.WalkWith(ctx, f.path, embed.WalkOptions{Depth: 1}) {
			if errors.Is(err, embed.ErrNoNode) {
				return state{zxid: z.Zxid}, nil
			}
			if err != nil {
				return state{}, err
			}
			break // it has just been created
		}
	}
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
