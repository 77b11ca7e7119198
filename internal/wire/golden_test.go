package wire

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/wire/wiretest"
)

// A frame is what a frame can hold: a connect request, its answer, a request or a reply.
type frame interface {
	AppendFrame(b []byte) []byte
	// decode decodes a whole frame. left counts the bytes behind the record.
	decode(frame []byte) (left int, err error)
}

func (r *ConnectRequest) decode(b []byte) (int, error)  { return decode(b, r.record) }
func (r *ConnectResponse) decode(b []byte) (int, error) { return decode(b, r.record) }

func (r *Request) decode(b []byte) (int, error) {
	body, err := r.DecodeHeader(b)
	if err != nil {
		return 0, err
	}
	if err := r.DecodeBody(body); err != nil {
		return 0, err
	}
	again := Request{Operation: Operation{Op: r.Op}}
	return decode(body, again.body)
}

// decode of a Reply takes the op from the Reply itself.
func (r *Reply) decode(b []byte) (int, error) {
	op := r.Op
	body, err := r.DecodeHeader(b)
	if err != nil {
		return 0, err
	}
	if err := r.DecodeBody(op, body); err != nil {
		return 0, err
	}
	again := Reply{Result: Result{Op: op, Err: r.Err}}
	return decode(body, again.body)
}

func decode(b []byte, record func(*coder)) (left int, err error) {
	c := coder{b: b}
	record(&c)
	return len(c.b), c.err
}

// fresh returns an empty value of was's type, ready for decode.
func fresh(was frame) frame {
	f := reflect.New(reflect.TypeOf(was).Elem()).Interface().(frame)
	if r, ok := f.(*Reply); ok {
		r.Op = was.(*Reply).Op
	}
	return f
}

var open = []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}}

// goldens says what the golden frames mean.
var goldens = map[string]frame{
	"connect request": &ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)},
	"connect answer": &ConnectResponse{Timeout: 10_000, SessionID: 0x0100002715340000,
		Password: []byte("\x6e\xd9\x8a\x28\x63\x99\x74\xa4\xfc\x0c\xb9\xb0\xe4\x37\x67\x96")},

	"create":                  &Request{Xid: 1, Operation: Operation{Op: OpCreate, Path: "/a", Data: []byte("x"), ACL: open}},
	"create reply":            &Reply{Xid: 1, Zxid: 2, Result: Result{Op: OpCreate, Path: "/a"}},
	"create refused":          &Reply{Xid: 2, Zxid: 3, Result: Result{Op: OpCreate, Err: NodeExists}},
	"create reply with event": &Reply{Xid: 4, Zxid: 4, Result: Result{Op: OpCreate, Path: "/n"}},

	"exists":         &Request{Xid: 3, Operation: Operation{Op: OpExists, Path: "/n", Watch: true}},
	"exists refused": &Reply{Xid: 3, Zxid: 3, Result: Result{Op: OpExists, Err: NoNode}},

	"created event": &Reply{Xid: XidEvent, Zxid: 4, Event: Event{Type: NodeCreated, State: StateSyncConnected, Path: "/n"}},
	"missed event":  &Reply{Xid: XidEvent, Zxid: -1, Event: Event{Type: NodeDataChanged, State: StateSyncConnected, Path: "/a"}},

	"getChildren2": &Request{Xid: 5, Operation: Operation{Op: OpGetChildren2, Path: "/a"}},
	"getChildren2 reply": &Reply{Xid: 5, Zxid: 4, Result: Result{Op: OpGetChildren2, Names: []string{},
		Stat: Stat{Czxid: 2, Mzxid: 2, Pzxid: 2, Ctime: 0x1a1fb827cc2, Mtime: 0x1a1fb827cc2, DataLength: 1}}},

	"multi": &Request{Xid: 6, Operation: Operation{Op: OpMulti}, Ops: []Operation{
		{Op: OpCreate, Path: "/m", Data: []byte{}, ACL: open},
		{Op: OpCheck, Path: "/a", Version: 5},
		{Op: OpDelete, Path: "/a", Version: -1},
	}},
	"multi refused": &Reply{Xid: 6, Zxid: 5, Result: Result{Op: OpMulti}, Results: []Result{
		{Op: OpError},
		{Op: OpError, Err: BadVersion},
		{Op: OpError, Err: RuntimeInconsistency},
	}},
	"multi reply": &Reply{Xid: 7, Zxid: 6, Result: Result{Op: OpMulti}, Results: []Result{
		{Op: OpSetData, Stat: Stat{Czxid: 2, Mzxid: 6, Pzxid: 2, Ctime: 0x1a1fb827cc2, Mtime: 0x1a1fb827cc5, Version: 1, DataLength: 1}},
		{Op: OpDelete},
	}},

	"ping":       &Request{Xid: XidPing, Operation: Operation{Op: OpPing}},
	"ping reply": &Reply{Xid: XidPing, Zxid: 6, Result: Result{Op: OpPing}},
	"auth":       &Request{Xid: XidAuth, Operation: Operation{Op: OpAuth}, Auth: Auth{Scheme: "digest", Proof: []byte("bob:pw")}},
	"auth reply": &Reply{Xid: XidAuth, Result: Result{Op: OpAuth}},

	"addWatch":         &Request{Xid: 8, Operation: Operation{Op: OpAddWatch, Path: "/", Mode: WatchRecursive}},
	"addWatch reply":   &Reply{Xid: 8, Zxid: 6, Result: Result{Op: OpAddWatch}},
	"setWatches reply": &Reply{Xid: XidSetWatches, Zxid: 6, Result: Result{Op: OpSetWatches}},
	"setWatches": &Request{Xid: XidSetWatches, Operation: Operation{Op: OpSetWatches},
		Watches: Watches{Data: []string{"/a"}, Exist: []string{}, Child: []string{}}},

	"closeSession":       &Request{Xid: 9, Operation: Operation{Op: OpCloseSession}},
	"closeSession reply": &Reply{Xid: 9, Zxid: 7, Result: Result{Op: OpCloseSession}},
	"unimplemented":      &Reply{Xid: 10, Zxid: -1, Result: Result{Op: 999, Err: Unimplemented}},
}

