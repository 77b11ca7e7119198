package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// A layout is a frame that is not among the golden ones. It is spelled field by field, after the
// tables in sections 3 and 10 of the catalogue. Numbers and booleans stand as they are, a string
// stands for its length and its bytes, and nil is null.
type layout struct {
	name   string
	frame  frame
	fields []any
}

func (l layout) bytes() []byte {
	var b []byte
	for _, f := range l.fields {
		switch f := f.(type) {
		case nil:
			b = append(b, 0xff, 0xff, 0xff, 0xff)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(int32(f)))
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(f))
		case bool:
			b = append(b, map[bool]byte{true: 1}[f])
		case []any:
			b = append(b, layout{fields: f}.bytes()...)
		}
	}
	return b
}

func ask(o Operation) *Request { return &Request{Xid: 7, Operation: o} }
func answer(r Result) *Reply   { return &Reply{Xid: 7, Zxid: 9, Result: r} }
func askNative(n Native) *Request {
	return &Request{Xid: 7, Operation: Operation{Op: OpNative}, Native: n}
}
func answerNative(r NativeReply) *Reply {
	return &Reply{Xid: 7, Zxid: 9, Result: Result{Op: OpNative}, Native: r}
}
func fields(f ...any) []any        { return f }
func replied(f ...any) []any       { return append(fields(7, int64(9), 0), f...) }
func asked(op int, f ...any) []any { return append(fields(7, op), f...) }

var (
	stat = Stat{Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: 6, Aversion: 7, EphemeralOwner: 8, DataLength: 9,
		NumChildren: 10, Pzxid: 11}
	statFields = fields(int64(1), int64(2), int64(3), int64(4), 5, 6, 7, int64(8), 9, 10, int64(11))
	openFields = fields(1, 31, "world", "anyone")
)

