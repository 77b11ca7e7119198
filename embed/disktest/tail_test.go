package disktest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// newestLog returns the Raft log that has a write, and where it begins.
func newestLog(t *testing.T, dir string, write []byte) (name string, text []byte, at int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "raft", "*", "*", "tandb", "node-*", "*.log"))
	must(t, err)
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		text, err := os.ReadFile(name)
		must(t, err)
		if at := bytes.Index(unmasked(text), write); at >= 0 {
			return name, text, at
		}
	}
	t.Fatalf("no log has it: %v", names)
	return "", nil, 0
}

// unmasked returns a log in which batches are as they were before they were masked, in their places.
func unmasked(text []byte) []byte {
	out := bytes.Clone(text)
	const key = 8
	for i := 2; i+key+2 < len(text); i++ {
		mask, cmd := text[i:i+key], text[i+key:]
		if text[i-2] != 0 || text[i-1] != 0xc1 || cmd[0]^mask[0] != 0x97 || cmd[1]^mask[1] != 2 {
			continue
		}
		for k := range cmd { // a later batch overwrites the rest
			out[i+key+k] = cmd[k] ^ mask[k%key]
		}
	}
	return out
}

// C8.4: the end of a member's log is damaged while all members are down. The others lag, or come
// later. So the member would help to elect a leader that lacks acknowledged writes. A bit that turns
// is found at once. What is missing looks like a write that a power cut has torn. It is found once
// the image has the write, which is a few seconds after it.
func TestStart_FindsDamageAtTheEndOfTheLog(t *testing.T) {
	write := bytes.Repeat([]byte("x"), 1200)
	for _, c := range []struct {
		name string
		wait time.Duration // after the write
		hurt func(text []byte, at int) []byte
		want string
	}{
		{"a bit", 0, func(text []byte, at int) []byte { text[at+20] ^= 4; return text }, "damaged at byte"},
		{"sectors of zeros", 10 * time.Second, func(text []byte, at int) []byte { clear(text[(at+600)/512*512:]); return text }, "the raft log ends at"},
		{"the end is missing", 10 * time.Second, func(text []byte, at int) []byte { return text[:at+100] }, "the raft log ends at"},
	} {
		dir := t.TempDir()
		testkit.Bubble(t, func(t *testing.T) {
			e := embedtest.New(t, 1, embedtest.Options{Dir: dir})
			s := e.Session(1, embed.SessionOptions{})
			_, err := s.Create(t.Context(), "/acknowledged", write, embed.Persistent)
			must(t, err)
			<-time.After(c.wait)
			e.Kill(1)
			name, text, at := newestLog(t, e.Dir(1), write)
			must(t, os.WriteFile(name, c.hurt(text, at), 0o600))
			report, err := offline.Check(e.Dir(1))
			must(t, err)
			if !report.Damaged() {
				t.Errorf("%s: Check finds nothing: %+v", c.name, report)
			}
			if _, err := e.TryStart(1); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), e.Dir(1)) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// C8.4: what was torn is cut off, and said.
func TestStart_SaysWhatItCutsOff(t *testing.T) {
	dir, write := t.TempDir(), bytes.Repeat([]byte("x"), 1200)
	testkit.Bubble(t, func(t *testing.T) {
		lines := make(chan string, 1000)
		e := embedtest.New(t, 1, embedtest.Options{Dir: dir, Logger: slog.New(&heard{Handler: slog.NewTextHandler(io.Discard, nil), lines: lines})})
		s := e.Session(1, embed.SessionOptions{})
		_, err := s.Create(t.Context(), "/acknowledged", write, embed.Persistent)
		must(t, err)
		e.Kill(1)
		name, text, at := newestLog(t, e.Dir(1), write)
		clear(text[(at+600)/512*512:])
		must(t, os.WriteFile(name, text, 0o600))
		report, err := offline.Check(e.Dir(1))
		must(t, err)
		if report.Damaged() || !slices.ContainsFunc(report.Shards, func(s offline.ShardReport) bool { return s.Torn > 0 }) {
			t.Errorf("%+v", report)
		}
		e.Start(1)
		e.Ready(1)
		for line := range lines {
			if line == "the end of the raft log was not written whole, and is cut off" {
				return
			}
			if len(lines) == 0 {
				t.Fatal("it is cut off without a word")
			}
		}
	})
}

// heard passes on the messages of a log.
type heard struct {
	slog.Handler
	lines chan string
}

func (h *heard) Handle(_ context.Context, r slog.Record) error { h.lines <- r.Message; return nil }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h *heard) WithGroup(string) slog.Handler                 { return h }
func (h *heard) Enabled(context.Context, slog.Level) bool      { return true }
