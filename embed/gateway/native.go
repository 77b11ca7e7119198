package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// The requests of package embed/client that ZooKeeper's protocol lacks. An answer tells every error
// that leaves the session alive and no outcome open. So a request that is refused does not end the
// connection. An answer's place is behind all events that were queued before: the client's reads
// may run beside its events, as those of a session in this process do.

// awaitMax bounds how long one request may wait for a zxid. Nothing else is read meanwhile. So a
// request with others behind it waits for awaitBusy only: they may be pings.
const (
	awaitMax  = 50 * time.Millisecond
	awaitBusy = time.Millisecond
)

// errNativeReadOnly is errReadOnly for a client that knows no read-only mode. It tries elsewhere.
var errNativeReadOnly = fmt.Errorf("%w: %v", engine.ErrUnavailable, errReadOnly)

// namesMax bounds how many names a search among siblings may match. Recipes have two.
const namesMax = 16

// native carries out one such request.
func (c *conn) native(q *wire.Request, a *answer) error {
	n := &q.Native
	a.reply.Native.Kind = n.Kind
	if c.writes == nil {
		return c.answerNative(a, errNativeReadOnly)
	}
	if err := checkNative(n); err != nil {
		return c.answerNative(a, err)
	}
	switch n.Kind {
	case wire.NativeSubmit:
		return c.nativeSubmit(n, a)
	case wire.NativeRelease:
		c.startDeferring()
		a.goTo(answerPending)
		a.pending = c.writes.ReleaseThen(n.Path, tree.Zxid(n.Zxid), n.Flag, c.nudgeFunc)
		c.push(a)
		return nil
	case wire.NativeArm:
		return c.nativeArm(n, a)
	}
	// A read comes after the writes before it.
	if !c.awaitPlaced() {
		return errEnded
	}
	if n.Kind == wire.NativeSync || n.Kind == wire.NativeAwait {
		if err := c.sendHere(); err != nil {
			return err
		}
		c.session.Busy(true)
	}
	return c.answerNative(a, c.nativeRead(n, &a.reply.Native))
}

// checkNative refuses a path that a session in this process could not ask for.
func checkNative(n *wire.Native) error {
	switch n.Kind {
	case wire.NativeRelease, wire.NativeArm, wire.NativePage, wire.NativeBefore, wire.NativeWalk, wire.NativeAwait, wire.NativeSync:
		return cmp.Or(checkPathLength(n.Path), tree.ValidatePath(n.Path))
	}
	return nil // it has no path, or each operation has one
}

// nativeSubmit submits a transaction, or answers why it does not.
func (c *conn) nativeSubmit(n *wire.Native, a *answer) error {
	if len(n.Ops) == 0 {
		return c.answerNative(a, nil)
	}
	a.bytes += answerBytes * len(n.Ops)
	ops := native.Ops(n.Ops)
	for i := range ops {
		if err := checkNativeOp(&n.Ops[i], &ops[i], c.gate.node.Config.MaxDataSize); err != nil {
			return c.answerNative(a, &tree.MultiError{Index: i, Err: err})
		}
	}
	c.startDeferring()
	a.goTo(answerPending)
	a.pending = c.writes.SubmitThen(c.gate.ctx, ops, c.nudgeFunc)
	c.push(a)
	return nil
}

// checkNativeOp is Validate for an operation that was on the wire as w. The numbers there have more
// bits.
func checkNativeOp(w *wire.NativeOp, o *tree.Op, maxData int) error {
	switch {
	case int32(o.Kind) != w.Kind:
		return tree.ErrInvalidKind
	case int32(o.Mode) != w.Mode, int32(o.Width) != w.Width:
		return tree.ErrInvalidMode
	}
	op := inside.Plain(*o)
	return op.Validate(maxData)
}

func (c *conn) nativeArm(n *wire.Native, a *answer) error {
	var mode watch.Mode
	switch n.Mode {
	case int32(watch.Persistent), int32(watch.Recursive):
		mode = watch.Mode(n.Mode)
	default:
		return c.answerNative(a, fmt.Errorf("%w: %d is not a mode of a watch", tree.ErrInvalidMode, n.Mode))
	}
	if err := c.roomFor(n.Path, mode); err != nil {
		return c.answerNative(a, fmt.Errorf("%w: %w", watch.ErrTooHeavy, err))
	}
	return c.answerArmed(a, func() (watch.Place, error) {
		stat, ok, z, place, err := c.watches.ArmAt(n.Path, mode, watch.Options{Values: n.Flag})
		r := &a.reply.Native
		if r.Zxid, r.Flag = int64(z), ok; stat != (tree.Stat{}) {
			r.Stat = native.ToStat(&stat)
		}
		return place, err
	})
}

