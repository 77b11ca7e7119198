package gateway

import (
	"iter"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/sampling"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// meters count for the metrics. Unlike figures they are never reset.
type meters struct {
	received, sent meter.Counter // bytes, without those of TLS
	seconds        [classes]meter.Histogram
	failed         [classes]meter.Counter
	requests       [len(operations)]meter.Counter
	handshakes     [results]meter.Counter
	heldUp         meter.Counter // new sessions that waited for Config.Handshakes
	turnedAway     meter.Counter // new sessions that would have waited for too long
	watchesRefused meter.Counter // requests beyond Config.Watches
}

// A class of requests.
type class int

const (
	classRead class = iota
	classWrite
	classOther // pings, watches, authentication, the end of a session
	classes    // how many there are
)

func (c class) String() string { return [...]string{"read", "write", "other"}[c] }

// A result of a handshake.
type result int

const (
	resultNew        result = iota // a session was opened
	resultReattached               // a session was attached to this member
	resultReadOnly                 // a session was opened that only reads
	resultExpired                  // the client was told that its session has expired
	resultFailed                   // the connection was ended
	results                        // how many there are
)

func (r result) String() string {
	return [...]string{"new", "reattached", "readonly", "expired", "failed"}[r]
}

// classOf returns the class of an answered request.
func classOf(a *answer) class {
	switch a.reply.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpMulti, wire.OpReconfig:
		return classWrite
	case wire.OpNative:
		if k := a.reply.Native.Kind; k == wire.NativeSubmit || k == wire.NativeRelease {
			return classWrite
		}
	}
	if a.readOnly || a.reply.Op == wire.OpSync || a.reply.Op == wire.OpGetEphemerals {
		return classRead
	}
	return classOther
}

// operations are the requests that are counted apart. The first one is any other.
var operations = [...]struct {
	name string
	ops  []wire.Op
}{
	{"other", nil},
	{"create", []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL}},
	{"delete", []wire.Op{wire.OpDelete}},
	{"set_data", []wire.Op{wire.OpSetData}},
	{"set_acl", []wire.Op{wire.OpSetACL}},
	{"multi", []wire.Op{wire.OpMulti}},
	{"reconfig", []wire.Op{wire.OpReconfig}},
	{"exists", []wire.Op{wire.OpExists}},
	{"get_data", []wire.Op{wire.OpGetData}},
	{"get_acl", []wire.Op{wire.OpGetACL}},
	{"get_children", []wire.Op{wire.OpGetChildren, wire.OpGetChildren2}},
	{"get_all_children_number", []wire.Op{wire.OpGetAllChildrenNumber}},
	{"get_ephemerals", []wire.Op{wire.OpGetEphemerals}},
	{"multi_read", []wire.Op{wire.OpMultiRead}},
	{"sync", []wire.Op{wire.OpSync}},
	{"ping", []wire.Op{wire.OpPing}},
	{"auth", []wire.Op{wire.OpAuth, wire.OpSASL}},
	{"who_am_i", []wire.Op{wire.OpWhoAmI}},
	{"set_watches", []wire.Op{wire.OpSetWatches, wire.OpSetWatches2}},
	{"add_watch", []wire.Op{wire.OpAddWatch}},
	{"check_watches", []wire.Op{wire.OpCheckWatches}},
	{"remove_watches", []wire.Op{wire.OpRemoveWatches}},
	{"close_session", []wire.Op{wire.OpCloseSession}},
	{"native", []wire.Op{wire.OpNative}},
}

// operationOf has the place of each operation among operations.
var operationOf = func() map[wire.Op]int {
	at := make(map[wire.Op]int)
	for i, o := range operations {
		for _, op := range o.ops {
			at[op] = i
		}
	}
	return at
}()

// answered counts an answer that is about to be sent, and returns its class.
func (m *meters) answered(a *answer, after time.Duration) class {
	c := classOf(a)
	m.seconds[c].Observe(after)
	if a.reply.Err != 0 {
		m.failed[c].Inc()
	}
	m.requests[operationOf[a.reply.Op]].Inc()
	return c
}

// Samples returns the gateway's metrics, read anew at each use. It makes the gateway a
// metrics.Source. docs/metrics.md says what each is for. Samples works at any time, also after
// Close, and waits for nobody.
func (g *Gateway) Samples() iter.Seq[metrics.Sample] {
	return sampling.Samples(func(to *sampling.To) {
		g.mu.Lock()
		connections := len(g.conns)
		g.mu.Unlock()
		m := &g.meters
		to.Gauge("gateway_connections", "Open connections of clients.", float64(connections))
		to.Is("gateway_readonly", "1 while the gateway is in read-only mode.", g.readOnly.on())
		to.Gauge("gateway_outstanding",
			"Requests of clients that were read and are not answered.",
			float64(g.outstanding.Load()))
		to.Gauge("gateway_held_bytes",
			"What Config.Memory bounds: requests, answers, events and watches of all connections.",
			float64(g.held.Load()))
		const bytes = "Bytes that clients sent, and that were sent to them."
		to.Counter("gateway_bytes_total", bytes, m.received.Read(), "direction", "received")
		to.Counter("gateway_bytes_total", bytes, m.sent.Read(), "direction", "sent")
		to.Counter("gateway_refused_total",
			"Connections that were closed because there were too many.",
			uint64(g.refused.Load()))
		to.Counter("gateway_auth_failures_total",
			"Credentials of clients that were refused.", uint64(g.authFailed.Load()))
		if u, ok := g.cfg.SASL.(*users); ok {
			to.Counter("gateway_users_reload_failures_total",
				"Readings of the file of users that changed nothing, because it could not be used.",
				u.failures.Read())
		}
		for r := range results {
			to.Counter("gateway_handshakes_total",
				"Handshakes of clients, by how they ended.",
				m.handshakes[r].Read(), "result", r.String())
		}
		const throttled = "New sessions that the bound on them delayed, or refused."
		to.Counter("gateway_throttled_sessions_total", throttled, m.heldUp.Read(), "result", "delayed")
		to.Counter("gateway_throttled_sessions_total", throttled, m.turnedAway.Read(), "result", "refused")
		to.Counter("gateway_refused_watches_total",
			"Requests of clients that would have added a watch beyond the bound.",
			m.watchesRefused.Read())
		for c := range classes {
			to.Histogram("gateway_request_seconds",
				"How long requests of clients took, from reading them until their answers were sent.",
				&m.seconds[c], "class", c.String())
			to.Counter("gateway_errors_total",
				"Requests that were answered with an error code, such as that of a missing znode.",
				m.failed[c].Read(), "class", c.String())
		}
		for i := range operations {
			to.Counter("gateway_requests_total",
				"Requests that were answered, by operation.",
				m.requests[i].Read(), "op", operations[i].name)
		}
		to.Certificates(g.tls, "gateway")
	})
}