var layouts = []layout{
	{"connect", &ConnectRequest{Protocol: 1, LastZxid: 2, Timeout: 3, SessionID: 4, Password: []byte("pw"), ReadOnly: true},
		fields(1, int64(2), 3, int64(4), "pw", true)},
	{"connect, no password", &ConnectRequest{}, fields(0, int64(0), 0, int64(0), nil, false)},
	{"connected", &ConnectResponse{Protocol: 1, Timeout: 3, SessionID: 4, Password: []byte("pw"), ReadOnly: true},
		fields(1, 3, int64(4), "pw", true)},

	{"delete", ask(Operation{Op: OpDelete, Path: "/a", Version: 3}), asked(2, "/a", 3)},
	{"getData", ask(Operation{Op: OpGetData, Path: "/a", Watch: true}), asked(4, "/a", true)},
	{"setData", ask(Operation{Op: OpSetData, Path: "/a", Data: []byte("d"), Version: -1}), asked(5, "/a", "d", -1)},
	{"setData, null", ask(Operation{Op: OpSetData, Path: "/a", Version: -1}), asked(5, "/a", nil, -1)},
	{"setData, empty", ask(Operation{Op: OpSetData, Path: "/a", Data: []byte{}}), asked(5, "/a", "", 0)},
	{"getACL", ask(Operation{Op: OpGetACL, Path: "/a"}), asked(6, "/a")},
	{"setACL", ask(Operation{Op: OpSetACL, Path: "/a", Version: 2, ACL: []ACL{
		{Perms: PermRead | PermAdmin, Scheme: "digest", ID: "bob:pw"}, {Perms: 0, Scheme: Null, ID: ""}}}),
		asked(7, "/a", 2, 17, "digest", "bob:pw", 0, nil, "", 2)},
	{"setACL, null", ask(Operation{Op: OpSetACL, Path: "/a"}), asked(7, "/a", nil, 0)},
	{"setACL, empty", ask(Operation{Op: OpSetACL, Path: "/a", ACL: []ACL{}}), asked(7, "/a", 0, 0)},
	{"getChildren", ask(Operation{Op: OpGetChildren, Path: ""}), asked(8, "", false)},
	{"sync", ask(Operation{Op: OpSync, Path: "/a"}), asked(9, "/a")},
	{"sync, null", ask(Operation{Op: OpSync, Path: Null}), asked(9, nil)},
	{"check", ask(Operation{Op: OpCheck, Path: "/a", Version: 3}), asked(13, "/a", 3)},
	{"create2", ask(Operation{Op: OpCreate2, Path: "/a", ACL: open, Flags: FlagsEphemeralSequential}), asked(15, "/a", nil, openFields, 3)},
	{"reconfig", &Request{Xid: 7, Operation: Operation{Op: OpReconfig},
		Reconfig: Reconfig{Joining: "4=h", Leaving: "1", Members: Null, ConfigID: -1}},
		asked(16, "4=h", "1", nil, int64(-1))},
	{"checkWatches", ask(Operation{Op: OpCheckWatches, Path: "/a", Kind: KindData}), asked(17, "/a", 2)},
	{"removeWatches", ask(Operation{Op: OpRemoveWatches, Path: "/a", Kind: KindRecursive}), asked(18, "/a", 5)},
	{"createContainer", ask(Operation{Op: OpCreateContainer, Path: "/a", Data: []byte("d"), ACL: open, Flags: FlagsContainer}),
		asked(19, "/a", "d", openFields, 4)},
	{"deleteContainer", ask(Operation{Op: OpDeleteContainer, Path: "/a"}), asked(20, "/a")},
	{"createTTL", ask(Operation{Op: OpCreateTTL, Path: "/a", ACL: open, Flags: FlagsTTL, TTL: 1 << 39}),
		asked(21, "/a", nil, openFields, 5, int64(1)<<39)},
	{"multiRead", &Request{Xid: 7, Operation: Operation{Op: OpMultiRead}, Ops: []Operation{
		{Op: OpGetData, Path: "/a", Watch: true}, {Op: OpGetChildren, Path: "/b"}}},
		asked(22, 4, false, -1, "/a", true, 8, false, -1, "/b", false, -1, true, -1)},
	{"multi of all", &Request{Xid: 7, Operation: Operation{Op: OpMulti}, Ops: []Operation{
		{Op: OpCreate2, Path: "/a", ACL: open}, {Op: OpCreateContainer, Path: "/b", ACL: open, Flags: FlagsContainer},
		{Op: OpCreateTTL, Path: "/c", ACL: open, Flags: FlagsTTL, TTL: 5}, {Op: OpSetData, Path: "/d", Version: 1}}},
		asked(14, 15, false, -1, "/a", nil, openFields, 0, 19, false, -1, "/b", nil, openFields, 4,
			21, false, -1, "/c", nil, openFields, 5, int64(5), 5, false, -1, "/d", nil, 1, -1, true, -1)},
	{"multi of none", &Request{Xid: 7, Operation: Operation{Op: OpMulti}}, asked(14, -1, true, -1)},
	{"sasl", ask(Operation{Op: OpSASL, Data: []byte("token")}), asked(102, "token")},
	{"getEphemerals", ask(Operation{Op: OpGetEphemerals, Path: "/a"}), asked(103, "/a")},
	{"getAllChildrenNumber", ask(Operation{Op: OpGetAllChildrenNumber, Path: "/a"}), asked(104, "/a")},
	{"setWatches2", &Request{Xid: 7, Operation: Operation{Op: OpSetWatches2}, Watches: Watches{Zxid: 5, Data: []string{"/a", "/b"},
		Exist: []string{"/c"}, Child: []string{}, Persistent: []string{"/d"}, Recursive: []string{"/e"}}},
		asked(105, int64(5), 2, "/a", "/b", 1, "/c", 0, 1, "/d", 1, "/e")},
	{"setWatches, null", &Request{Xid: 7, Operation: Operation{Op: OpSetWatches}, Watches: Watches{Exist: []string{Null}}},
		asked(101, int64(0), nil, 1, nil, nil)},
	{"whoAmI", ask(Operation{Op: OpWhoAmI}), asked(107)},

	{"native hello", askNative(Native{Kind: NativeHello}), asked(1000, 1, "", "", nil, 0, 0, int64(0), false)},
	{"native submit", askNative(Native{Kind: NativeSubmit, Ops: []NativeOp{
		{Kind: 1, Path: "/a", Data: []byte("d"), Mode: 2, TTL: 3, ACL: open, Version: 4, Czxid: 5, Mzxid: 6, Width: 7, Delta: -8},
		{Kind: 3, Path: Null, ACL: []ACL{}}}}),
		asked(1000, 2, 2, 1, "/a", "d", 2, int64(3), openFields, 4, int64(5), int64(6), 7, int64(-8),
			3, nil, nil, 0, int64(0), 0, 0, int64(0), int64(0), 0, int64(0))},
	{"native submit of none", askNative(Native{Kind: NativeSubmit, Ops: []NativeOp{}}), asked(1000, 2, 0)},
	{"native release", askNative(Native{Kind: NativeRelease, Path: "/a", Zxid: 5, Flag: true}),
		asked(1000, 3, "/a", "", nil, 0, 0, int64(5), true)},
	{"native arm", askNative(Native{Kind: NativeArm, Path: "/a", Mode: 2}), asked(1000, 4, "/a", "", nil, 0, 2, int64(0), false)},
	{"native page", askNative(Native{Kind: NativePage, Path: "/a", After: "b", Count: 3}),
		asked(1000, 5, "/a", "b", nil, 3, 0, int64(0), false)},
	{"native before", askNative(Native{Kind: NativeBefore, Path: "/a/b", Names: []string{"x", "y"}}),
		asked(1000, 6, "/a/b", "", 2, "x", "y", 0, 0, int64(0), false)},
	{"native walk", askNative(Native{Kind: NativeWalk, Path: "/a", Count: 1}), asked(1000, 7, "/a", "", nil, 1, 0, int64(0), false)},
	{"native walk, goes on", askNative(Native{Kind: NativeWalk, Path: "/a", After: "/a/b", Zxid: 9}), asked(1000, 7, "/a", "/a/b", nil, 0, 0, int64(9), false)},
	{"native await", askNative(Native{Kind: NativeAwait, Path: "/a", Count: 20, Zxid: 9}),
		asked(1000, 8, "/a", "", nil, 20, 0, int64(9), false)},
	{"native sync", askNative(Native{Kind: NativeSync, Path: "/a"}), asked(1000, 9, "/a", "", nil, 0, 0, int64(0), false)},
	{"native member", askNative(Native{Kind: NativeMember, Zxid: 7}), asked(1000, 10, "", "", nil, 0, 0, int64(7), false)},

	{"native hello reply", answerNative(NativeReply{Kind: NativeHello, Zxid: 1 << 20, Count: 5}),
		replied(1, 0, int64(1<<20), false, 5)},
	{"native submit reply", answerNative(NativeReply{Kind: NativeSubmit, Results: []NativeResult{{Kind: 1, Path: "/a", Stat: stat, Value: -3}}}),
		replied(2, 0, 1, 1, "/a", statFields, int64(-3))},
	{"native submit refused", answerNative(NativeReply{Kind: NativeSubmit, Failure: 3, Text: "bad version", Index: 1}),
		replied(2, 3, "bad version", 1, int64(0))},
	{"native release reply", answerNative(NativeReply{Kind: NativeRelease}), replied(3, 0, int64(0), false, 0)},
	{"native arm reply", answerNative(NativeReply{Kind: NativeArm, Zxid: 9, Flag: true, Stat: stat}), replied(4, 0, int64(9), true, statFields)},
	{"native page reply", answerNative(NativeReply{Kind: NativePage, Names: []string{"a", "b"}}), replied(5, 0, 2, "a", "b")},
	{"native before reply", answerNative(NativeReply{Kind: NativeBefore, Flag: true, Names: []string{"a"}}), replied(6, 0, true, 1, "a")},
	{"native walk reply", answerNative(NativeReply{Kind: NativeWalk, Zxid: 9, Flag: true, Znodes: []NativeZnode{
		{Path: "/a", Data: []byte("d"), Stat: stat}, {Path: "/a/b", Stat: stat}}}),
		replied(7, 0, int64(9), true, 2, "/a", "d", statFields, "/a/b", nil, statFields)},
	{"native walk refused", answerNative(NativeReply{Kind: NativeWalk, Failure: 6, Text: "no permission", Index: -1, Zxid: 9}),
		replied(7, 6, "no permission", -1, int64(9))},
	{"native await reply", answerNative(NativeReply{Kind: NativeAwait, Flag: true}), replied(8, 0, int64(0), true, 0)},
	{"native sync reply", answerNative(NativeReply{Kind: NativeSync, Zxid: 9}), replied(9, 0, int64(9), false, 0)},
	{"native member reply", answerNative(NativeReply{Kind: NativeMember, Zxid: 2}), replied(10, 0, int64(2), false, 0)},
	{"native event", &Reply{Xid: XidNativeEvent, Zxid: 9, Result: Result{Op: OpNativeEvent}, Event: Event{Type: NodeDataChanged,
		State: StateSyncConnected, Path: "/a", Znode: NativeZnode{Data: []byte("d"), Stat: stat}}},
		fields(-1000, int64(9), 0, 3, 3, "/a", "d", statFields)},

	{"create2 reply", answer(Result{Op: OpCreate2, Path: "/a", Stat: stat}), replied("/a", statFields)},
	{"createContainer reply", answer(Result{Op: OpCreateContainer, Path: "/a", Stat: stat}), replied("/a", statFields)},
	{"createTTL reply", answer(Result{Op: OpCreateTTL, Path: "/a", Stat: stat}), replied("/a", statFields)},
	{"delete reply", answer(Result{Op: OpDelete}), replied()},
	{"exists reply", answer(Result{Op: OpExists, Stat: stat}), replied(statFields)},
	{"getData reply", answer(Result{Op: OpGetData, Data: []byte("d"), Stat: stat}), replied("d", statFields)},
	{"getData reply, null", answer(Result{Op: OpGetData, Stat: stat}), replied(nil, statFields)},
	{"getData reply, empty", answer(Result{Op: OpGetData, Data: []byte{}, Stat: stat}), replied("", statFields)},
	{"setData reply", answer(Result{Op: OpSetData, Stat: stat}), replied(statFields)},
	{"getACL reply", answer(Result{Op: OpGetACL, ACL: open, Stat: stat}), replied(openFields, statFields)},
	{"setACL reply", answer(Result{Op: OpSetACL, Stat: stat}), replied(statFields)},
	{"getChildren reply", answer(Result{Op: OpGetChildren, Names: []string{"a", "b"}}), replied(2, "a", "b")},
	{"getChildren2 reply", answer(Result{Op: OpGetChildren2, Names: []string{"a"}, Stat: stat}), replied(1, "a", statFields)},
	{"sync reply", answer(Result{Op: OpSync, Path: "/a"}), replied("/a")},
	{"sync reply, null", answer(Result{Op: OpSync, Path: Null}), replied(nil)},
	{"reconfig reply", answer(Result{Op: OpReconfig, Data: []byte("server.1"), Stat: stat}), replied("server.1", statFields)},
	{"checkWatches reply", answer(Result{Op: OpCheckWatches}), replied()},
	{"removeWatches reply", answer(Result{Op: OpRemoveWatches}), replied()},
	{"sasl reply", answer(Result{Op: OpSASL, Data: []byte("token")}), replied("token")},
	{"sasl reply, null", answer(Result{Op: OpSASL}), replied(nil)},
	{"getEphemerals reply", answer(Result{Op: OpGetEphemerals, Names: []string{"/a"}}), replied(1, "/a")},
	{"getAllChildrenNumber reply", answer(Result{Op: OpGetAllChildrenNumber, Count: 3}), replied(3)},
	{"setWatches2 reply", answer(Result{Op: OpSetWatches2}), replied()},
	{"whoAmI reply", &Reply{Xid: 7, Zxid: 9, Result: Result{Op: OpWhoAmI}, Users: []User{{"ip", "127.0.0.1"}, {"super", ""}}},
		replied(2, "ip", "127.0.0.1", "super", "")},
	{"multi reply of all", &Reply{Xid: 7, Zxid: 9, Result: Result{Op: OpMulti}, Results: []Result{
		{Op: OpCreate, Path: "/a"}, {Op: OpCreate2, Path: "/b", Stat: stat}, {Op: OpDelete}, {Op: OpSetData, Stat: stat}, {Op: OpCheck}}},
		replied(1, false, 0, "/a", 15, false, 0, "/b", statFields, 2, false, 0, 5, false, 0, statFields, 13, false, 0, -1, true, -1)},
	{"multi reply of none", &Reply{Xid: 7, Zxid: 9, Result: Result{Op: OpMulti}}, replied(-1, true, -1)},
	{"multiRead reply", &Reply{Xid: 7, Zxid: 9, Result: Result{Op: OpMultiRead}, Results: []Result{
		{Op: OpGetData, Data: []byte("d"), Stat: stat}, {Op: OpError, Err: NoNode}, {Op: OpGetChildren, Names: []string{}}}},
		replied(4, false, 0, "d", statFields, -1, false, -101, -101, 8, false, 0, 0, -1, true, -1)},
}

