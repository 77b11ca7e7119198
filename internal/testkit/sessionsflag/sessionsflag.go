package sessionsflag

import (
	"context"
	"flag"
	"fmt"
	"net"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// Over opens a door to a node for clients, and returns what opens sessions through it. dial connects
// to the door in a bubble of testing/synctest, and is nil elsewhere. The function it returns shuts
// the sessions, but not the door, which ends with its node.
type Over func(n *embed.Node, dial func(ctx context.Context) (net.Conn, error)) (from embed.Opener, shut func(), err error)

// Open is set if the flag is given.
var Open Over

// Define defines the flag. A test package that can run over a connection calls it, with what its
// clients do. This package cannot know them: the gateway's own tests use ensembles too.
func Define(over Over) {
	flag.Func("sessions", "client: the tests' sessions are those of processes that are not members", func(text string) error {
		if text != "client" {
			return fmt.Errorf("want client")
		}
		Open = over
		return nil
	})
}

// Member skips the rest of a test that only a member's sessions can pass, and says why.
func Member(t testing.TB, why string) {
	t.Helper()
	if Open != nil {
		t.Skip("with -sessions client: " + why)
	}
}
