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
	linesMax   = 4096        // lines that may wait to be written; further ones are lost
	linesBytes = 16 << 20    // their bytes
	logEnd     = time.Second // time to write the waiting lines when the process ends
)

// newLog returns a log that never waits for its reader. Standard error may be a full pipe. A member
// that waited for it would stand still, and no signal could stop it. The function end writes the
// waiting lines, as many as it can in logEnd, and ends the log.
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

// lines is the queue of lines that a goroutine of its own writes.
type lines struct {
	waiting chan []byte
	bytes   atomic.Int64 // of waiting, and of the line that is being written
	lost    atomic.Int64
	once    sync.Once
	ending  chan struct{} // closed by end
	ended   chan struct{} // closed when all lines are written
}

// Write adds a line to the queue, or counts it as lost if the queue is full.
func (q *lines) Write(line []byte) (int, error) {
	if !q.add(bytes.Clone(line)) {
		q.bytes.Add(-int64(len(line)))
		q.lost.Add(1)
	}
	return len(line), nil
}

// add counts a line, and queues it if it fits.
func (q *lines) add(line []byte) bool {
	if q.bytes.Add(int64(len(line))) > linesBytes {
		return false
	}
	select {
	case q.waiting <- line:
		return true
	default:
		return false
	}
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
	_, _ = w.Write(line) // an error has nowhere to go
	q.bytes.Add(-int64(len(line)))
	if len(q.waiting) > 0 {
		return
	}
	if n := q.lost.Swap(0); n > 0 {
		log.Warn("log lines were lost: nobody read them", "count", n)
	}
}

func (q *lines) end() {
	q.once.Do(func() { close(q.ending) })
	select {
	case <-q.ended:
	case <-time.After(logEnd):
	}
}
