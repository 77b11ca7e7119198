package client

import (
	"testing"

	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A server that answers with more results than were asked for costs the connection, not the process.
func TestMoreResultsThanOperations(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("the client's process panics: %v", p)
		}
	}()
	c := nativeCall(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{{Kind: int32(tree.KindSet), Path: "/a"}}})
	c.reply.Native.Results = make([]wire.NativeResult, 2)
	var m made
	m.note(c)
}
