package transport

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The logger says which member logs a notice. The notice says which member it is about.
func TestNotice_SaysWhoseAndOfWhom(t *testing.T) {
	var b bytes.Buffer
	n := newNotices(slog.New(slog.NewTextHandler(&b, nil)).With("member", 1))
	n.give(slog.LevelInfo, notice{event: "connected to member", peer: 2})
	if line := b.String(); strings.Count(line, "member=") != 1 || !strings.Contains(line, " member=1 peer=2") {
		t.Error(line)
	}
}

// M166: strangers from ever more addresses do not fill the log, and what was told of others is not told
// again because of them. A network of IPv6 is one address.
func TestNotices_OfManyStrangers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var b bytes.Buffer
		n := newNotices(slog.New(slog.NewTextHandler(&b, nil)))
		tell := func(ip string) {
			_, host := addressOf(fromConn{addr: &net.TCPAddr{IP: net.ParseIP(ip)}})
			n.give(slog.LevelWarn, notice{event: "broken", host: host})
		}
		lines := func() int { return strings.Count(b.String(), "\n") }
		for i := range 3000 {
			tell(fmt.Sprintf("2001:db8::%x", i+1))
		}
		if lines() != 1 {
			t.Errorf("of one network there are %d lines", lines())
		}
		for i := range 3 * noticesMax {
			tell(fmt.Sprintf("10.%d.%d.1", i/256, i%256))
		}
		tell("2001:db8::1")
		if lines() > noticesMax+1 {
			t.Errorf("there are %d lines", lines())
		}
		before := lines()
		n.give(slog.LevelError, notice{event: "broken", host: "192.0.2.1", kind: ErrRemoved})
		if lines() != before+1 {
			t.Error("what is refused for another reason is not told of")
		}
		<-time.After(pace.Max)
		before = lines()
		tell("192.0.2.1")
		if lines() != before+1 || len(n.mu.given) > noticesMax+1 {
			t.Errorf("later there are %d lines more, and %d notices are remembered", lines()-before, len(n.mu.given))
		}
	})
}

// A fromConn is a connection from an address.
type fromConn struct {
	net.Conn
	addr net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.addr }
