package client

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A server that answers with other results than were asked for costs the connection, not the
// process.
func TestAnswersToNoQuestion(t *testing.T) {
	for name, answer := range map[string]wire.NativeReply{
		"more results":  {Kind: wire.NativeSubmit, Results: make([]wire.NativeResult, 2)},
		"fewer results": {Kind: wire.NativeSubmit},
		"another kind":  {Kind: wire.NativePage},
	} {
		k, err := New(Config{Servers: []string{"a:1"}})
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(k, embed.SessionOptions{})
		c := nativeCall(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{{Kind: int32(tree.KindSet), Path: "/a"}}})
		s.mu.sent = []*call{c}
		frame := (&wire.Reply{Result: wire.Result{Op: wire.OpNative}, Native: answer}).AppendFrame(nil)
		if err := s.received(frame[4:]); !errors.Is(err, errProtocol) || isDone(c) {
			t.Errorf("%s: %v, and the call is done: %v", name, err, isDone(c))
		}
	}
}