// everyFrame yields the frames of both tables.
func everyFrame(yield func(name string, f frame) bool) {
	for name, f := range goldens {
		if !yield(name, f) {
			return
		}
	}
	for _, l := range layouts {
		if !yield(l.name, l.frame) {
			return
		}
	}
}

func TestRecordsFollowTheCatalogue(t *testing.T) {
	names := make(map[string]bool)
	for _, l := range layouts {
		if names[l.name] {
			t.Errorf("there are two %q", l.name)
		}
		names[l.name] = true
		body := l.bytes()
		want := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		if got := l.frame.AppendFrame(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: written as\n%x, want\n%x", l.name, got, want)
		}
		got := fresh(l.frame)
		if left, err := got.decode(body); err != nil || left != 0 || !reflect.DeepEqual(got, l.frame) {
			t.Errorf("%s: read as\n%+v with %d bytes left and error %v, want\n%+v", l.name, got, left, err, l.frame)
		}
	}
}

// Every op that a client may send, every reply, and every nested record is in the tables.
func TestNoRecordIsForgotten(t *testing.T) {
	requests, replies := make(map[Op]bool), make(map[Op]bool)
	for _, f := range everyFrame {
		switch f := f.(type) {
		case *Request:
			requests[f.Op] = true
		case *Reply:
			replies[f.Op] = replies[f.Op] || f.Err == OK
		}
	}
	kinds := make(map[NativeKind]int)
	for _, f := range everyFrame {
		if q, ok := f.(*Request); ok && q.Op == OpNative {
			kinds[q.Native.Kind] |= 1
		} else if r, ok := f.(*Reply); ok && r.Op == OpNative && r.Native.Failure == 0 {
			kinds[r.Native.Kind] |= 2
		}
	}
	for kind := NativeHello; kind <= NativeMember; kind++ {
		if kinds[kind] != 3 {
			t.Errorf("native kind %d: request %t, reply %t", kind, kinds[kind]&1 > 0, kinds[kind]&2 > 0)
		}
	}
	for op := Op(-20); op < 1100; op++ {
		if op.Known() && (!requests[op] || !replies[op]) {
			t.Errorf("op %d: request %t, reply %t", op, requests[op], replies[op])
		}
	}
}

// Catalogue 3.15: in a multi, createContainer and createTTL answer as create2 does.
func TestMultiAnswersEveryStatAsCreate2(t *testing.T) {
	for _, op := range []Op{OpCreateContainer, OpCreateTTL} {
		sent := &Reply{Result: Result{Op: OpMulti}, Results: []Result{{Op: op, Path: "/a", Stat: stat}}}
		want := &Reply{Result: Result{Op: OpMulti}, Results: []Result{{Op: OpCreate2, Path: "/a", Stat: stat}}}
		if got, want := sent.AppendFrame(nil), want.AppendFrame(nil); !bytes.Equal(got, want) {
			t.Errorf("op %d: %x, want %x", op, got, want)
		}
	}
}
