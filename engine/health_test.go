package engine

import (
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Since is when Ready became what it is, also when the disk lacked room in between and when the
// node ends.
func TestHealth_Since(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{done: make(chan struct{}), log: slog.New(slog.DiscardHandler)}
		want := func(what string, ready bool, since time.Time) {
			t.Helper()
			if h := e.Health(); h.Ready != ready || !h.Since.Equal(since) || (h.Waiting == "") != ready {
				t.Errorf("%s: %+v, want %v since %v", what, h, ready, since)
			}
		}
		next := func() time.Time {
			<-time.After(time.Minute)
			return time.Now()
		}
		serves := time.Now()
		e.serving.Store(&serving{true, serves})
		want("serving", true, serves)
		full := next()
		e.diskWaiting(syscall.ENOSPC)
		next()
		want("a full disk", false, full)
		room := next()
		e.diskWaiting(nil)
		next()
		want("room again", true, room)
		again := next()
		e.serving.Store(&serving{true, again})
		want("a quorum again", true, again)
		full = next()
		e.diskWaiting(syscall.ENOSPC)
		next()
		e.end.at = time.Now()
		close(e.done)
		want("closed with a full disk", false, full)
		e.diskWaiting(nil)
		want("closed", false, e.end.at)
		e.serving.Store(&serving{false, again})
		want("closed without a quorum", false, again)
	})
}
