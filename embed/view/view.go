package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// ErrClosed says that Close has ended the view.
var ErrClosed = errors.New("view closed")

// HistoryDefault is how many changes a view keeps if Options.History is zero.
const HistoryDefault = 1 << 14

// bufferLen is how many events may wait for a view: more than the end of sessions deletes in one
// transaction, which is 20,000 znodes. The room takes 1.5 MiB. One event more, or more data than a
// watch holds, costs a repair.
const bufferLen = 1 << 15

// Options are the settings of a view. The zero value is usable if T is a string or a slice of bytes.
type Options[T any] struct {
	// Codec decodes the data. Only its Decode is used. The zero value is for a T that is a string or
	// a slice of bytes. Decode is called by one goroutine at a time, once for each version of a
	// znode that the view shows.
	Codec value.Codec[T]
	// Depth is how many levels below the path the view shows. One shows its children. The znode at
	// the path is not among them. Zero shows it and everything below it. The view
	// does not read what is deeper, but it reads past its events.
	Depth int
	// History is how many changes are kept for Changes; zero means HistoryDefault. The newest
	// transaction is kept whole even if it has more. A kept change takes 48 bytes, and keeps the
	// entry before it in memory. The changes that are kept take at most 32 MiB, where a value counts
	// with the bytes of its data.
	History int
	// Keep reports whether the view shows a path; nil shows all. It must always answer the same for
	// the same path, and at once: see embed.Session.Walk for what waits in memory meanwhile.
	Keep func(path string) bool
}

// An Entry is what a view shows of one znode.
type Entry[T any] struct {
	// Value is the decoded data. It is shared by all who see it: do not change what it refers to.
	// If the data does not decode, Value is the last one of this znode that did, or zero.
	Value T
	// Stat is the znode's Stat after its newest write. The view does not follow children and ACLs,
	// so Pzxid, Cversion, Aversion and NumChildren may be older.
	Stat embed.Stat
	// Err says why the newest data does not decode, or is nil.
	Err error
}

// A Change is how one transaction left one znode. A znode that was deleted and created again has
// two changes, even if both happened in one transaction. A znode that was created and deleted by the
// same transaction has none.
type Change[T any] struct {
	Type     embed.EventType // NodeCreated, NodeDataChanged or NodeDeleted
	Path     string          // below the session's Root
	Old, New Entry[T]        // zero if the znode did not exist before, or does not exist after
	Zxid     embed.Zxid      // of the transaction; if Repaired, of the state that it belongs to
	// Repaired says that the view found the change by reading again, after its watch had missed
	// something. The znode may have had other values in between. All changes of a repair have the
	// same Zxid.
	Repaired bool
	// Last says that no other change of the same transaction, or repair, follows.
	Last bool
}

// Err returns why the new data does not decode, or nil. It is New.Err.
func (c Change[T]) Err() error { return c.New.Err }

// A View shows the subtree of one znode. Its methods may be called by any number of goroutines. Get,
// All and Zxid take no lock and never wait. They go on to show the last state after the view has
// ended.
type View[T any] struct {
	// Immutable after Open.
	s      *embed.Session
	path   string
	o      Options[T]
	decode func([]byte) (T, error)
	buffer int
	ctx    context.Context // the view's lifetime; its cause is why the view ends
	cancel context.CancelCauseFunc
	asks   chan ask
	done   chan struct{} // closed when followLoop has ended

	state atomic.Pointer[state[T]] // stored by followLoop only

	// Owned by followLoop.
	watch   *embed.Watch
	pending []embed.Event // received and not yet applied
	edits   uint64

	mu struct {
		rank.Mutex[rank.View]
		history history[T]
		wake    chan struct{} // closed when history grows; nil if nobody waits
		err     error         // why the view ended
	}
}

// A state is all entries at one zxid. Immutable.
type state[T any] struct {
	table[T]
	zxid embed.Zxid
}

// An ask is a caller of Await. Once it is answered, the view shows zxid or later.
type ask struct {
	zxid embed.Zxid
	done chan struct{}
}

// Open returns a view of the znode at a path and of all below it. The znode need not exist; it may
// also come and go later. When Open returns, the view shows all that this node showed when Open was
// called. ctx bounds the call, not the view.
//
// The view lasts until Close or until the session ends. One session can have many views, and one
// view serves any number of callers: share it.
//
// Errors: ErrCrossShard if the descendants of the znode are on several shards, as those of "/" are.
// ErrNoAuth if the session may not read the znode. ErrInvalidArgument if Depth or History is
// negative, or if Codec is zero and T is neither a string nor a slice of bytes. ErrInvalidPath, the
// ctx's error, and those of an ended session.
func Open[T any](ctx context.Context, s *embed.Session, path string, o Options[T]) (*View[T], error) {
	return open(ctx, s, path, o, bufferLen)
}

// open is Open with the buffer of the watch.
func open[T any](ctx context.Context, s *embed.Session, path string, o Options[T], buffer int) (*View[T], error) {
	v := &View[T]{s: s, path: path, o: o, buffer: buffer, asks: make(chan ask), done: make(chan struct{})}
	var err error
	if v.decode, err = decoder(o); err != nil {
		return nil, v.wrap("open view of", err)
	}
	v.state.Store(new(state[T]))
	v.mu.history.max = cmp.Or(o.History, HistoryDefault)
	v.ctx, v.cancel = context.WithCancelCause(s.Context())
	now, err := v.look(ctx)
	if err != nil {
		v.cancel(err)
		return nil, v.wrap("open view of", err)
	}
	v.state.Store(now)
	v.mu.history.floor = now.zxid
	go v.followLoop()
	return v, nil
}

