package disk

import (
	"bytes"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Pieces written at random read like an array that was written in the same way.
func TestExtentsLikeArray(t *testing.T) {
	r := testkit.Rand(t)
	for range 300 {
		const size = 200
		var want, known [size]byte
		n := newNode(nil)
		for step := range 60 {
			off := r.IntN(size)
			p := bytes.Repeat([]byte{byte(step + 1)}, r.IntN(min(40, size-off+1)))
			n.write(p, int64(off))
			copy(want[off:], p)
			copy(known[off:], bytes.Repeat([]byte{1}, len(p)))
			clear(p) // the node must have its own copy
			ok(t, n.check())

			from := r.IntN(size)
			to := from + r.IntN(size-from+1)
			got := make([]byte, to-from)
			n.read(got, int64(from))
			if !bytes.Equal(got, want[from:to]) {
				t.Fatalf("[%d, %d) reads %v, want %v", from, to, got, want[from:to])
			}
			covered := bytes.IndexByte(known[from:to], 0) < 0
			if got := n.covers(int64(from), int64(to)); got != covered {
				t.Fatalf("[%d, %d) covered: %t, want %t", from, to, got, covered)
			}
		}
	}
}

// A file that is only appended to stays one piece.
func TestExtentsAppend(t *testing.T) {
	n := newNode(nil)
	for range 1000 {
		n.write([]byte("x"), n.size())
	}
	if len(n.mu.data) != 1 || n.size() != 1000 {
		t.Fatalf("%d pieces, %d bytes", len(n.mu.data), n.size())
	}
}
