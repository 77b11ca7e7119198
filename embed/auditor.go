package embed

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/lines"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// auditMax and auditBytes bound the records that wait for a slow Config.Audit.
	auditMax   = 1 << 16
	auditBytes = 64 << 20
	// auditKeep is for how many of them the memory is kept once none waits.
	auditKeep = 1 << 12
	// auditPause is the least time between two log lines about the same trouble of Config.Audit.
	auditPause = time.Minute
)

// An auditor gives the records of a node to Config.Audit, one at a time, on a goroutine of its own.
// So no Audit can delay the node, or end its process.
type auditor struct {
	// Immutable.
	sink func(AuditRecord)
	log  *slog.Logger
	wait time.Duration // how long close waits at most
	wake *sync.Cond
	done chan struct{} // closed when the loop has ended

	mu struct {
		rank.Mutex[rank.Auditor]
		waiting []engine.Audited
		head    int    // where the oldest of waiting is
		bytes   int    // of those that wait
		lost    uint64 // how many were left out after the last one that waits
		closed  bool
	}

	given, dropped meter.Counter

	// Owned by the loop.
	lost           uint64 // how many were left out and not logged
	slow, panicked time.Time
}

// newAuditor starts the goroutine; close ends it. It returns nil if there is no Audit.
func newAuditor(c Config, log *slog.Logger) *auditor {
	if c.Audit == nil {
		return nil
	}
	a := &auditor{sink: c.Audit, log: log, wait: or(c.RequestTimeout, DefaultRequestTimeout), done: make(chan struct{})}
	a.wake = sync.NewCond(&a.mu)
	go a.loop()
	return a
}

// record queues a record. It does not block. Engines call it with the lock of a shard held.
func (a *auditor) record(r engine.Audited) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.mu.closed:
		return
	case len(a.mu.waiting)-a.mu.head >= auditMax || a.mu.bytes+auditWeight(&r) > auditBytes:
		a.mu.lost++
		a.dropped.Inc()
		return
	case a.mu.lost > 0:
		a.appendLocked(a.takeLostLocked())
	}
	a.appendLocked(r)
	a.wake.Signal()
}

// appendLocked appends a record. While the loop keeps up, it allocates nothing.
func (a *auditor) appendLocked(r engine.Audited) {
	if w := a.mu.waiting; len(w) == cap(w) && a.mu.head > len(w)/2 {
		n := copy(w, w[a.mu.head:])
		clear(w[n:])
		a.mu.waiting, a.mu.head = w[:n], 0
	}
	a.mu.waiting = append(a.mu.waiting, r)
	a.mu.bytes += auditWeight(&r)
}

// auditWeight returns about how many bytes a record takes.
func auditWeight(r *engine.Audited) int {
	n := 256 + len(r.Path)
	for i := range r.Identities {
		n += 32 + len(r.Identities[i].ID)
	}
	for i := range r.ACL {
		n += 40 + len(r.ACL[i].ID)
	}
	return n
}

// takeLostLocked returns the record of those that were left out.
func (a *auditor) takeLostLocked() engine.Audited {
	n := a.mu.lost
	a.mu.lost = 0
	return engine.Audited{Op: engine.AuditGap, Why: "the audit was too slow", Lost: n, Wall: time.Now().UnixMilli()}
}

// loop calls the Audit. After a panic or a runtime.Goexit of one call, a new goroutine goes on.
func (a *auditor) loop() {
	over := false
	defer func() {
		if over {
			close(a.done)
			return
		}
		a.tellPanic(recover())
		go a.loop()
	}()
	for r, ok := a.next(); ok; r, ok = a.next() {
		a.tellSlow(&r)
		a.sink(newAuditRecord(&r))
		a.given.Inc()
	}
	over = true
}

// next waits for a record. It returns false when there will be none.
func (a *auditor) next() (engine.Audited, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.mu.waiting) == a.mu.head {
		switch {
		case a.mu.lost > 0:
			return a.takeLostLocked(), true
		case a.mu.closed:
			return engine.Audited{}, false
		}
		a.wake.Wait()
	}
	r := a.mu.waiting[a.mu.head]
	a.mu.waiting[a.mu.head] = engine.Audited{}
	a.mu.bytes -= auditWeight(&r)
	if a.mu.head++; a.mu.head == len(a.mu.waiting) {
		a.mu.waiting, a.mu.head = a.mu.waiting[:0], 0
		if cap(a.mu.waiting) > auditKeep {
			a.mu.waiting = nil
		}
	}
	return r, true
}

// tellPanic counts a record that the Audit did not take, and logs why.
func (a *auditor) tellPanic(value any) {
	a.dropped.Inc()
	if now := time.Now(); a.panicked.IsZero() || now.Sub(a.panicked) >= auditPause {
		a.panicked = now
		a.log.Error("Config.Audit panicked, so a record is lost", "cause", lines.Text(value), "stack", string(debug.Stack()))
	}
}

// tellSlow logs that records were left out, if the record says so.
func (a *auditor) tellSlow(r *engine.Audited) {
	if r.Lost == 0 {
		return
	}
	a.lost += r.Lost
	if now := time.Now(); a.slow.IsZero() || now.Sub(a.slow) >= auditPause {
		a.log.Warn("audit records were left out, because Config.Audit is slow", "count", a.lost)
		a.slow, a.lost = now, 0
	}
}

// close makes the records that wait the last ones, and waits for them until a time, or closeLeast if
// that is later. Those that a slow Audit leaves are dropped. A nil auditor has none.
func (a *auditor) close(until time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.mu.closed = true
	a.wake.Signal()
	a.mu.Unlock()
	patience := time.NewTimer(min(a.wait, max(time.Until(until), closeLeast)))
	defer patience.Stop()
	select {
	case <-a.done:
	case <-patience.C:
		a.dropAll()
	}
}

// dropAll drops the records that wait.
func (a *auditor) dropAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped.Add(uint64(len(a.mu.waiting) - a.mu.head))
	a.mu.waiting, a.mu.head, a.mu.bytes, a.mu.lost = nil, 0, 0, 0
}

// counts returns how many records the Audit was given, and how many were left out.
func (a *auditor) counts() (given, dropped uint64) { return a.given.Read(), a.dropped.Read() }
