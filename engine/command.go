package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

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

var errBadCommand = errors.New("malformed command")

type encoder struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
	err error
}

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.enc = msgpack.NewEncoder(&e.buf)
	return e
}}

func newEncoder() *encoder {
	e := encoders.Get().(*encoder)
	e.buf.Reset()
	e.err = nil
	return e
}

// done returns what was written, in memory of its own, and gives the encoder back. Writing to a buffer cannot
// fail, so an error here is a broken invariant.
func (e *encoder) done() []byte {
	if e.err != nil {
		panic("engine: encoding to memory: " + e.err.Error())
	}
	out := bytes.Clone(e.buf.Bytes())
	encoders.Put(e)
	return out
}

func (e *encoder) array(n int)     { e.keep(e.enc.EncodeArrayLen(n)) }
func (e *encoder) uint(v uint64)   { e.keep(e.enc.EncodeUint(v)) }
func (e *encoder) int(v int64)     { e.keep(e.enc.EncodeInt(v)) }
func (e *encoder) string(s string) { e.keep(e.enc.EncodeString(s)) }
func (e *encoder) bytes(b []byte)  { e.keep(e.enc.EncodeBytes(b)) }
func (e *encoder) keep(err error) {
	if e.err == nil {
		e.err = err
	}
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

// A decoder reads MessagePack and keeps the first error, so that a reader of a record checks once at its end.
type decoder struct {
	in  bytes.Reader
	dec *msgpack.Decoder
	err error
}

var decoders = sync.Pool{New: func() any {
	d := &decoder{}
	d.dec = msgpack.NewDecoder(&d.in)
	return d
}}

func newDecoder(b []byte) *decoder {
	d := decoders.Get().(*decoder)
	d.in.Reset(b)
	d.err = nil
	return d
}

func (d *decoder) array() int {
	if d.err != nil {
		return 0
	}
	n, err := d.dec.DecodeArrayLen()
	if err == nil && (n < 0 || n > d.in.Len()) {
		err = errBadCommand // every element takes a byte at least: no allocation beyond what arrived
	}
	if err != nil {
		d.err = err
		return 0
	}
	return n
}

func (d *decoder) want(n int) {
	if got := d.array(); d.err == nil && got != n {
		d.err = errBadCommand
	}
}

func (d *decoder) uint() (v uint64) {
	if d.err == nil {
		v, d.err = d.dec.DecodeUint64()
	}
	return v
}

func (d *decoder) int() (v int64) {
	if d.err == nil {
		v, d.err = d.dec.DecodeInt64()
	}
	return v
}

func (d *decoder) string() (s string) {
	if d.err == nil {
		s, d.err = d.dec.DecodeString()
	}
	return s
}

func (d *decoder) bytes() (b []byte) {
	if d.err == nil {
		b, d.err = d.dec.DecodeBytes()
	}
	return b
}

func (d *decoder) fixed(dst []byte) {
	b := d.bytes()
	if d.err == nil && len(b) != len(dst) {
		d.err = errBadCommand
	}
	copy(dst, b)
}

// end reports what went wrong, trailing bytes included, and gives the decoder back.
func (d *decoder) end() error {
	err := d.err
	if err == nil && d.in.Len() != 0 || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errBadCommand
	}
	d.in.Reset(nil)
	decoders.Put(d)
	return err
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
	c := command{kind: commandKind(d.uint())}
	if d.err == nil && n != c.kind.fields() {
		return c, fmt.Errorf("%w: kind %d with %d fields, perhaps of a newer version", errBadCommand, c.kind, n)
	}
	switch c.kind {
	case commandRegister:
		c.origin.Member = session.MemberID(d.uint())
		c.origin.Start = d.uint()
		d.fixed(c.origin.Directory[:])
		d.fixed(c.origin.Digest[:])
		c.origin.Level = uint32(d.uint())
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
	r.kind = requestKind(d.uint())
	want := 0
	switch r.kind {
	case requestTxn:
		want = 3
		r.session = tree.SessionID(d.int())
		r.ops = make([]tree.Op, d.array())
		for i := range r.ops {
			r.ops[i] = d.op()
		}
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
		d.err = errBadCommand
	}
	return r
}

func (d *decoder) op() (o tree.Op) {
	d.want(5)
	o.Kind = tree.OpKind(d.uint())
	o.Path = d.string()
	o.Data = d.bytes()
	o.Mode = tree.CreateMode(d.uint())
	o.Version = int32(d.int())
	return o
}
