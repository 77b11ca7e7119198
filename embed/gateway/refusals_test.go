package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/pace"
)

// However many clients are refused, the log has a line for the first of each kind, and one that
// counts the others once the pause is over.
func TestRefusals_Storm(t *testing.T) {
	oneShard(t)
	const storm = 40
	var log lockedBuffer
	o := embedtest.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	cfg := Config{ReadOnly: true, Connections: 3, Words: []string{"*"}, SASL: DigestMD5(peoplesHA1)}
	inBubble(t, o, cfg, func(e *cutEnsemble) {
		ahead := asks(false)
		ahead.LastZxid = 1 << 40
		seen := 0
		lines := func(part string) (list []string) {
			for line := range strings.Lines(log.String()[seen:]) {
				if strings.Contains(line, part) {
					list = append(list, line)
				}
			}
			return list
		}
		refusals := func(what, line string, refuse func()) {
			t.Helper()
			seen = len(log.String())
			for range storm {
				refuse()
				synctest.Wait() // it is logged, and its place is free again
			}
			if got := lines(line); len(got) != 1 || !strings.Contains(got[0], " repeated=0\n") {
				t.Errorf("%s: %q", what, got)
			}
			<-time.After(pace.Min)
			seen = len(log.String())
			refuse()
			synctest.Wait()
			if got := lines(line); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf(" repeated=%d\n", storm-1)) {
				t.Errorf("%s: after a pause %q", what, got)
			}
		}
		refusals("credentials", `msg="a client's credential was refused"`, func() {
			c := e.open(1, asks(false))
			c.token(make([]byte, 5000))
			c.endsSilently()
			_ = c.Close()
		})
		refusals("ahead", `cause="the client comes from a member that is ahead`, func() { e.refused(1, ahead) })
		refusals("too many", `msg="connection refused: too many connections"`, func() {
			first := e.dial(1)
			for range cfg.Connections {
				defer e.open(1, asks(false)).Close()
			}
			first.endsSilently()
		})
		e.Isolate(1)
		e.readOnlyBegins(1)
		old := asks(true)
		old.SessionID = 7
		refusals("no quorum", `cause="no leader is known, and`, func() { e.refused(1, asks(false)) })
		refusals("a session of the ensemble", `cause="no leader is known, so`, func() { e.refused(1, old) })
		if other := lines("client's connection ended"); len(other) != 0 {
			t.Errorf("logged otherwise: %q", other)
		}
	})
}

// A listener without descriptors fails at every try.
type exhausted struct{ net.Listener }

func (exhausted) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

// As long as no connection can be accepted, and the sessions cannot be counted, the log says so now
// and then, and not at every try.
func TestRefusals_TroubleThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		g := &Gateway{log: slog.New(slog.NewTextHandler(&log, nil)), listener: exhausted{}}
		g.ctx = ctx
		ended := make(chan struct{})
		go func() { defer close(ended); g.acceptLoop() }()
		for range 1800 {
			<-time.After(time.Second)
			g.logCensus(syscall.EIO)
		}
		cancel()
		<-ended
		for _, message := range []string{"cannot accept a connection", "cannot count the sessions"} {
			if n := strings.Count(log.String(), message); n < 2 || n > 10 {
				t.Errorf("%s: %d lines in half an hour", message, n)
			}
		}
	})
}
