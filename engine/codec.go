package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// errMalformed is wrapped by every error of decoding: the bytes are none that this build writes.
var errMalformed = errors.New("malformed")

// An encoder writes MessagePack, every value in its shortest form.
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
func (e *encoder) strings(list []string) {
	e.array(len(list))
	for _, s := range list {
		e.string(s)
	}
}
func (e *encoder) flag(v bool) {
	if v {
		e.uint(1)
	} else {
		e.uint(0)
	}
}
func (e *encoder) keep(err error) {
	if e.err == nil {
		e.err = err
	}
}

// A decoder reads what an encoder wrote, and refuses the other forms that MessagePack has for the same values: what is
// read and written again is the same bytes. It keeps the first error, so that a reader of a record checks once at its end.
type decoder struct {
	src []byte
	in  bytes.Reader // over src
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
	d.src = b
	d.in.Reset(b)
	d.err = nil
	return d
}

// end reports what went wrong, trailing bytes included, and gives the decoder back.
func (d *decoder) end() error {
	err := d.err
	if err == nil && d.in.Len() != 0 {
		err = errMalformed
	}
	if err != nil && !errors.Is(err, errMalformed) {
		err = fmt.Errorf("%w: %w", errMalformed, err)
	}
	d.src = nil
	d.in.Reset(nil)
	decoders.Put(d)
	return err
}

// read reads one value with its function, unless there was an error before. form tells the first byte that the encoder
// gives the value.
func read[T any](d *decoder, value func() (T, error), form func(T) byte) (v T) {
	if d.err != nil {
		return v
	}
	first, err := d.dec.PeekCode()
	if err == nil {
		v, err = value()
	}
	if err == nil && first != form(v) {
		err = errMalformed
	}
	if err != nil {
		d.err = err
		var none T
		return none
	}
	return v
}

func (d *decoder) array() int {
	n := read(d, d.dec.DecodeArrayLen, arrayForm)
	if n > d.in.Len() {
		d.err = errMalformed // every element takes a byte at least: no allocation beyond what arrived
		return 0
	}
	return n
}

func (d *decoder) want(n int) {
	if got := d.array(); d.err == nil && got != n {
		d.err = errMalformed
	}
}

func (d *decoder) flag() bool     { return d.uintTo(1) != 0 }
func (d *decoder) uint() uint64   { return read(d, d.dec.DecodeUint64, uintForm) }
func (d *decoder) int() int64     { return read(d, d.dec.DecodeInt64, intForm) }
func (d *decoder) string() string { return string(read(d, d.sized, stringForm)) }
func (d *decoder) bytes() []byte  { return bytes.Clone(read(d, d.sized, bytesForm)) }

// sized returns the bytes of a string or of data where they lie; nil for nil.
func (d *decoder) sized() ([]byte, error) {
	n, err := d.dec.DecodeBytesLen()
	if err != nil || n < 0 {
		return nil, err
	}
	if n > d.in.Len() {
		return nil, errMalformed
	}
	at := len(d.src) - d.in.Len()
	_, err = d.in.Seek(int64(n), io.SeekCurrent)
	return d.src[at : at+n : at+n], err
}

func (d *decoder) strings() []string {
	n := d.array()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}

// isNil reads nil if that is what comes next.
func (d *decoder) isNil() bool {
	if d.err != nil {
		return false
	}
	first, err := d.dec.PeekCode()
	if err != nil || first != msgpcode.Nil {
		return false
	}
	d.err = d.dec.DecodeNil()
	return d.err == nil
}

// uintTo reads a number that is not above a limit.
func (d *decoder) uintTo(limit uint64) uint64 {
	v := d.uint()
	if v > limit {
		d.err = errMalformed
		return 0
	}
	return v
}

func (d *decoder) int32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.err = errMalformed
		return 0
	}
	return int32(v)
}

// fixed reads bytes of a known length.
func (d *decoder) fixed(dst []byte) {
	b := read(d, d.sized, bytesForm)
	if d.err == nil && len(b) != len(dst) {
		d.err = errMalformed
	}
	copy(dst, b)
}

// The forms: the first byte of a value as the encoder writes it.

func uintForm(v uint64) byte {
	switch {
	case v <= uint64(msgpcode.PosFixedNumHigh):
		return byte(v)
	case v <= math.MaxUint8:
		return msgpcode.Uint8
	case v <= math.MaxUint16:
		return msgpcode.Uint16
	case v <= math.MaxUint32:
		return msgpcode.Uint32
	}
	return msgpcode.Uint64
}

func intForm(v int64) byte {
	switch {
	case v >= 0:
		return uintForm(uint64(v))
	case v >= -32:
		return byte(v)
	case v >= math.MinInt8:
		return msgpcode.Int8
	case v >= math.MinInt16:
		return msgpcode.Int16
	case v >= math.MinInt32:
		return msgpcode.Int32
	}
	return msgpcode.Int64
}

func arrayForm(n int) byte {
	switch {
	case n < 0:
		return 0 // nil is no array: none begins with this
	case n < 16:
		return msgpcode.FixedArrayLow | byte(n)
	case n <= math.MaxUint16:
		return msgpcode.Array16
	}
	return msgpcode.Array32
}

func stringForm(s []byte) byte {
	switch n := len(s); {
	case s == nil:
		return 0 // nil is no string
	case n < 32:
		return msgpcode.FixedStrLow | byte(n)
	case n <= math.MaxUint8:
		return msgpcode.Str8
	case n <= math.MaxUint16:
		return msgpcode.Str16
	}
	return msgpcode.Str32
}

func bytesForm(b []byte) byte {
	switch n := len(b); {
	case b == nil:
		return msgpcode.Nil
	case n <= math.MaxUint8:
		return msgpcode.Bin8
	case n <= math.MaxUint16:
		return msgpcode.Bin16
	}
	return msgpcode.Bin32
}
