package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// ErrMalformed is wrapped by every decoding error: this build does not write such bytes.
var ErrMalformed = errors.New("malformed")

// An encoder writes MessagePack, each value in its shortest form.
type encoder struct{ buf []byte }

var encoders = sync.Pool{New: func() any { return new(encoder) }}

func newEncoder() *encoder {
	e := encoders.Get().(*encoder)
	e.buf = e.buf[:0]
	return e
}

// done returns a copy of what was written, and puts the encoder back into the pool.
func (e *encoder) done() []byte {
	out := bytes.Clone(e.buf)
	encoders.Put(e)
	return out
}

// number writes a form and the number after it, in as many bytes as the form needs.
func (e *encoder) number(form byte, v uint64) {
	e.buf = append(e.buf, form)
	switch form {
	case msgpcode.Uint8, msgpcode.Int8, msgpcode.Str8, msgpcode.Bin8:
		e.buf = append(e.buf, byte(v))
	case msgpcode.Uint16, msgpcode.Int16, msgpcode.Str16, msgpcode.Bin16, msgpcode.Array16:
		e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v))
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Str32, msgpcode.Bin32, msgpcode.Array32:
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v))
	case msgpcode.Uint64, msgpcode.Int64:
		e.buf = binary.BigEndian.AppendUint64(e.buf, v)
	}
}

func (e *encoder) array(n int)   { e.number(arrayForm(n), uint64(n)) }
func (e *encoder) uint(v uint64) { e.number(uintForm(v), v) }
func (e *encoder) int(v int64)   { e.number(intForm(v), uint64(v)) }
func (e *encoder) string(s string) {
	e.number(stringForm(len(s)), uint64(len(s)))
	e.buf = append(e.buf, s...)
}
func (e *encoder) bytes(b []byte) {
	if b == nil {
		e.buf = append(e.buf, msgpcode.Nil)
		return
	}
	e.number(bytesForm(len(b)), uint64(len(b)))
	e.buf = append(e.buf, b...)
}
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

// A decoder reads what an encoder wrote. It refuses the other forms that MessagePack has for the
// same values: what is read and written again is the same bytes. It keeps the first error, so that
// its users check once, at the end. It does not copy its input, except for strings.
type decoder struct {
	src   []byte
	at    int    // where the next value begins in src
	words string // a copy of src, made on first use: see word
	err   error
}

func newDecoder(b []byte) *decoder { return &decoder{src: b} }

// end returns the first error. Bytes after the last value are an error too.
func (d *decoder) end() error {
	if d.err == nil && d.at != len(d.src) {
		d.fail(ErrMalformed)
	}
	return d.err
}

// fail keeps the first error. After an error nothing is read, and every value is zero.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.at = len(d.src)
}

func (d *decoder) left() int { return len(d.src) - d.at }

// next returns the next n bytes without copying them.
func (d *decoder) next(n int) []byte {
	if d.err != nil || n > d.left() {
		d.fail(ErrMalformed)
		return nil
	}
	d.at += n
	return d.src[d.at-n : d.at : d.at]
}

// neverUsed is a byte that begins no MessagePack value.
const neverUsed = 0xc1

// first returns the first byte of the next value. It tells the value's type.
func (d *decoder) first() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return neverUsed
}

