package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// bridge leads dragonboat's log lines to the slog.Logger of the oldest open host. dragonboat has one logger per
// process and lines do not say which NodeHost they come from, so with several hosts in a process one gets the
// lines of all.
var bridge logBridge

type logBridge struct {
	install sync.Once
	target  atomic.Pointer[slog.Logger] // of the oldest open host; nil: lines are dropped

	mu struct {
		rank.Mutex[rank.Hosts]
		hosts []*Host // open, oldest first
	}
}

// set makes b the process's factory of loggers. It comes before anything of dragonboat's logs, which keeps the
// logger that it gets first. SetLoggerFactory panics if the process has set a factory already: that one stays.
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
	b.target.Store(b.mu.hosts[0].log)
}

func (b *logBridge) remove(h *Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.hosts = slices.DeleteFunc(b.mu.hosts, func(o *Host) bool { return o == h })
	if len(b.mu.hosts) == 0 {
		b.target.Store(nil)
		return
	}
	b.target.Store(b.mu.hosts[0].log)
}

// failAll throws the switch of every open host: the line does not say whose invariant it was.
func (b *logBridge) failAll(cause error) {
	b.mu.Lock()
	hosts := slices.Clone(b.mu.hosts)
	b.mu.Unlock()
	for _, h := range hosts {
		h.cfg.Disk.Fail(cause)
	}
}

// logLine is the logger of one of dragonboat's packages.
type logLine struct {
	bridge *logBridge
	pkg    string
}

var _ logger.ILogger = (*logLine)(nil)

// dragonboat calls routine what its users need not see, and warns of what happens at every lost connection.
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

// SetLevel does nothing: the slog.Logger decides.
func (l *logLine) SetLevel(logger.LogLevel) {}

func (l *logLine) Debugf(format string, args ...any)   { l.log(levelDebug, format, args) }
func (l *logLine) Infof(format string, args ...any)    { l.log(levelInfo, format, args) }
func (l *logLine) Warningf(format string, args ...any) { l.log(levelWarning, format, args) }
func (l *logLine) Errorf(format string, args ...any)   { l.log(levelError, format, args) }

// Panicf reports a broken invariant. It never returns. On a goroutine of ours it panics, and guard makes an
// error of it. On one of dragonboat's it throws the switches and keeps the goroutine: to let it go on, or to
// run its deferred calls, would continue from the broken state. What broke because a file could not be read concerns
// the node of that file, which has failed by now, and no other.
func (l *logLine) Panicf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if guarded() {
		panic(&brokenError{text: text})
	}
	if unread(args) {
		l.log(slog.LevelError, "a goroutine of a node that failed stays: "+format, args)
		select {}
	}
	l.log(slog.LevelError, "broken invariant, the nodes of this process stop: "+format, args)
	l.bridge.failAll(fmt.Errorf("%w: dragonboat: %s", errBroken, text))
	select {}
}

// unread reports whether one of the arguments of a line is an unreadError.
func unread(args []any) bool {
	return slices.ContainsFunc(args, func(arg any) bool {
		err, ok := arg.(error)
		var cause *unreadError
		return ok && errors.As(err, &cause)
	})
}
