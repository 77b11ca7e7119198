package wire

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

// FuzzFrame reads frames from any input, and decodes each as everything except a request.
func FuzzFrame(f *testing.F) {
	for _, raw := range corpus() {
		f.Add(raw, int32(OpMulti))
	}
	for _, l := range layouts {
		if r, ok := l.frame.(*Reply); ok {
			f.Add(r.AppendFrame(nil), int32(r.Op))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, op int32) {
		const limit = 1 << 12
		r := bytes.NewReader(raw)
		var buf []byte
		for {
			at := len(raw) - r.Len()
			got, err := ReadFrame(r, buf, limit)
			if err != nil {
				return
			}
			if len(got) > limit || !bytes.Equal(got, raw[at+4:len(raw)-r.Len()]) {
				t.Fatalf("at %d: %x", at, got)
			}
			buf = got
			again(t, &ConnectRequest{}, got)
			again(t, &ConnectResponse{}, got)
			again(t, &Reply{Result: Result{Op: Op(op)}}, got)
		}
	})
}

// FuzzRequest decodes any input as a request.
func FuzzRequest(f *testing.F) {
	for _, raw := range corpus() {
		f.Add(raw[4:])
	}
	f.Fuzz(func(t *testing.T, raw []byte) { again(t, &Request{}, raw) })
}

// corpus returns the frames of both tables, sorted.
func corpus() [][]byte {
	var list [][]byte
	for _, f := range everyFrame {
		list = append(list, f.AppendFrame(nil))
	}
	slices.SortFunc(list, bytes.Compare)
	return list
}

// again checks that what was decoded is the same after it is encoded and decoded again.
func again(t *testing.T, got frame, raw []byte) {
	t.Helper()
	second := fresh(got)
	kept := bytes.Clone(raw)
	_, err := got.decode(raw)
	if !bytes.Equal(raw, kept) {
		t.Fatalf("%T: the frame has changed", got)
	}
	if err != nil {
		return
	}
	written := got.AppendFrame(nil)
	if left, err := second.decode(written[4:]); err != nil || left != 0 || !reflect.DeepEqual(got, second) {
		t.Fatalf("%+v\nis after writing, with %d bytes left and error %v\n%+v", got, left, err, second)
	}
	if twice := second.AppendFrame(nil); !bytes.Equal(written, twice) {
		t.Fatalf("%T: written as\n%x, then as\n%x", got, written, twice)
	}
}