// number reads a number of n bytes.
func (d *decoder) number(n int) (v uint64) {
	for _, b := range d.next(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

// length reads a length of n bytes. A length beyond 2147483647 is read as that: nothing is so long.
func (d *decoder) length(n int) int { return int(min(d.number(n), math.MaxInt32)) }

func (d *decoder) uint() uint64 {
	first := d.first()
	v := uint64(first)
	if first >= msgpcode.Uint8 && first <= msgpcode.Uint64 {
		v = d.number(1 << (first - msgpcode.Uint8))
	}
	if first != uintForm(v) {
		d.fail(ErrMalformed)
		return 0
	}
	return v
}

func (d *decoder) int() int64 {
	first := d.first()
	v := int64(int8(first))
	switch {
	case first >= msgpcode.Uint8 && first <= msgpcode.Uint64:
		v = int64(d.number(1 << (first - msgpcode.Uint8)))
	case first >= msgpcode.Int8 && first <= msgpcode.Int64:
		n := 1 << (first - msgpcode.Int8)
		sign := 64 - 8*n
		v = int64(d.number(n)<<sign) >> sign
	}
	if first != intForm(v) {
		d.fail(ErrMalformed)
		return 0
	}
	return v
}

func (d *decoder) array() (n int) {
	first := d.first()
	switch {
	case first >= msgpcode.FixedArrayLow && first <= msgpcode.FixedArrayHigh:
		n = int(first & msgpcode.FixedArrayMask)
	case first == msgpcode.Array16:
		n = d.length(2)
	case first == msgpcode.Array32:
		n = d.length(4)
	}
	// An element takes at least one byte. So a false length cannot make the caller allocate much.
	if first != arrayForm(n) || n > d.left() {
		d.fail(ErrMalformed)
		return 0
	}
	return n
}

func (d *decoder) want(n int) {
	if got := d.array(); got != n {
		d.fail(ErrMalformed)
	}
}

// text returns a string's bytes without copying them.
func (d *decoder) text() []byte {
	first, n := d.first(), 0
	switch {
	case first >= msgpcode.FixedStrLow && first <= msgpcode.FixedStrHigh:
		n = int(first & msgpcode.FixedStrMask)
	case first >= msgpcode.Str8 && first <= msgpcode.Str32:
		n = d.length(1 << (first - msgpcode.Str8))
	}
	if first != stringForm(n) {
		d.fail(ErrMalformed)
	}
	return d.next(n)
}

func (d *decoder) string() string { return string(d.text()) }

// word returns a string that may keep a copy of the whole input alive. Use it for strings that are
// soon forgotten. A batch has many of them, and one copy of the batch costs less than a copy of
// each.
func (d *decoder) word() string {
	n := len(d.text())
	if n == 0 {
		return ""
	}
	if d.words == "" {
		d.words = string(d.src)
	}
	return d.words[d.at-n : d.at]
}

// data returns binary data without copying it, or nil for nil.
func (d *decoder) data() []byte {
	first, n := d.first(), 0
	switch {
	case first == msgpcode.Nil:
		return nil
	case first >= msgpcode.Bin8 && first <= msgpcode.Bin32:
		n = d.length(1 << (first - msgpcode.Bin8))
	}
	if first != bytesForm(n) {
		d.fail(ErrMalformed)
	}
	return d.next(n)
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

// isNil reports whether the next value is nil, and reads it if so.
func (d *decoder) isNil() bool {
	if d.left() == 0 || d.src[d.at] != msgpcode.Nil {
		return false
	}
	d.at++
	return true
}

func (d *decoder) flag() bool { return d.uintTo(1) != 0 }

// uintTo reads a number that must not exceed a limit.
func (d *decoder) uintTo(limit uint64) uint64 {
	v := d.uint()
	if v > limit {
		d.fail(ErrMalformed)
		return 0
	}
	return v
}

func (d *decoder) int32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail(ErrMalformed)
		return 0
	}
	return int32(v)
}

// fixed reads binary data of the length of dst.
func (d *decoder) fixed(dst []byte) {
	b := d.data()
	if len(b) != len(dst) {
		d.fail(ErrMalformed)
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
	case n < 16:
		return msgpcode.FixedArrayLow | byte(n)
	case n <= math.MaxUint16:
		return msgpcode.Array16
	}
	return msgpcode.Array32
}

func stringForm(n int) byte {
	switch {
	case n < 32:
		return msgpcode.FixedStrLow | byte(n)
	case n <= math.MaxUint8:
		return msgpcode.Str8
	case n <= math.MaxUint16:
		return msgpcode.Str16
	}
	return msgpcode.Str32
}

func bytesForm(n int) byte {
	switch {
	case n <= math.MaxUint8:
		return msgpcode.Bin8
	case n <= math.MaxUint16:
		return msgpcode.Bin16
	}
	return msgpcode.Bin32
}
