package client

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// A claim that takes a step that nobody draws ends neither the process nor the session. The log says
// so once.
func TestDefectIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	k, err := New(Config{Servers: []string{"a:1"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := waiting(t, k)
	c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil).(*claim)
	s.mu.Lock()
	results := []tree.Result{{Kind: tree.KindCreate, Path: "/q", Stat: tree.Stat{EphemeralOwner: s.mu.id}}}
	for range 3 {
		c.AppliedLocked(results, s.mu.id, nil)
	}
	s.mu.Unlock()
	_ = k.Close() // which waits for the log
	if n := strings.Count(log.String(), `cause="a claim goes from standing to standing"`); n != 1 || s.Err() != nil {
		t.Errorf("logged %d times: %s; the session: %v", n, log.String(), s.Err())
	}
}