func TestGoldenFramesAreWrittenAndRead(t *testing.T) {
	frames := wiretest.Golden(t)
	for name := range frames {
		if goldens[name] == nil {
			t.Errorf("nothing says what %q is", name)
		}
	}
	for name, want := range goldens {
		raw := frames[name]
		if got := want.AppendFrame([]byte("before")); !bytes.Equal(got, append([]byte("before"), raw...)) {
			t.Errorf("%s: written as\n%x, want\n%x", name, got, raw)
		}
		read, err := ReadFrame(bytes.NewReader(raw), nil, FrameMax)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fresh(want)
		left, err := got.decode(read)
		if err != nil || left != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as\n%+v with %d bytes left and error %v, want\n%+v", name, got, left, err, want)
		}
	}
}

// A truncated frame is an error, wherever it ends. So is a truncated record whose frame has the
// right length. Only a connect request and its answer may lack their last byte.
func TestTruncatedFramesAreErrors(t *testing.T) {
	for name, want := range everyFrame {
		raw := want.AppendFrame(nil)
		for n := range raw {
			if _, err := ReadFrame(bytes.NewReader(raw[:n]), nil, FrameMax); err == nil {
				t.Errorf("%s: %d bytes are a frame", name, n)
			}
			if n < 4 {
				continue
			}
			_, err := fresh(want).decode(raw[4:n])
			if old := n == len(raw)-1 && strings.HasPrefix(name, "connect"); old != (err == nil) {
				t.Errorf("%s: %d of %d bytes: error %v", name, n, len(raw), err)
			}
		}
	}
}

// Catalogue 0.7: bytes behind a complete record are ignored.
func TestBytesBehindARecordAreIgnored(t *testing.T) {
	for name, want := range everyFrame {
		got := fresh(want)
		if left, err := got.decode(append(want.AppendFrame(nil)[4:], "more"...)); err != nil || left != 4 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v with %d bytes left, error %v", name, got, left, err)
		}
	}
}
