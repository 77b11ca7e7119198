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

// eventsMax bounds the calls that wait for a slow observer. Beyond it the oldest is dropped.
const eventsMax = 1024

// A notifier calls a node's observers one at a time, on a goroutine of its own, so that no observer
// can delay the node, or end its process.
type notifier struct {
	events Events
	log    *slog.Logger
	done   chan struct{} // closed when the loop has ended

	mu struct {
		rank.Mutex[rank.Notifier]
		calls  []func()
		closed bool
	}
	wake *sync.Cond

	dropped meter.Counter // calls that were left out
}

// newNotifier starts the goroutine if there is an observer. close ends it.
func newNotifier(events Events, log *slog.Logger) *notifier {
	n := &notifier{events: events, log: log, done: make(chan struct{})}
	n.wake = sync.NewCond(&n.mu)
	if events.LeaderChanged == nil && events.SessionExpired == nil && events.MembersChanged == nil && events.Restarting == nil {
		n.mu.closed = true
		close(n.done)
		return n
	}
	go n.loop()
	return n
}

// loop makes the calls. After a panic or a runtime.Goexit of one, a new goroutine goes on.
func (n *notifier) loop() {
	over := false
	defer func() {
		if over {
			close(n.done)
			return
		}
		n.log.Error("an observer of Config.Events panicked", "cause", lines.Text(recover()), "stack", string(debug.Stack()))
		go n.loop()
	}()
	for call := n.next(); call != nil; call = n.next() {
		call()
	}
	over = true
}

// next waits for a call. It returns nil when there will be none.
func (n *notifier) next() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.mu.calls) == 0 {
		if n.mu.closed {
			return nil
		}
		n.wake.Wait()
	}
	call := n.mu.calls[0]
	n.mu.calls = n.mu.calls[1:]
	return call
}

func (n *notifier) queue(call func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return
	}
	if len(n.mu.calls) >= eventsMax {
		n.mu.calls = n.mu.calls[1:]
		n.dropped.Inc()
	}
	n.mu.calls = append(n.mu.calls, call)
	n.wake.Signal()
}

// close makes the calls that are queued the last ones, and waits for them. Those that a slow observer
// leaves are dropped. It does not wait for long: an observer may be the caller.
func (n *notifier) close() {
	n.mu.Lock()
	n.mu.closed = true
	n.wake.Signal()
	n.mu.Unlock()
	patience := time.NewTimer(closeLeast)
	defer patience.Stop()
	select {
	case <-n.done:
		return
	case <-patience.C:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropped.Add(uint64(len(n.mu.calls)))
	n.mu.calls = nil
}

func (n *notifier) leaderChanged(id engine.ShardID, l engine.Leader) {
	if fn := n.events.LeaderChanged; fn != nil {
		n.queue(func() { fn(LeaderChange{Shard: int(id), Leader: l.Member, Term: l.Term}) })
	}
}

func (n *notifier) sessionExpired(id SessionID) {
	if fn := n.events.SessionExpired; fn != nil {
		n.queue(func() { fn(id) })
	}
}

func (n *notifier) membersChanged() {
	if fn := n.events.MembersChanged; fn != nil {
		n.queue(fn)
	}
}

func (n *notifier) restarting(cause error, wait time.Duration) {
	if fn := n.events.Restarting; fn != nil {
		n.queue(func() { fn(cause, wait) })
	}
}
