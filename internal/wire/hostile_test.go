package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func body(f ...any) []byte { return layout{fields: f}.bytes() }

func decodeRequest(op Op, b []byte) (*Request, error) {
	r := &Request{Operation: Operation{Op: op}}
	return r, r.DecodeBody(b)
}

func TestMalformedRecordsAreErrors(t *testing.T) {
	const huge = 1<<31 - 1
	for _, c := range []struct {
		name string
		op   Op
		body []byte
	}{
		{"nothing", OpGetData, nil},
		{"a path of length -2", OpGetData, body(-2, false)},
		{"a path that is too long", OpGetData, body(huge, false)},
		{"data of length -2", OpSetData, body("/a", -2, 0)},
		{"data that is too long", OpSetData, body("/a", 6, 0)},
		{"too many entries in an ACL", OpSetACL, body("/a", huge, 0)},
		{"an entry too many in an ACL", OpSetACL, body("/a", 2, 31, "a", "b", 0)},
		{"too many paths", OpSetWatches, body(int64(0), huge, 0, 0)},
		{"setWatches2 that ends as setWatches", OpSetWatches2, body(int64(0), 0, 0, 0)},
		{"too many operations", OpNative, body(2, huge)},
		{"an operation too many", OpNative, body(2, 2, 1, "/a", nil, 0, int64(0), nil, 0, int64(0), int64(0), 0, int64(0))},
		{"too many names", OpNative, body(6, "/a", "", huge)},
		{"no such op", 999, nil},
		{"a native event", OpNativeEvent, body(1, 3, "/a", nil, statFields)},
		{"an event", OpEvent, body(1, 3, "/a")},
		{"a multi without an end", OpMulti, body(2, false, -1, "/a", 0)},
		{"a multi in a multi", OpMulti, body(14, false, -1, -1, true, -1, -1, true, -1)},
	} {
		if r, err := decodeRequest(c.op, c.body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, error %v", c.name, r, err)
		}
	}
	for n := range 8 {
		if _, err := new(Request).DecodeHeader(make([]byte, n)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a header of %d bytes: error %v", n, err)
		}
	}
	for n := range 16 {
		if _, err := new(Reply).DecodeHeader(make([]byte, n)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a reply's header of %d bytes: error %v", n, err)
		}
	}
	if err := new(Reply).DecodeBody(OpMulti, body(3, false, 0, statFields, -1, true, -1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an exists among the results of a multi: error %v", err)
	}
}

// Catalogue 3.15 and 1.2: some operations turn a whole multi into a MarshallingError. Others fail
// by themselves.
func TestMultiOfForbiddenOperationsIsMalformed(t *testing.T) {
	create := Operation{Op: OpCreate, Path: "/a", ACL: open}
	with := func(o Operation, change func(o *Operation)) Operation { change(&o); return o }
	for _, c := range []struct {
		name string
		in   Op
		op   Operation
		ok   bool
	}{
		{"create", OpMulti, create, true},
		{"create with an empty ACL", OpMulti, with(create, func(o *Operation) { o.ACL = []ACL{} }), true},
		{"create with no ACL", OpMulti, with(create, func(o *Operation) { o.ACL = nil }), false},
		{"create of no path", OpMulti, with(create, func(o *Operation) { o.Path = Null }), false},
		{"create of an empty path", OpMulti, with(create, func(o *Operation) { o.Path = "" }), true},
		{"create as a container", OpMulti, with(create, func(o *Operation) { o.Flags = FlagsContainer }), true},
		{"create with a TTL's flags", OpMulti, with(create, func(o *Operation) { o.Flags = FlagsTTL }), false},
		{"create with flags 7", OpMulti, with(create, func(o *Operation) { o.Flags = 7 }), false},
		{"create with flags -1", OpMulti, with(create, func(o *Operation) { o.Flags = -1 }), false},
		{"createTTL with flags 7", OpMulti, with(create, func(o *Operation) { o.Op, o.Flags = OpCreateTTL, 7 }), true},
		{"createTTL with no ACL", OpMulti, with(create, func(o *Operation) { o.Op, o.ACL = OpCreateTTL, nil }), false},
		{"create in multiRead", OpMultiRead, create, false},
		{"check of no path", OpMulti, Operation{Op: OpCheck, Path: Null}, false},
		{"check in multiRead", OpMultiRead, Operation{Op: OpCheck, Path: "/a"}, false},
		{"delete", OpMulti, Operation{Op: OpDelete, Path: "/a"}, true},
		{"setACL", OpMulti, Operation{Op: OpSetACL, Path: "/a", ACL: open}, false},
		{"deleteContainer", OpMulti, Operation{Op: OpDeleteContainer, Path: "/a"}, false},
		{"sync", OpMulti, Operation{Op: OpSync, Path: "/a"}, false},
		{"getData", OpMulti, Operation{Op: OpGetData, Path: "/a"}, false},
		{"getData in multiRead", OpMultiRead, Operation{Op: OpGetData, Path: "/a"}, true},
		{"getChildren2 in multiRead", OpMultiRead, Operation{Op: OpGetChildren2, Path: "/a"}, false},
	} {
		r := &Request{Operation: Operation{Op: c.in}, Ops: []Operation{c.op}}
		frame := r.AppendFrame(nil)
		if _, err := decodeRequest(c.in, frame[12:]); (err == nil) != c.ok {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

// Catalogue 10.2: what the encoding tolerates.
func TestTolerantDecoding(t *testing.T) {
	r, err := decodeRequest(OpGetData, append(body("/a"), 0x80))
	if err != nil || !r.Watch {
		t.Errorf("a boolean of 0x80: %t, error %v", r.Watch, err)
	}
	r, err = decodeRequest(OpSetACL, body("/a", -5, 0))
	if err != nil || r.ACL == nil || len(r.ACL) != 0 {
		t.Errorf("a count of -5: %v, error %v", r.ACL, err)
	}
	r, err = decodeRequest(OpSync, body("/a\xff/\xed\xa0\xbd\xed\xb8\x80"))
	if err != nil || r.Path != "/a\uFFFD/\uFFFD" {
		t.Errorf("a string that is not UTF-8: %q, error %v", r.Path, err)
	}
	r, err = decodeRequest(OpSync, body(Null))
	if err != nil || r.Path != "\uFFFD" {
		t.Errorf("the one byte that means null here: %q, error %v", r.Path, err)
	}
	r, err = decodeRequest(OpMulti, body(77, true, 55, "ignored"))
	if err != nil || len(r.Ops) != 0 {
		t.Errorf("an end of a multi with other numbers: %v, error %v", r.Ops, err)
	}
}

// Catalogue 10.3: old clients send 44 bytes instead of 45 and get 36 instead of 37.
func TestOldClientsGetNoReadOnly(t *testing.T) {
	password := make([]byte, 16)
	request := (&ConnectRequest{Password: password, Old: true}).AppendFrame(nil)[4:]
	response := (&ConnectResponse{Password: password, Old: true}).AppendFrame(nil)[4:]
	if len(request) != 44 || len(response) != 36 {
		t.Errorf("%d and %d bytes", len(request), len(response))
	}
	var q ConnectRequest
	if err := q.Decode(request); err != nil || !q.Old {
		t.Errorf("%+v, error %v", q, err)
	}
	if err := q.Decode(append(request, 1)); err != nil || q.Old || !q.ReadOnly {
		t.Errorf("%+v, error %v", q, err)
	}
	var r ConnectResponse
	if err := r.Decode(response); err != nil || !r.Old {
		t.Errorf("%+v, error %v", r, err)
	}
}

func TestFramesHaveALimit(t *testing.T) {
	read := func(in string, limit int) ([]byte, error) {
		return ReadFrame(iotest.OneByteReader(strings.NewReader(in)), nil, limit)
	}
	for _, c := range []struct {
		in    string
		limit int
		want  string
		err   error
	}{
		{"\x00\x00\x00\x00", 10, "", nil},
		{"\x00\x00\x00\x03abc", 3, "abc", nil},
		{"\x00\x00\x00\x03abcd", 10, "abc", nil},
		{"\x00\x00\x00\x04abcd", 3, "", ErrFrameLength},
		{"\xff\xff\xff\xff", 10, "", ErrFrameLength},
		{"\x80\x00\x00\x00", 1 << 30, "", ErrFrameLength},
		{"ruok", FrameMax, "", ErrFrameLength},
		{"", 10, "", io.EOF},
		{"\x00\x00", 10, "", io.ErrUnexpectedEOF},
		{"\x00\x00\x00\x03", 10, "", io.ErrUnexpectedEOF},
		{"\x00\x00\x00\x03ab", 10, "", io.ErrUnexpectedEOF},
	} {
		if got, err := read(c.in, c.limit); string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, error %v, want %q, %v", c.in, got, err, c.want, c.err)
		}
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	if got, err := read(string(append(body(len(long)), long...)), FrameMax); !bytes.Equal(got, long) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
	fault := errors.New("fault")
	if _, err := ReadFrame(iotest.ErrReader(fault), nil, 10); err != fault {
		t.Errorf("error %v", err)
	}
}

// allocated returns how many bytes fn allocates. It takes the least of several runs, because other
// goroutines allocate too.
func allocated(fn func()) int {
	least := math.MaxInt
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, int(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

func TestCountsAndLengthsThatLieTakeLittle(t *testing.T) {
	for _, n := range []int{1<<31 - 1, 1 << 24, 1000} {
		for op, b := range map[Op][]byte{
			OpGetData:     body(n, false),
			OpSetData:     body("/a", n, 0),
			OpSetACL:      body("/a", n, 0),
			OpSetWatches2: body(int64(0), n, n, n, n, n),
			OpAuth:        body(0, n, n),
			OpMulti:       body(1, false, -1, "/a", nil, n, 0),
		} {
			if got := allocated(func() { _, _ = decodeRequest(op, b) }); got > 4<<10 {
				t.Errorf("op %d with %d: %d bytes", op, n, got)
			}
		}
		if got := allocated(func() { _ = new(Reply).DecodeBody(OpWhoAmI, body(n)) }); got > 4<<10 {
			t.Errorf("reply to whoAmI with %d: %d bytes", n, got)
		}
	}
	if got := allocated(func() { _, _ = ReadFrame(bytes.NewReader(body(FrameMax)), nil, FrameMax) }); got > 4*frameStep {
		t.Errorf("a frame that does not come: %d bytes", got)
	}
}

// A frame that is packed with the smallest elements takes a bounded multiple of its size in all.
// The memory that is alive at one time is less.
func TestPackedFramesTakeABoundedMultiple(t *testing.T) {
	packed := func(head []byte, element []byte) []byte {
		n := (FrameMax - len(head)) / len(element)
		return append(head, bytes.Repeat(element, n)...)
	}
	count := func(size int) int { return (FrameMax - 64) / size }
	for _, c := range []struct {
		name string
		op   Op
		body []byte
		most int
	}{
		{"paths", OpSetWatches, packed(body(int64(0), count(4)), body(nil)), 5},
		{"short paths", OpSetWatches, packed(body(int64(0), count(6)), body("/a")), 8},
		{"ACL", OpSetACL, packed(body("/a", count(12)), body(0, nil, nil)), 5},
		{"native submit", OpNative, packed(body(2, count(nativeOpLeast)),
			body(1, nil, nil, 0, int64(0), nil, 0, int64(0), int64(0), 0, int64(0))), 5},
		{"multi", OpMulti, slices.Concat(packed(nil, body(2, false, -1, "", -1)), body(-1, true, -1)), 40},
	} {
		got := allocated(func() { _, _ = decodeRequest(c.op, c.body) })
		t.Logf("%s: %.1f bytes for one", c.name, float64(got)/FrameMax)
		if got > c.most*FrameMax {
			t.Errorf("%s: %d bytes, at most %d times the frame's", c.name, got, c.most)
		}
	}
}

func TestKnownOps(t *testing.T) {
	known := []Op{-11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 19, 21, 22, 100, 101, 102, 103, 104, 105, 106, 107, 1000}
	for op := Op(-200); op < 1100; op++ {
		if op.Known() != slices.Contains(known, op) {
			t.Errorf("op %d: %t", op, op.Known())
		}
	}
}
