package client

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/internal/wire"
	life "github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// waiting returns a connected session with a call of every kind on its way, with watches and a claim.
func waiting(t testing.TB, k *Client) (*session, *link) {
	s, l := newSession(k, embed.SessionOptions{}), &link{}
	s.mu.id, s.mu.timeout, s.mu.link, s.mu.data, s.mu.frame = 7, time.Minute, l, 1<<20, 1<<20
	s.mu.life = life.NewLife(time.Minute, k.config.Inside.Clock.Boot())
	close(s.ready)
	for _, once := range []bool{true, false} {
		for _, mode := range []watch.Mode{watch.Persistent, watch.Recursive} {
			w := &stream{s: s, at: place{"/a", mode}, once: once, values: true, events: make(chan watch.Event, 4)}
			s.mu.Lock()
			s.armLocked("/a", mode, w.armed)
			s.armAgainLocked(w.at, w.compare) // as on the next connection
			s.mu.Unlock()
		}
	}
	s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/a/e-", Mode: tree.EphemeralSequential}}, nil)
	for _, op := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetEphemerals, wire.OpGetAllChildrenNumber, wire.OpRemoveWatches} {
		s.enqueue(t.Context(), pathCall(op, "/a"))
	}
	for kind := wire.NativeRelease; kind <= wire.NativeMember; kind++ {
		s.enqueue(t.Context(), nativeCall(wire.Native{Kind: kind, Path: "/a", Mode: int32(watch.Persistent)}))
	}
	s.ping()
	return s, l
}

// FuzzReceived feeds frames to a session that waits for answers. They cost the connection at most.
func FuzzReceived(f *testing.F) {
	k, err := New(Config{Servers: []string{"a:1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = k.Close() })
	s, l := waiting(f, k)
	s.take(l, nil)
	var all []byte
	for _, c := range s.mu.sent { // the right answers, in order
		r := wire.Reply{Result: wire.Result{Op: c.request.Op, Names: []string{}}, Native: wire.NativeReply{Kind: c.request.Native.Kind, Index: -1, Flag: true}}
		for _, op := range c.request.Native.Ops {
			r.Native.Results = append(r.Native.Results, wire.NativeResult{Kind: op.Kind, Path: "/a/e-0000000000", Stat: wire.Stat{Czxid: 5, EphemeralOwner: 7}})
		}
		f.Add(r.AppendFrame(nil))
		all = r.AppendFrame(all)
	}
	for _, kind := range []wire.EventType{wire.NodeCreated, wire.NodeDeleted, wire.NodeDataChanged, wire.NodeChildrenChanged, 8} {
		e := wire.Reply{Xid: wire.XidNativeEvent, Zxid: 9, Result: wire.Result{Op: wire.OpNativeEvent}}
		e.Event = wire.Event{Type: kind, State: wire.StateSyncConnected, Path: "/a/e-0000000000", Znode: wire.NativeZnode{Data: []byte("x"), Stat: native.ToStat(&tree.Stat{Mzxid: 9})}}
		all = e.AppendFrame(all)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, l := waiting(t, k)
		defer s.halt()
		for in := bytes.NewReader(raw); ; {
			s.take(l, nil) // what the answers make it ask for
			frame, err := wire.ReadFrame(in, nil, 1<<16)
			if err != nil {
				break
			}
			if len(frame) >= 4 && len(s.mu.sent) > 0 && int32(binary.BigEndian.Uint32(frame)) != wire.XidNativeEvent {
				binary.BigEndian.PutUint32(frame, uint32(s.mu.sent[0].request.Xid)) // no fuzzer guesses it
			}
			if s.received(frame) != nil {
				break
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.breakLocked()
	})
}