// nativeRead fills in the answer of a request that changes nothing.
func (c *conn) nativeRead(n *wire.Native, r *wire.NativeReply) (err error) {
	s := c.writes
	switch n.Kind {
	case wire.NativeHello:
		if c.watches.Len() > 0 {
			return fmt.Errorf("%w: a hello comes before the first watch", embed.ErrInvalidArgument)
		}
		c.isNative.Store(true)
		c.watches.TellMore(c.session.ID())
		r.Zxid, r.Count = int64(c.gate.node.Config.MaxDataSize), int32(c.gate.cfg.FrameSize)
	case wire.NativePage:
		if n.Count <= 0 {
			return fmt.Errorf("%w: a page of %d names", embed.ErrInvalidArgument, n.Count)
		}
		stat, _, _ := s.Exists(n.Path)
		if err = c.reserve(nameBytes * int(min(n.Count, stat.NumChildren))); err != nil {
			return err
		}
		if r.Names, err = s.Page(n.Path, n.After, int(n.Count)); nativeSize(r) > readBytesMax {
			r.Names = nil
			return fmt.Errorf("%w: a page of more than %d MiB, which a client cannot be shown at once: ask for fewer names", engine.ErrTooLarge, readBytesMax>>20)
		}
	case wire.NativeBefore:
		if len(n.Names) > namesMax {
			return fmt.Errorf("%w: %d names to match, at most %d are allowed", embed.ErrInvalidArgument, len(n.Names), namesMax)
		}
		var name string
		if name, r.Flag, err = s.Before(n.Path, n.Names...); r.Flag {
			r.Names = []string{name}
		}
	case wire.NativeWalk:
		return c.nativeWalk(n, r)
	case wire.NativeAwait: // for no time at all, it asks what is shown now
		most := awaitMax
		if c.in.waiting() {
			most = awaitBusy
		}
		ctx, cancel := context.WithTimeout(c.gate.ctx, min(time.Duration(n.Count)*time.Millisecond, most))
		defer cancel()
		if err = s.Await(ctx, n.Path, tree.Zxid(n.Zxid)); ctx.Err() != nil && errors.Is(err, engine.ErrUnavailable) {
			return nil // not yet
		}
		r.Flag = err == nil
	case wire.NativeSync:
		var z tree.Zxid
		z, err = s.Sync(c.gate.ctx, n.Path)
		r.Zxid = int64(z)
	case wire.NativeMember:
		r.Zxid, err = c.nativeMember(tree.SessionID(n.Zxid))
	default:
		return fmt.Errorf("%w: this member knows no native request of kind %d", embed.ErrInvalidArgument, n.Kind)
	}
	return err
}

// nativeMember tells where a session is of which the client may know. The ids of sessions are zxids, so
// it would otherwise find all that there are.
func (c *conn) nativeMember(id tree.SessionID) (int64, error) {
	if ok, err := c.writes.Meets(c.gate.ctx, id); err != nil || !ok {
		return 0, cmp.Or(err, engine.ErrNoSession)
	}
	m, err := c.writes.Member(c.gate.ctx, id)
	return int64(m), err
}

// answerNative queues an answer with its error. It returns an error that ends the connection.
func (c *conn) answerNative(a *answer, err error) error {
	if err := a.failNative(err); err != nil {
		return err
	}
	a.bytes += nativeSize(&a.reply.Native)
	c.push(a)
	return nil
}

// failNative puts an error into the answer. It returns an error that the client is not told,
// because it concerns the session or the node, or leaves an outcome open: the client finds out, or
// looks, as it connects again.
func (a *answer) failNative(err error) error {
	r := &a.reply.Native
	r.Index = -1
	if err == nil {
		return nil
	}
	if r.Failure = native.Number(err); r.Failure == native.Unnumbered || errors.Is(err, engine.ErrUnknownOutcome) {
		return err
	}
	var refused *tree.MultiError
	if errors.As(err, &refused) {
		r.Index, err = int32(refused.Index), refused.Err
	}
	r.Text = err.Error()
	return nil
}

// fillNative is fill for a transaction of such a request, or for the end of an ephemeral.
func (a *answer) fillNative(results []tree.Result, err error) error {
	if err == nil {
		a.reply.Native.Results = native.AppendResults(make([]wire.NativeResult, 0, len(results)), results)
	}
	return a.failNative(err)
}

// nativeSize returns about how many bytes the answer to a read takes.
func nativeSize(r *wire.NativeReply) int {
	n := 0
	for _, name := range r.Names {
		n += len(name) + 16
	}
	for i := range r.Znodes {
		n += answerBytes + len(r.Znodes[i].Path) + len(r.Znodes[i].Data)
	}
	return n
}

// nativeEvent makes an event one of a connection of package embed/client.
func nativeEvent(r *wire.Reply, e *embed.Event) {
	r.Xid, r.Op = wire.XidNativeEvent, wire.OpNativeEvent
	if stat, ok := e.Stat(); ok {
		r.Event.Znode = wire.NativeZnode{Data: e.Data(), Stat: native.ToStat(&stat)}
	}
}
