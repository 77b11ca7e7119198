package replication

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lni/dragonboat/v4/logger"
)

// lines collects the output of a logger under test.
type lines struct {
	sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.Lock()
	defer l.Unlock()
	return l.text.String()
}

func (l *lines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// openHost opens a host of an ensemble of one that logs to l. No shard is started.
func openHost(t *testing.T, l *lines, level slog.Level) *node {
	t.Helper()
	e := found(t, 1, 1)
	n := e.nodes[0]
	n.disk = newPlainDisk(t)
	c := e.config(n)
	c.Logger = l.logger(level)
	h, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	n.host = h
	return n
}

func (n *node) close(t *testing.T) {
	t.Helper()
	if err := n.host.Close(0); err != nil {
		t.Error(err)
	}
	n.host = nil
}

func TestLogger_LinesGoToTheOldestOpenHost(t *testing.T) {
	var first, second lines
	one := openHost(t, &first, slog.LevelDebug)
	two := openHost(t, &second, slog.LevelDebug)
	line := logger.GetLogger("testing")
	line.Infof("to %s", "one")
	one.close(t)
	line.Infof("to %s", "two")
	two.close(t)
	line.Infof("to %s", "nobody")
	if got := first.String(); !strings.Contains(got, "to one") || !strings.Contains(got, "library=dragonboat/testing") || strings.Contains(got, "to two") {
		t.Errorf("the first host got %s", got)
	}
	if got := second.String(); strings.Contains(got, "to one") || !strings.Contains(got, "to two") || strings.Contains(got, "nobody") {
		t.Errorf("the second host got %s", got)
	}
}

// A host whose Close has given up keeps its directory until Unlock. When it ends at last, it does
// not take the locks of its successor along.
func TestClose_TheDirectoryOfAHostThatRunsOn(t *testing.T) {
	e := found(t, 1, 1)
	e.newDisk = realDisk(t)
	e.startAll()
	n := e.nodes[0]
	end := make(chan struct{})
	first := n.host
	first.loops.Go(func() { <-end })
	if err := first.Close(1); !errors.Is(err, ErrStillRunning) {
		t.Fatalf("Close returned %v", err)
	}
	n.host = nil
	n.disk.Fail(errors.New("given up"))
	n.disk = e.newDisk(n.dir)
	if _, err := Open(e.config(n)); err == nil {
		t.Fatal("another host was opened beside it")
	}
	first.Unlock()
	e.start(n)
	close(end)
	eventually(t, "end of the first host", func() bool {
		bridge.mu.Lock()
		defer bridge.mu.Unlock()
		return !bridge.mu.left[first]
	})
	e.write(n, 1, "second")
}

// C1.8: A host whose Close has given up gets no more lines. What breaks in it fails no other host.
func TestLogger_AHostThatRunsOnAfterClose(t *testing.T) {
	var first, second lines
	one, two := openHost(t, &first, slog.LevelDebug), openHost(t, &second, slog.LevelDebug)
	end := make(chan struct{})
	one.host.loops.Go(func() { <-end })
	if err := one.host.Close(1); !errors.Is(err, ErrStillRunning) {
		t.Fatalf("Close returned %v", err)
	}
	line := logger.GetLogger("testing")
	line.Infof("to %s", "two")
	if strings.Contains(first.String(), "to two") || !strings.Contains(second.String(), "to two") {
		t.Errorf("the first host got %s, the second %s", first.String(), second.String())
	}
	go line.Panicf("%s is unreadable", filepath.Join(one.dir, "file"))
	<-one.disk.Failed()
	if err := two.disk.Err(); err != nil {
		t.Errorf("the switch of the second was thrown by %v", err)
	}

	close(end)
	eventually(t, "end of the first host", func() bool {
		bridge.mu.Lock()
		defer bridge.mu.Unlock()
		return !slices.Contains(bridge.mu.hosts, one.host) && !bridge.mu.left[one.host]
	})
	one.host = nil
	two.close(t)
}

func TestLogger_Levels(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 4: "debug info warning error", slog.LevelDebug: "info warning error", slog.LevelInfo: "error", slog.LevelError: "",
	} {
		var l lines
		n := openHost(t, &l, level)
		line := logger.GetLogger("testing")
		l.Lock()
		l.text.Reset()
		l.Unlock()
		line.Debugf("=%s=", "debug")
		line.Infof("=%s=", "info")
		line.Warningf("=%s=", "warning")
		line.Errorf("=%s=", "error")
		var got []string
		for _, word := range []string{"debug", "info", "warning", "error"} {
			if strings.Contains(l.String(), "="+word+"=") {
				got = append(got, word)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %v, want %s", level, got, want)
		}
		n.close(t)
	}
}

// C1.8: When dragonboat reports a broken invariant on a goroutine of its own, every node of the
// process stops, because nobody knows whose it was. The goroutine does not go on.
func TestLogger_PanicfThrowsAllSwitches(t *testing.T) {
	var l lines
	one, two := openHost(t, &l, slog.LevelDebug), openHost(t, &l, slog.LevelDebug)
	went := make(chan struct{})
	go func() {
		defer close(went)
		logger.GetLogger("testing").Panicf("invariant %d is broken", 7)
	}()
	for _, n := range []*node{one, two} {
		<-n.disk.Failed()
		if err := n.disk.Err(); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "invariant 7 is broken") {
			t.Errorf("the switch was thrown by %v", err)
		}
	}
	if isClosed(went) {
		t.Error("the goroutine went on")
	}
	if !strings.Contains(l.String(), "level=ERROR") || !strings.Contains(l.String(), "invariant 7 is broken") {
		t.Errorf("logged %s", l.String())
	}
}

// On a goroutine of ours the same becomes an error, and no node stops.
func TestGuard_MakesErrorsOfPanics(t *testing.T) {
	var l lines
	n := openHost(t, &l, slog.LevelDebug)
	for name, fn := range map[string]func() error{
		"reported": func() error { logger.GetLogger("testing").Panicf("it is %s", "broken"); return nil },
		"bare":     func() error { panic("it is broken") },
		"deeper":   func() error { func() { logger.GetLogger("testing").Panicf("it is broken") }(); return nil },
	} {
		if err := guard(fn); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "it is broken") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := guard(func() error { return errInjected }); err != errInjected {
		t.Errorf("an error became %v", err)
	}
	if guarded() {
		t.Error("guarded without guard")
	}
	if err := n.disk.Err(); err != nil {
		t.Errorf("the node failed: %v", err)
	}
}
