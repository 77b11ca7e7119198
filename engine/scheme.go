package engine

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// schemePanicPause is the least time between two log lines about the panics of one scheme.
const schemePanicPause = time.Minute

// A judge stands between the tree and a scheme of the service. If the scheme panics, the answer is
// no.
//
// Clients choose the ids in ACLs. If an id in the log made a scheme panic, it would fail every
// replica, and again at each start. The judge's answer depends on the scheme alone. So replicas
// agree on it, as long as the scheme itself gives the same answer, or panic, everywhere.
type judge struct {
	scheme tree.Scheme
	name   string
	noted  *atomic.Pointer[time.Time] // when a panic was last noted for the log
	due    chan<- schemePanic
}

func (j judge) Valid(id string) (ok bool) {
	defer j.contain("Valid", &ok)
	return j.scheme.Valid(id)
}

func (j judge) Matches(identity, id string) (ok bool) {
	defer j.contain("Matches", &ok)
	return j.scheme.Matches(identity, id)
}

func (j judge) Expands() (ok bool) {
	defer j.contain("Expands", &ok)
	return j.scheme.Expands()
}

// contain turns a panic of the method that defers it into a no.
func (j judge) contain(method string, ok *bool) {
	if r := recover(); r != nil {
		*ok = false
		j.note(method, r)
	}
}

// note queues a panic for the log, at most once per schemePanicPause. It runs where the panic
// happened, so that the stack shows it. The replica's mu may be held there, so note itself logs
// nothing.
func (j judge) note(method string, value any) {
	last, now := j.noted.Load(), time.Now()
	if last != nil && now.Sub(*last) < schemePanicPause || !j.noted.CompareAndSwap(last, &now) {
		return
	}
	select {
	case j.due <- schemePanic{j.name, method, value, debug.Stack()}:
	default: // the channel has one place per scheme, so the log has been busy for a minute
	}
}

// A schemePanic is a panic to be logged.
type schemePanic struct {
	scheme, method string
	value          any
	stack          []byte
}

// judges returns the schemes, each behind a judge, and the channel of panics to log.
func judges(schemes tree.Schemes) (tree.Schemes, <-chan schemePanic) {
	judged := make(tree.Schemes, len(schemes))
	due := make(chan schemePanic, len(schemes))
	for name, scheme := range schemes {
		judged[name] = judge{scheme: scheme, name: name, noted: new(atomic.Pointer[time.Time]), due: due}
	}
	return judged, due
}

// schemesLoop logs the panics of schemes until stop is closed. It holds no lock, because the
// service's logger may call the node.
func schemesLoop(log *slog.Logger, due <-chan schemePanic, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case p := <-due:
			log.Error("an authentication scheme panicked, which counts as no", "scheme", p.scheme,
				"method", p.method, "cause", fmt.Sprint(p.value), "stack", string(p.stack))
		}
	}
}
