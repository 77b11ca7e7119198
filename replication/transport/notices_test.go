package transport

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
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
