package lines

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// waitingMax and waitingBytes bound the lines that wait for a slow logger, and their text. Lines
	// beyond that are only counted: 100,000 sessions may expire at once.
	waitingMax   = 1024
	waitingBytes = 4 << 20
	// askAgain is how long the answer is kept which levels the logger takes. A service may change
	// them at any time.
	askAgain = time.Second
	// flushPoll is how often Flush looks.
	flushPoll = time.Millisecond
)

// A Queue gives lines to a service's handler, in order and one at a time. It has a goroutine only
// while it has something to do, so nobody needs to close it.
//
// Nothing wakes that goroutine but a start of it. Dragonboat's lines come from all nodes of a
// process, and in virtual time no node can wake a goroutine of another.
type Queue struct {
	to   slog.Handler // the service's; only the goroutine calls it
	Lost meter.Counter

	floor atomic.Int64 // the lowest level that the handler takes, as it said last
	asked atomic.Int64 // when it was asked for that last, in Unix nanoseconds

	mu struct {
		rank.Mutex[rank.Lines]
		waiting []line
		bytes   int    // of waiting
		ask     bool   // the handler is to be asked for its levels
		running bool   // there is a goroutine
		left    uint64 // lines that were dropped since the log has said so last
	}

	// Owned by the goroutine.
	now   line // what the handler is called for
	wrote bool // the handler has taken the line before
}

// A line is a record on its way to a handler. If it has no handler, it asks for the levels.
type line struct {
	from   *handler
	record slog.Record
	ctx    context.Context
	lost   uint64 // how many lost lines it tells of
}

// weight returns the bytes of a line's text, as far as no call of a value has to tell them.
func (l *line) weight() int {
	n := len(l.record.Message)
	l.record.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindString {
			n += len(a.Value.String())
		}
		return true
	})
	return n
}

// New returns the queue of a service's handler.
func New(to slog.Handler) *Queue {
	q := &Queue{to: to}
	q.floor.Store(math.MinInt64)
	q.askLevels()
	return q
}

// Logger returns a logger that writes to the queue. It never blocks or panics.
func (q *Queue) Logger() *slog.Logger { return slog.New(&handler{queue: q}) }

// Flush waits until the handler has all lines that wait, but no longer than most.
func (q *Queue) Flush(most time.Duration) {
	look := time.NewTicker(flushPoll)
	defer look.Stop()
	for until := time.Now().Add(most); q.isBusy() && time.Now().Before(until); {
		<-look.C
	}
}

func (q *Queue) isBusy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.running
}

// takes reports whether the handler takes lines of a level, as it said lately. A wrong yes costs
// little, because the handler is asked again for each line.
func (q *Queue) takes(level slog.Level) bool {
	if age := time.Duration(time.Now().UnixNano() - q.asked.Load()); age < 0 || age >= askAgain {
		q.askLevels()
	}
	return int64(level) >= q.floor.Load()
}

// askLevels has the handler asked which levels it takes.
func (q *Queue) askLevels() {
	q.asked.Store(time.Now().UnixNano())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.ask = true
	q.runLocked()
}

func (q *Queue) add(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := l.weight()
	if len(q.mu.waiting) >= waitingMax || q.mu.bytes+n > waitingBytes {
		q.loseLocked(1)
		return
	}
	q.mu.waiting, q.mu.bytes = append(q.mu.waiting, l), q.mu.bytes+n
	q.runLocked()
}

func (q *Queue) loseLocked(n uint64) {
	q.Lost.Inc()
	q.mu.left += n
}

func (q *Queue) runLocked() {
	if !q.mu.running {
		q.mu.running = true
		go q.run()
	}
}

// run calls the handler until there is nothing to do. After a panic or a runtime.Goexit of the
// handler, a new goroutine goes on with the next line.
func (q *Queue) run() {
	idle := false
	defer func() {
		if idle {
			return
		}
		_ = recover() // nil after a Goexit
		q.fail()
		go q.run()
	}()
	for q.next() {
		q.give()
		q.wrote = q.now.from != nil
	}
	idle = true
}

// next takes the next line. It returns false, and ends the goroutine, if there is none.
func (q *Queue) next() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.ask:
		q.mu.ask, q.now, q.wrote = false, line{}, false
	case q.mu.left > 0 && q.wrote:
		q.now.lost, q.mu.left = q.mu.left, 0
	case len(q.mu.waiting) > 0:
		q.now, q.mu.waiting[0] = q.mu.waiting[0], line{}
		q.mu.waiting = q.mu.waiting[1:]
		q.mu.bytes -= q.now.weight()
	default:
		q.mu.waiting, q.now, q.mu.running = nil, line{}, false
		return false
	}
	return true
}

// give calls the handler.
func (q *Queue) give() {
	l := &q.now
	switch {
	case l.from == nil:
		q.floor.Store(q.lowest())
	case l.lost > 0:
		log := slog.New(l.from.made())
		log.Warn("log lines were dropped", "count", l.lost)
	default:
		if to := l.from.made(); to.Enabled(l.ctx, l.record.Level) {
			_ = to.Handle(l.ctx, l.record) // an error has nowhere to go
		}
	}
}

// lowest asks the handler for the lowest level that it takes.
func (q *Queue) lowest() int64 {
	for level := slog.LevelDebug - 4; level <= slog.LevelError; level += 4 {
		if q.to.Enabled(context.Background(), level) {
			return int64(level)
		}
	}
	return math.MaxInt64
}

// fail counts the line that the handler did not take.
func (q *Queue) fail() {
	q.wrote = false
	if q.now.from == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loseLocked(max(1, q.now.lost))
}

// A handler is the side of a queue that the node calls. What a logger adds to all its lines goes to
// the service's handler with the first of them, because that call may hang, too.
type handler struct {
	queue *Queue
	from  *handler // nil: it adds nothing
	attrs []slog.Attr
	group string

	to slog.Handler // of the service, with all that was added; owned by the queue's goroutine
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return h.queue.takes(level) }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	h.queue.add(line{from: h, record: whole(r), ctx: context.WithoutCancel(ctx)})
	return nil
}

// whole returns a copy of a record without the keys that have nothing to say: an empty text, or nil.
func whole(r slog.Record) slog.Record {
	w := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value; v.Kind() == slog.KindString && v.String() == "" || v.Kind() == slog.KindAny && v.Any() == nil {
			return true
		}
		w.AddAttrs(a)
		return true
	})
	return w
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return &handler{queue: h.queue, from: h, attrs: attrs}
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{queue: h.queue, from: h, group: name}
}

// made returns the service's handler with what h adds.
func (h *handler) made() slog.Handler {
	switch {
	case h.to != nil:
	case h.from == nil:
		h.to = h.queue.to
	case h.group != "":
		h.to = h.from.made().WithGroup(h.group)
	default:
		h.to = h.from.made().WithAttrs(h.attrs)
	}
	return h.to
}

// Text is what recover has returned, for a line of a log; nil means a runtime.Goexit. Only the
// queue's goroutine formats it, because its methods may be the service's.
func Text(recovered any) slog.LogValuer {
	if recovered == nil {
		recovered = "it called runtime.Goexit"
	}
	return printed{recovered}
}

type printed struct{ value any }

func (p printed) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(p.value)) }
