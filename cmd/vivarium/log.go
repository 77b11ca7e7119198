package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	linesMax = 4096        // of the log that wait to be written; one more is lost
	logEnd   = time.Second // for them to be written when the process ends
)

// newLog returns a log that never waits for whoever reads it: a member that did would stand still, and could not even be told to stop, when
// standard error is a pipe that is full. end writes what is left, as far as it comes in logEnd, and no more after it.
func newLog(w io.Writer, form string, verbose bool) (log *slog.Logger, end func()) {
	options := &slog.HandlerOptions{}
	if verbose {
		options.Level = slog.LevelDebug
	}
	to := func(w io.Writer) *slog.Logger {
		if form == "json" {
			return slog.New(slog.NewJSONHandler(w, options))
		}
		return slog.New(slog.NewTextHandler(w, options))
	}
	q := &lines{waiting: make(chan []byte, linesMax), ending: make(chan struct{}), ended: make(chan struct{})}
	go q.write(w, to(w))
	return to(q), q.end
}

// lines are written by a goroutine of their own.
type lines struct {
	waiting chan []byte
	lost    atomic.Int64
	once    sync.Once
	ending  chan struct{} // closed by end
	ended   chan struct{} // closed when all is written
}

// Write takes a line.
func (q *lines) Write(line []byte) (int, error) {
	select {
	case q.waiting <- bytes.Clone(line):
	default:
		q.lost.Add(1)
	}
	return len(line), nil
}

func (q *lines) write(w io.Writer, log *slog.Logger) {
	defer close(q.ended)
	for {
		select {
		case line := <-q.waiting:
			q.writeOne(w, log, line)
		case <-q.ending:
			for len(q.waiting) > 0 {
				q.writeOne(w, log, <-q.waiting)
			}
			return
		}
	}
}

func (q *lines) writeOne(w io.Writer, log *slog.Logger, line []byte) {
	_, _ = w.Write(line) // there is nowhere to say why it fails
	if len(q.waiting) > 0 {
		return
	}
	if n := q.lost.Swap(0); n > 0 {
		log.Warn("lines were lost: nobody read the log", "count", n)
	}
}

func (q *lines) end() {
	q.once.Do(func() { close(q.ending) })
	select {
	case <-q.ended:
	case <-time.After(logEnd):
	}
}
