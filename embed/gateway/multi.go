package gateway

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// multi submits a transaction of several operations. Decoding has checked that each of them has a
// path, and each create an ACL.
func (c *conn) multi(q *wire.Request, a *answer) error {
	if len(q.Ops) == 0 {
		return c.finish(a, nil)
	}
	a.bytes += answerBytes * len(q.Ops)
	ops := make([]tree.Op, len(q.Ops))
	a.multi = make([]wire.Op, len(q.Ops))
	for i := range q.Ops {
		o := &q.Ops[i]
		normalise(o)
		a.multi[i] = o.Op
		ops[i] = c.multiOp(o)
	}
	return c.submit(a, ops)
}

// normalise changes a create in a multi as ZooKeeper does while it decodes the multi. It does not
// do so for a create outside of a multi.
func normalise(o *wire.Operation) {
	container, ttl := o.Flags == wire.FlagsContainer, o.Flags == wire.FlagsTTL || o.Flags == wire.FlagsSequentialTTL
	switch o.Op {
	case wire.OpCreate, wire.OpCreate2:
		if container {
			o.Op = wire.OpCreateContainer
		}
	case wire.OpCreateTTL:
		switch {
		case container:
			o.Op = wire.OpCreateContainer
		case !ttl && wire.FlagsPersistent <= o.Flags && o.Flags <= wire.FlagsEphemeralSequential:
			o.Op = wire.OpCreate
		}
	}
}

// multiOp returns one operation of a multi. An operation that is refused here must fail only in its
// turn. If an operation before it fails too, the client hears about the earlier one.
func (c *conn) multiOp(o *wire.Operation) tree.Op {
	var op tree.Op
	var err error
	switch o.Op {
	case wire.OpDelete:
		op, err = c.delete(o)
	case wire.OpSetData:
		op, err = c.setData(o)
	case wire.OpCheck:
		op = tree.Op{Kind: tree.KindCheck, Path: o.Path, Version: o.Version}
	default:
		op, err = c.create(o)
	}
	if err != nil {
		// This fails with ErrInvalidTTL. Its code is BadArguments, as that of every error there can
		// be.
		return tree.Op{Kind: tree.KindCreate, Path: o.Path, TTL: -1}
	}
	return op
}

// fillMulti is fill for a multi. If one operation caused the error, the reply's own error stays OK
// and the results say which.
func (a *answer) fillMulti(results []tree.Result, err error) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Results = make([]wire.Result, len(a.multi))
	if code == wire.OK {
		for i := range results {
			a.reply.Results[i] = wire.Result{Op: a.multi[i], Path: results[i].Path, Stat: statOf(&results[i].Stat)}
		}
		return nil
	}
	var failed *tree.MultiError
	if !errors.As(err, &failed) {
		if len(a.multi) > 1 {
			a.reply.Err = code
			return nil
		}
		failed = &tree.MultiError{}
	}
	for i := range a.reply.Results {
		r := &a.reply.Results[i]
		r.Op = wire.OpError
		switch {
		case i == failed.Index:
			r.Err = code
		case i > failed.Index:
			r.Err = wire.RuntimeInconsistency
		}
	}
	return nil
}

// multiRead carries out reads that have only their reply in common.
func (c *conn) multiRead(q *wire.Request, a *answer) error {
	if !c.awaitPlaced() {
		return errEnded
	}
	return c.answerRead(a, func(from source) error { return c.readAll(from, q, a) })
}

func (c *conn) readAll(from source, q *wire.Request, a *answer) error {
	a.reply.Results = nil
	c.unreserve()
	size := 0
	for i := range q.Ops {
		o := &q.Ops[i]
		if err := c.reserveFor(o); err != nil {
			return err
		}
		r := wire.Result{Op: o.Op}
		var err error
		if o.Op == wire.OpGetData {
			err = c.getData(from, o, &r)
		} else {
			err = c.getChildren(from, o, &r)
		}
		code, ok := codeOf(err)
		if !ok {
			return err
		}
		if code != wire.OK {
			r = wire.Result{Op: wire.OpError, Err: code}
		}
		if size += sizeOf(&r); size > readBytesMax && i > 0 {
			return fmt.Errorf("a multiRead of more than %d bytes", readBytesMax)
		}
		a.reply.Results = append(a.reply.Results, r)
	}
	return nil
}
