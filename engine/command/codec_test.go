package command

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// The encoder writes what the msgpack library writes, on both sides of every change of form.
func TestEncoderWritesMessagePack(t *testing.T) {
	check := func(what any, ours func(*encoder), theirs func(*msgpack.Encoder) error) {
		t.Helper()
		e := newEncoder()
		ours(e)
		got := e.done()
		var want bytes.Buffer
		if err := theirs(msgpack.NewEncoder(&want)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%T %.20v: %.40x, want %.40x", what, what, got, want.Bytes())
		}
	}
	for _, near := range []uint64{0, 1 << 5, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63, math.MaxUint64} {
		for v := near - 2; v != near+2; v++ {
			check(v, func(e *encoder) { e.uint(v) }, func(e *msgpack.Encoder) error { return e.EncodeUint(v) })
			for _, i := range []int64{int64(v), -int64(v)} {
				check(i, func(e *encoder) { e.int(i) }, func(e *msgpack.Encoder) error { return e.EncodeInt(i) })
			}
		}
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 33, 255, 256, 257, 65535, 65536, 65537} {
		check(n, func(e *encoder) { e.array(n) }, func(e *msgpack.Encoder) error { return e.EncodeArrayLen(n) })
		s := strings.Repeat("x", n)
		check(s, func(e *encoder) { e.string(s) }, func(e *msgpack.Encoder) error { return e.EncodeString(s) })
		b := []byte(s)
		check(b, func(e *encoder) { e.bytes(b) }, func(e *msgpack.Encoder) error { return e.EncodeBytes(b) })
	}
	check(nil, func(e *encoder) { e.bytes(nil) }, func(e *msgpack.Encoder) error { return e.EncodeBytes(nil) })
}
