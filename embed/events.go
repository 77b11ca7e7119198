package embed

import (
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// eventsMax bounds the calls that wait for a slow observer. Beyond it the oldest is dropped.
const eventsMax = 1024

// A notifier calls a node's observers one at a time, on a goroutine of its own, so that no observer
// can delay the node.
type notifier struct {
	events Events

	mu struct {
		rank.Mutex[rank.Notifier]
		calls  []func()
		closed bool
	}
	wake *sync.Cond

	dropped meter.Counter // calls that were left out
}

// newNotifier starts the goroutine if there is an observer. close ends it.
func newNotifier(events Events) *notifier {
	n := &notifier{events: events}
	n.wake = sync.NewCond(&n.mu)
	if events.LeaderChanged == nil && events.SessionExpired == nil && events.MembersChanged == nil && events.Restarting == nil {
		n.mu.closed = true
		return n
	}
	go n.loop()
	return n
}

func (n *notifier) loop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		for len(n.mu.calls) == 0 {
			if n.mu.closed {
				return
			}
			n.wake.Wait()
		}
		call := n.mu.calls[0]
		n.mu.calls = n.mu.calls[1:]
		n.mu.Unlock()
		call()
		n.mu.Lock()
	}
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

// close makes the calls that are queued the last ones. It does not wait for them, because an
// observer may be the caller.
func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.closed = true
	n.wake.Signal()
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
