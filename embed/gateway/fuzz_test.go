package gateway

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A script makes requests of what a fuzzer has found. Once it is used up, everything is zero.
type script struct{ left []byte }

func (s *script) next() byte {
	if len(s.left) == 0 {
		return 0
	}
	b := s.left[0]
	s.left = s.left[1:]
	return b
}

// small returns a number that is near zero, or an extreme one.
func (s *script) small() int64 {
	switch n := int8(s.next()); n {
	case 127:
		return 1<<63 - 1
	case -128:
		return -1 << 63
	case 126:
		return 1<<31 - 1
	default:
		return int64(n)
	}
}

// text returns one of a few paths and names, or any short text.
func (s *script) text() string {
	known := []string{"/", "/a", "/a/b", "/e-", "/e-0000000000", "/zookeeper/quota", "/zookeeper/config", "", "a", "b", "e-0000000001", wire.Null}
	n := int(s.next())
	if n < 2*len(known) {
		return known[n%len(known)]
	}
	n = min(n%16, len(s.left))
	text := string(s.left[:n])
	s.left = s.left[n:]
	return text
}

func (s *script) acl() (list []wire.ACL) {
	for range s.next() % 3 {
		list = append(list, wire.ACL{Perms: wire.Perms(s.small()), Scheme: []string{"world", "auth", "digest", ""}[s.next()%4], ID: s.text()})
	}
	return list
}

func (s *script) native() (n wire.Native) {
	n.Kind = wire.NativeKind(s.next()%12) + wire.NativeHello - 1 // also some that there are not
	if n.Kind == wire.NativeSubmit {
		for range s.next() % 4 {
			n.Ops = append(n.Ops, wire.NativeOp{Kind: int32(s.next() % 14), Path: s.text(), Data: []byte(s.text()), Mode: int32(s.next() % 9), TTL: s.small(), ACL: s.acl(),
				Version: int32(s.small()), Czxid: s.small(), Mzxid: s.small(), Width: int32(s.next() % 5), Delta: s.small()})
		}
		return n
	}
	n.Path, n.After, n.Count, n.Mode, n.Zxid, n.Flag = s.text(), s.text(), int32(s.small()), int32(s.next()%6), s.small(), s.next()%2 == 1
	for range s.next() % 4 {
		n.Names = append(n.Names, s.text())
	}
	return n
}

// FuzzNative asks a living gateway for whatever package embed/client might. Each request gets its
// answer, in order, or the connection ends. Nothing panics, and other connections go on.
func FuzzNative(f *testing.F) {
	g, lives := startFuzzed(f)
	for kind := range byte(12) {
		f.Add([]byte{kind, 1, 1, 1, 1, 1, 1, 1, 1, kind, 2, 2, 2, 2, 2, 2, 2})
		f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, kind, 3, 7, 1, 0, 0, 0, 1, 8})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, g)
		c.open(wire.ConnectRequest{Timeout: 30_000, Password: make([]byte, 16)})
		var sent []wire.Request
		for s := (script{b}); len(s.left) > 0 && len(sent) < 50; {
			sent = append(sent, c.send(ofNative(s.native())))
		}
		last := c.send(wire.Request{Operation: wire.Operation{Op: wire.OpCloseSession}})
		_ = c.SetDeadline(time.Now().Add(patience))
		for {
			frame, err := wire.ReadFrame(c, nil, 64<<20)
			if err != nil {
				break // the gateway ends a connection whose outcomes it does not know
			}
			var r wire.Reply
			body, err := r.DecodeHeader(frame)
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Xid == wire.XidEvent:
				err = r.DecodeBody(wire.OpEvent, body)
			case r.Xid == wire.XidNativeEvent:
				err = r.DecodeBody(wire.OpNativeEvent, body)
			case len(sent) == 0:
				if r.Xid != last.Xid {
					t.Errorf("an answer with xid %d to no request", r.Xid)
				}
			default:
				q := sent[0]
				sent = sent[1:]
				if err = r.DecodeBody(wire.OpNative, body); r.Xid != q.Xid || r.Err == wire.OK && r.Native.Kind != q.Native.Kind {
					t.Errorf("xid %d, kind %d, to xid %d, kind %d", r.Xid, r.Native.Kind, q.Xid, q.Native.Kind)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		lives(t)
	})
}
