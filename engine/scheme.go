package engine

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// schemePanicPause is how long nothing more is logged of a scheme that has panicked.
const schemePanicPause = time.Minute

// A judge stands between the tree and a scheme of the service. What the scheme panics at, it refuses.
//
// An id in an ACL is a client's choice. A panic at one that is in the log would fail every replica,
// and again at each start. The judge's answer follows from the scheme's alone. So replicas agree on it
// as on every other answer of a scheme that keeps its promise.
type judge struct {
	scheme tree.Scheme
	name   string
	noted  *atomic.Pointer[time.Time] // when a panic was last noted
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

// note has a panic logged, now and then. It is called where the panic happened, so that the stack shows
// it, and perhaps with the machine's mu held, so it does not log.
func (j judge) note(method string, value any) {
	last, now := j.noted.Load(), time.Now()
	if last != nil && now.Sub(*last) < schemePanicPause || !j.noted.CompareAndSwap(last, &now) {
		return
	}
	select {
	case j.due <- schemePanic{j.name, method, value, debug.Stack()}:
	default: // there is one place for each scheme, and the log has been busy for a minute
	}
}

// A schemePanic is one to be logged.
type schemePanic struct {
	scheme, method string
	value          any
	stack          []byte
}

// judges returns the schemes with a judge before each, and the panics that are to be logged.
func judges(schemes tree.Schemes) (tree.Schemes, <-chan schemePanic) {
	judged := make(tree.Schemes, len(schemes))
	due := make(chan schemePanic, len(schemes))
	for name, scheme := range schemes {
		judged[name] = judge{scheme: scheme, name: name, noted: new(atomic.Pointer[time.Time]), due: due}
	}
	return judged, due
}

// schemesLoop logs the panics of schemes until stop is closed. It holds no lock: a logger may ask the node.
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
