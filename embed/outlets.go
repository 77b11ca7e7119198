package embed

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/internal/lines"
)

// closeLeast is how long closing waits at least for each of a service's functions that are slow.
const closeLeast = time.Second

// outlets are what a node calls of its service while it runs: its Logger, Events and Audit. Each
// has a goroutine of its own, so none can delay the node, or end its process.
type outlets struct {
	log    *lines.Queue
	events *notifier
	audit  *auditor // nil: there is no Audit
}

// newOutlets returns the outlets of a Config. close ends them.
func newOutlets(c Config) outlets {
	queue := newLines(c)
	log := queue.Logger()
	return outlets{queue, newNotifier(c.Events, log), newAuditor(c, log)}
}

func newLines(c Config) *lines.Queue { return lines.New(or(c.Logger, slog.Default()).Handler()) }

// close waits for what the service's functions have not got yet, until a time or a little longer.
// The log comes last, because it tells of the others.
func (o outlets) close(until time.Time) {
	o.events.close()
	o.audit.close(until)
	o.log.Flush(closeLeast)
}
