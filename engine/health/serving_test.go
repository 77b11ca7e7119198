package health

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// An end is a node that is over from a moment on.
type end struct {
	Node
	at time.Time
}

func (e *end) Finished() (at time.Time, over, cause error) {
	if !e.at.IsZero() {
		over = errors.New("closed")
	}
	return e.at, over, nil
}

// Since is when Ready became what it is, also when the disk lacked room in between and when the
// node ends.
func TestHealth_Since(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n end
		w := New(Options{Lacks: Lacks{Node: &n}, Log: slog.New(slog.DiscardHandler)})
		want := func(what string, ready bool, since time.Time) {
			t.Helper()
			if h := w.Health(); h.Ready != ready || !h.Since.Equal(since) || (h.Waiting == "") != ready {
				t.Errorf("%s: %+v, want %v since %v", what, h, ready, since)
			}
		}
		next := func() time.Time {
			<-time.After(time.Minute)
			return time.Now()
		}
		serves := time.Now()
		w.serving.Store(&serving{true, serves})
		want("serving", true, serves)
		full := next()
		w.DiskWaits(syscall.ENOSPC)
		next()
		want("a full disk", false, full)
		room := next()
		w.DiskWaits(nil)
		next()
		want("room again", true, room)
		again := next()
		w.serving.Store(&serving{true, again})
		want("a quorum again", true, again)
		full = next()
		w.DiskWaits(syscall.ENOSPC)
		next()
		n.at = time.Now()
		want("closed with a full disk", false, full)
		w.DiskWaits(nil)
		want("closed", false, n.at)
		w.serving.Store(&serving{false, again})
		want("closed without a quorum", false, again)
	})
}
