package replication

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// bridge passes dragonboat's log lines to the slog.Logger of the oldest open host. dragonboat has
// one logger per process, and its lines do not say which NodeHost they come from. So with several
// hosts in a process one of them gets the lines of all.
var bridge logBridge

type logBridge struct {
	install sync.Once
	target  atomic.Pointer[slog.Logger] // of the oldest open host; nil means that lines are dropped

	mu struct {
		rank.Mutex[rank.Hosts]
		hosts []*Host        // with a NodeHost that runs, oldest first
		left  map[*Host]bool // those whose Close has returned while their NodeHost ran on
	}
}

// set makes b the process's logger factory. It must come before dragonboat's first log line,
// because dragonboat keeps its first logger. SetLoggerFactory panics if the process has already set
// a factory. Then the process's factory stays.
func (b *logBridge) set() {
	b.install.Do(func() {
		_ = guard(func() error {
			logger.SetLoggerFactory(func(pkg string) logger.ILogger { return &logLine{bridge: b, pkg: pkg} })
			return nil
		})
	})
}

func (b *logBridge) add(h *Host) {
	b.set()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.hosts = append(b.mu.hosts, h)
	b.aimLocked()
}

// leave takes the lines from a host whose NodeHost runs on after Close. The host stays known,
// because an invariant that breaks there must not fail the others.
func (b *logBridge) leave(h *Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.mu.hosts, h) {
		return // its NodeHost has ended just now
	}
	if b.mu.left == nil {
		b.mu.left = make(map[*Host]bool)
	}
	b.mu.left[h] = true
	b.aimLocked()
}

func (b *logBridge) remove(h *Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.hosts = slices.DeleteFunc(b.mu.hosts, func(o *Host) bool { return o == h })
	delete(b.mu.left, h)
	b.aimLocked()
}

func (b *logBridge) aimLocked() {
	for _, h := range b.mu.hosts {
		if !b.mu.left[h] {
			b.target.Store(h.log)
			return
		}
	}
	b.target.Store(nil)
}

// fail throws the switch of the hosts whose directory a line names. If the line names none, it does
// not say whose invariant it was, and fail throws the switch of every host.
func (b *logBridge) fail(line string, cause error) {
	b.mu.Lock()
	hosts := slices.Clone(b.mu.hosts)
	b.mu.Unlock()
	names := func(h *Host) bool {
		return strings.Contains(line, filepath.Clean(h.cfg.Dir)+string(filepath.Separator))
	}
	known := slices.ContainsFunc(hosts, names)
	for _, h := range hosts {
		if !known || names(h) {
			h.cfg.Disk.Fail(cause)
		}
	}
}

// logLine is the logger of one of dragonboat's packages.
type logLine struct {
	bridge *logBridge
	pkg    string
}

var _ logger.ILogger = (*logLine)(nil)

// dragonboat logs as routine what its users need not see, and warns at every lost connection.
const (
	levelDebug   = slog.LevelDebug - 4
	levelInfo    = slog.LevelDebug
	levelWarning = slog.LevelDebug
	levelError   = slog.LevelWarn
)

func (l *logLine) log(level slog.Level, format string, args []any) {
	target := l.bridge.target.Load()
	if target == nil || !target.Enabled(context.Background(), level) {
		return
	}
	target.Log(context.Background(), level, fmt.Sprintf(format, args...), "library", "dragonboat/"+l.pkg)
}

// SetLevel does nothing; the slog.Logger decides.
func (l *logLine) SetLevel(logger.LogLevel) {}

func (l *logLine) Debugf(format string, args ...any)   { l.log(levelDebug, format, args) }
func (l *logLine) Infof(format string, args ...any)    { l.log(levelInfo, format, args) }
func (l *logLine) Warningf(format string, args ...any) { l.log(levelWarning, format, args) }
func (l *logLine) Errorf(format string, args ...any)   { l.log(levelError, format, args) }

// Panicf reports a broken invariant. It never returns. On a goroutine of ours it panics, and guard
// turns that into an error. On one of dragonboat's goroutines it throws the switches and keeps the
// goroutine. To let the goroutine go on, or to run its deferred calls, would continue from the
// broken state. If the line is about a file, only the node of that file fails.
func (l *logLine) Panicf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if guarded() {
		panic(&brokenError{text: text})
	}
	l.log(slog.LevelError, "broken invariant: the node stops, or every node of this process if it is not known whose invariant it is: "+format, args)
	l.bridge.fail(text, fmt.Errorf("%w: dragonboat: %s", errBroken, text))
	select {}
}
