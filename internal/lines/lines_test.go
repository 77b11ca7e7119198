package lines

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A service is the handler of a service. It fails at lines and in other calls as a test wants.
type service struct {
	slog.Handler
	before func(call string) // called before each call, with the message or the name of the method
}

func (s service) Enabled(ctx context.Context, l slog.Level) bool {
	s.before("Enabled")
	return s.Handler.Enabled(ctx, l)
}

func (s service) Handle(ctx context.Context, r slog.Record) error {
	s.before(r.Message)
	return s.Handler.Handle(ctx, r)
}

func (s service) WithAttrs(a []slog.Attr) slog.Handler {
	s.before("WithAttrs")
	return service{s.Handler.WithAttrs(a), s.before}
}

func (s service) WithGroup(name string) slog.Handler {
	s.before("WithGroup")
	return service{s.Handler.WithGroup(name), s.before}
}

// text returns a handler that writes to b, without times.
func text(b *bytes.Buffer, level slog.Leveler) slog.Handler {
	return slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func wantText(t *testing.T, b *bytes.Buffer, want ...string) {
	t.Helper()
	if got := strings.TrimSpace(b.String()); got != strings.Join(want, "\n") {
		t.Errorf("the log has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// A key that has nothing to say is left out.
func TestQueue_LeavesOutWhatIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := New(text(&b, slog.LevelInfo)).Logger()
		log.Info("a line", "also", "", "cause", error(nil), "count", 0, "shard", 1)
		synctest.Wait()
		wantText(t, &b, `level=INFO msg="a line" count=0 shard=1`)
	})
}

// Lines come in their order, with what their loggers add.
func TestQueue_KeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		q := New(text(&out, nil))
		log := q.Logger().With("member", 1)
		log.Info("first", "a", 1)
		log.WithGroup("g").Warn("second", "a", 2)
		q.Logger().Debug("third")
		log.Error("fourth")
		q.Flush(time.Second)
		wantText(t, &out, "level=INFO msg=first member=1 a=1", "level=WARN msg=second member=1 g.a=2", "level=ERROR msg=fourth member=1")
	})
}

// What does not fit while the handler hangs is counted, and the log says so.
func TestQueue_OfAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		free := make(chan struct{})
		q := New(service{text(&out, nil), func(call string) {
			if call == "hang" {
				<-free
			}
		}})
		log := q.Logger().With("member", 1)
		log.Info("hang")
		synctest.Wait()
		for range waitingMax + 7 {
			log.Info("x")
		}
		began := time.Now()
		if q.Flush(time.Second); time.Since(began) != time.Second {
			t.Errorf("Flush took %v", time.Since(began))
		}
		if n := q.Lost.Read(); n != 7 {
			t.Errorf("%d lines were lost", n)
		}
		close(free)
		q.Flush(time.Second)
		all := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(all) != waitingMax+2 || all[1] != `level=WARN msg="log lines were dropped" member=1 count=7` {
			t.Errorf("%d lines, the second is %s", len(all), all[1])
		}
	})
}

// D14: long lines wait up to a bound in bytes.
func TestQueue_OfLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		q := New(service{text(new(bytes.Buffer), nil), func(string) { <-free }})
		log, long := q.Logger(), strings.Repeat("x", 64<<10)
		log.Info("hang")
		synctest.Wait()
		const fit = waitingBytes/(64<<10) - 1
		for range fit + 7 {
			log.Info("x", "long", long)
		}
		if n := q.Lost.Read(); n != 7 {
			t.Errorf("%d lines were lost", n)
		}
		close(free)
		synctest.Wait()
		for range fit {
			log.Info("x", "long", long)
		}
		if n := q.Lost.Read(); n != 7 {
			t.Errorf("%d lines were lost, once there was room again", n)
		}
		synctest.Wait()
	})
}

// A panic or a Goexit of the handler, wherever it happens, costs the line.
func TestQueue_OfAHandlerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(){"panic": func() { panic("a defect") }, "Goexit": runtime.Goexit} {
			for _, at := range []string{"bad", "WithAttrs", "WithGroup", "Enabled"} {
				var out bytes.Buffer
				failed := 0
				q := New(service{text(&out, nil), func(call string) {
					if call == at && failed < 3 {
						failed++
						fail()
					}
				}})
				log := q.Logger().With("member", 1).WithGroup("g")
				for i := range 4 {
					log.Info("bad", "i", i)
				}
				log.Info("good")
				q.Flush(time.Second)
				lost := uint64(3)
				if at == "Enabled" {
					lost = 2 // the first call asks for the levels
				}
				if n := q.Lost.Read(); n != lost || !strings.Contains(out.String(), fmt.Sprintf("count=%d\n", lost)) || !strings.Contains(out.String(), "msg=good member=1\n") {
					t.Errorf("%s in %s: %d lines were lost:\n%s", name, at, n, &out)
				}
			}
		}
	})
}

// hostile is a value that fails when it is formatted.
type hostile struct{ fail func() }

func (h hostile) LogValue() slog.Value { h.fail(); return slog.Value{} }

// The caller never formats a value.
func TestQueue_OfValuesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		free := make(chan struct{})
		q := New(text(&out, nil))
		q.Logger().With("a", hostile{func() { <-free }}).Info("hangs")
		q.Logger().Info("exits", "a", hostile{runtime.Goexit})
		close(free)
		q.Flush(time.Second)
		wantText(t, &out, `level=INFO msg=hangs a=<nil>`)
		if q.Lost.Read() != 1 {
			t.Errorf("%d lines were lost", q.Lost.Read())
		}
	})
}

// The handler is asked for its levels again and again, because a service may change them.
func TestQueue_FollowsTheLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		level := new(slog.LevelVar)
		level.Set(slog.LevelWarn)
		q := New(text(&out, level))
		log := q.Logger()
		synctest.Wait()
		if log.Enabled(t.Context(), slog.LevelInfo) {
			t.Error("Info is enabled")
		}
		level.Set(slog.LevelDebug)
		<-time.After(askAgain)
		log.Debug("asks")
		synctest.Wait()
		log.Debug("comes")
		q.Flush(time.Second)
		wantText(t, &out, "level=DEBUG msg=comes")
	})
}

// The handler may log to the queue, or flush it.
func TestQueue_OfAHandlerThatLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var q *Queue
		q = New(service{text(&out, nil), func(call string) {
			if call == "one" {
				q.Logger().Info("two")
				q.Flush(time.Second)
			}
		}})
		q.Logger().Info("one")
		q.Flush(2 * time.Second)
		wantText(t, &out, "level=INFO msg=one", "level=INFO msg=two")
	})
}