// Get returns the entry of a path. It returns false if the znode does not exist, and also if Depth
// or Keep leaves it out.
func (v *View[T]) Get(path string) (Entry[T], bool) {
	if e := v.state.Load().get(path); e != nil {
		return *e, true
	}
	return Entry[T]{}, false
}

// All yields all paths and entries in byte order of the paths, as they were at one zxid. That is the
// newest zxid when the loop begins, and the loop may last as long as it likes. Every range over the
// result begins anew.
func (v *View[T]) All() iter.Seq2[string, Entry[T]] {
	return func(yield func(string, Entry[T]) bool) {
		v.state.Load().all(func(it item[T]) bool { return yield(it.path, *it.entry) })
	}
}

// Zxid returns the transaction up to which the view shows everything. Transactions that change
// nothing in the view move it only when Await is called.
func (v *View[T]) Zxid() embed.Zxid { return v.state.Load().zxid }

// Changes yields every change later than since, in the order of the transactions. It goes on until
// ctx or the view ends, and yields the error of that. When it yields a change, Get shows that change
// or a later one. The changes of one transaction follow one another.
//
// If the view no longer keeps a change that is later than since, Changes yields a *embed.GapError
// and ends. It does the same in the middle of the loop, between two transactions, if the loop is so
// slow that the view has dropped what comes next. Nothing else waits for a slow loop. To go on, read
// All, and then call Changes with the Zxid of the error: the changes between that Zxid and the state
// of All come again. Call it with zero to begin in that way.
//
// Other errors are the ctx's, ErrClosed and those of an ended session. Every range over the result
// begins anew, with since.
func (v *View[T]) Changes(ctx context.Context, since embed.Zxid) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		err := v.changes(ctx, since, func(c Change[T]) bool { return yield(c, nil) })
		if err != nil {
			yield(Change[T]{}, v.wrap("changes of", err))
		}
	}
}

// changes calls fn with one change after the other. It returns nil if fn has returned false.
func (v *View[T]) changes(ctx context.Context, since embed.Zxid, fn func(Change[T]) bool) error {
	v.mu.Lock()
	at, kept := v.mu.history.find(since)
	v.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var records []record[T]
		v.mu.Lock()
		if kept {
			records, kept = v.mu.history.read(at)
		}
		if kept && len(records) == 0 && v.mu.wake == nil {
			v.mu.wake = make(chan struct{})
		}
		wake, err := v.mu.wake, v.mu.err
		v.mu.Unlock()
		if !kept {
			return &embed.GapError{Zxid: v.Zxid()}
		}
		for _, r := range records {
			if r.zxid > since && !fn(r.change()) {
				return nil
			}
		}
		at += uint64(len(records))
		switch {
		case len(records) > 0:
			continue
		case err != nil:
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// Await waits until the view shows a zxid of its shard, or a later one. So a zxid from the Stat of a
// write, or from another process, makes the view as new as that, without a commit. Do not call it in
// Decode or Keep.
//
// Errors are those of embed.Session.Await, and ErrClosed.
func (v *View[T]) Await(ctx context.Context, z embed.Zxid) error {
	if v.Zxid() >= z {
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	// From then on all events up to z are in the channel of the watch, or were.
	if err := v.s.Await(both, v.path, z); err != nil {
		if over := context.Cause(v.ctx); over != nil && ctx.Err() == nil {
			err = over
		}
		return v.wrap("await in view of", err)
	}
	a := ask{z, make(chan struct{})}
	select {
	case v.asks <- a:
	case <-v.done:
		return v.wrap("await in view of", v.Err())
	case <-ctx.Done():
		return v.wrap("await in view of", ctx.Err())
	}
	select {
	case <-a.done:
		return nil
	case <-v.done:
		return v.wrap("await in view of", v.Err())
	case <-ctx.Done():
		return v.wrap("await in view of", ctx.Err())
	}
}

// Done returns a channel that is closed when the view has ended.
func (v *View[T]) Done() <-chan struct{} { return v.done }

// Err returns why the view ended: ErrClosed or the error of the session. It is nil while the view
// lasts.
func (v *View[T]) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.err
}

// Close ends the view and waits until its goroutine has ended, so it must not be called in Decode or
// Keep. It is idempotent and always returns nil.
func (v *View[T]) Close() error {
	v.cancel(ErrClosed)
	<-v.done
	return nil
}

// shows reports whether the view shows a path at or below its own.
func (v *View[T]) shows(path string) bool {
	if v.o.Depth > 0 {
		levels := 0
		if path != v.path {
			levels = strings.Count(strings.TrimPrefix(path, strings.TrimSuffix(v.path, "/")), "/")
		}
		if levels == 0 || levels > v.o.Depth {
			return false
		}
	}
	return v.o.Keep == nil || v.o.Keep(path)
}

func (v *View[T]) wrap(op string, err error) error { return fmt.Errorf("%s %s: %w", op, v.path, err) }
