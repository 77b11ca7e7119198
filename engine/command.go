package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// formatLevel is the highest level of commands and records that this build reads and writes. A member tells it
// when it registers, so that a later build can know when everybody reads a newer one.
const formatLevel = 1

// The commands of the log. Each is a MessagePack array that begins with its kind; docs draw them once, here:
//
//	register [1, member, start, directory, founding digest, level, wall ms]
//	batch    [2, member, start, seq, wall ms, [request, ...]]
//	silence  [3, member, start, last seq, step, duration ns]
//	expire   [4]
//
// and the requests of a batch:
//
//	txn      [1, session, [op, ...]]          op: [kind, path, data, mode, version]
//	open     [2, timeout ns, password]
//	close    [3, session]
//	release  [4, session, path, czxid]
type commandKind uint8

const (
	commandRegister commandKind = 1 + iota
	commandBatch
	commandSilence
	commandExpire
)

type requestKind uint8

const (
	requestTxn requestKind = 1 + iota
	requestOpen
	requestClose
	requestRelease
)

// A request is one call as it travels in a batch.
type request struct {
	kind     requestKind
	session  tree.SessionID
	ops      []tree.Op     // txn
	timeout  time.Duration // open
	password [16]byte      // open
	path     string        // release
	czxid    tree.Zxid     // release
}

// A command is one decoded entry of the log.
type command struct {
	kind     commandKind
	origin   session.Origin // register; of a batch Member, Start and, as LastSeq, its own seq
	wall     int64          // Unix ms at the proposer
	requests []request      // batch
	step     session.Step   // silence
	duration time.Duration  // silence
}

func encodeRegister(o session.Origin, wall int64) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(commandRegister))
	e.uint(uint64(o.Member))
	e.uint(o.Start)
	e.bytes(o.Directory[:])
	e.bytes(o.Digest[:])
	e.uint(uint64(o.Level))
	e.int(wall)
	return e.done()
}

func encodeBatch(m session.MemberID, start, seq uint64, wall int64, waiters []*waiter) []byte {
	e := newEncoder()
	e.array(6)
	e.uint(uint64(commandBatch))
	e.uint(uint64(m))
	e.uint(start)
	e.uint(seq)
	e.int(wall)
	e.array(len(waiters))
	for _, w := range waiters {
		e.buf.Write(w.wire)
	}
	return e.done()
}

func encodeRequest(r *request) []byte {
	e := newEncoder()
	switch r.kind {
	case requestTxn:
		e.array(3)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.array(len(r.ops))
		for i := range r.ops {
			e.op(&r.ops[i])
		}
	case requestOpen:
		e.array(3)
		e.uint(uint64(r.kind))
		e.int(int64(r.timeout))
		e.bytes(r.password[:])
	case requestClose:
		e.array(2)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
	case requestRelease:
		e.array(4)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.string(r.path)
		e.uint(uint64(r.czxid))
	}
	return e.done()
}

func (e *encoder) op(o *tree.Op) {
	e.array(5)
	e.uint(uint64(o.Kind))
	e.string(o.Path)
	e.bytes(o.Data)
	e.uint(uint64(o.Mode))
	e.int(int64(o.Version))
}

func encodeSilence(s session.Step, d time.Duration) []byte {
	e := newEncoder()
	e.array(6)
	e.uint(uint64(commandSilence))
	e.uint(uint64(s.Member))
	e.uint(s.Start)
	e.uint(s.LastSeq)
	e.uint(s.Step)
	e.int(int64(d))
	return e.done()
}

func encodeExpire() []byte {
	e := newEncoder()
	e.array(1)
	e.uint(uint64(commandExpire))
	return e.done()
}

// fields is the length of a command's array; zero for a kind that this build does not know.
func (k commandKind) fields() int {
	switch k {
	case commandRegister:
		return 7
	case commandBatch:
		return 6
	case commandSilence:
		return 6
	case commandExpire:
		return 1
	}
	return 0
}

// decodeCommand reads one entry of the log. Its strings and byte slices are copies.
func decodeCommand(b []byte) (command, error) {
	d := newDecoder(b)
	n := d.array()
	c := command{kind: commandKind(d.uintTo(math.MaxUint8))}
	if want := c.kind.fields(); d.err == nil && (want == 0 || n != want) {
		d.err = fmt.Errorf("%w: kind %d with %d fields, perhaps of a newer version", errMalformed, c.kind, n)
	}
	switch c.kind {
	case commandRegister:
		c.origin.Member = session.MemberID(d.uint())
		c.origin.Start = d.uint()
		d.fixed(c.origin.Directory[:])
		d.fixed(c.origin.Digest[:])
		c.origin.Level = uint32(d.uintTo(math.MaxUint32))
		c.wall = d.int()
	case commandBatch:
		c.origin.Member = session.MemberID(d.uint())
		c.origin.Start = d.uint()
		c.origin.LastSeq = d.uint()
		c.wall = d.int()
		c.requests = d.requests()
	case commandSilence:
		c.step.Member = session.MemberID(d.uint())
		c.step.Start = d.uint()
		c.step.LastSeq = d.uint()
		c.step.Step = d.uint()
		c.duration = time.Duration(d.int())
	}
	return c, d.end()
}

func (d *decoder) requests() []request {
	n := d.array()
	if n == 0 {
		return nil
	}
	out := make([]request, 0, n)
	for range n {
		out = append(out, d.request())
		if d.err != nil {
			return nil
		}
	}
	return out
}

func (d *decoder) request() (r request) {
	n := d.array()
	r.kind = requestKind(d.uintTo(math.MaxUint8))
	want := -1
	switch r.kind {
	case requestTxn:
		want = 3
		r.session = tree.SessionID(d.int())
		r.ops = d.ops()
	case requestOpen:
		want = 3
		r.timeout = time.Duration(d.int())
		d.fixed(r.password[:])
	case requestClose:
		want = 2
		r.session = tree.SessionID(d.int())
	case requestRelease:
		want = 4
		r.session = tree.SessionID(d.int())
		r.path = d.string()
		r.czxid = tree.Zxid(d.uint())
	}
	if d.err == nil && n != want {
		d.err = errMalformed
	}
	return r
}

func (d *decoder) ops() []tree.Op {
	ops := make([]tree.Op, d.array())
	for i := range ops {
		ops[i] = d.op()
	}
	return ops
}

func (d *decoder) op() (o tree.Op) {
	d.want(5)
	o.Kind = tree.OpKind(d.uintTo(math.MaxUint8))
	o.Path = d.string()
	o.Data = d.bytes()
	o.Mode = tree.CreateMode(d.uintTo(math.MaxUint8))
	o.Version = d.int32()
	return o
}
