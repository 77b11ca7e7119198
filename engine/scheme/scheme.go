package scheme

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/lines"
	"github.com/vivarium-go/vivarium/tree"
)

// PanicPause is the least time between two log lines about the panics of one scheme.
const PanicPause = time.Minute

// A judge stands between the tree and a scheme of the service. If the scheme panics, the answer is
// no.
//
// Clients choose the ids in ACLs. If an id in the log made a scheme panic, it would fail every
// replica, and again at each start. The judge's answer depends on the scheme alone. So replicas
// agree on it, as long as the scheme itself gives the same answer, or panic, everywhere.
type judge struct {
	scheme tree.Scheme
	name   string
	noted  *atomic.Pointer[time.Time] // when a panic was logged last
	log    *slog.Logger
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

// note logs a panic, at most once per PanicPause. It runs where the panic happened, so that the
// stack shows it.
func (j judge) note(method string, value any) {
	last, now := j.noted.Load(), time.Now()
	if last != nil && now.Sub(*last) < PanicPause || !j.noted.CompareAndSwap(last, &now) {
		return
	}
	j.log.Error("an authentication scheme panicked, which counts as no", "scheme", j.name,
		"method", method, "cause", lines.Text(value), "stack", string(debug.Stack()))
}

// Judges returns the schemes, each behind a judge.
func Judges(schemes tree.Schemes, log *slog.Logger) tree.Schemes {
	judged := make(tree.Schemes, len(schemes))
	for name, scheme := range schemes {
		judged[name] = judge{scheme: scheme, name: name, noted: new(atomic.Pointer[time.Time]), log: log}
	}
	return judged
}
