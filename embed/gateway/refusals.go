package gateway

import (
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// Kinds of refusals beside those that end a handshake.
var (
	errCrowded    = errors.New("too many connections")
	errCredential = errors.New("a credential proves nothing")
	errChange     = errors.New("a change of the members has failed")
)

// Kinds of troubles that last, and that connections and monitors run into again and again.
var (
	errAccept = errors.New("no connection can be accepted")
	errCensus = errors.New("the sessions cannot be counted")
	errPanic  = errors.New("a connection panicked")
)

// refusalKinds lists the kinds of refusals and troubles. Each is logged at a pace of its own.
var refusalKinds = []error{errCrowded, errCredential, errChange, errThrottled, errSeen,
	errNeedsQuorum, errReattach, errAnyShard, errAccept, errCensus, errPanic}

// refusals limit what the log says of clients that are refused, and of what they run into. Clients
// decide how often that happens, and a storm of them must not fill the log. The zero value has told of
// nothing.
type refusals struct {
	mu    rank.Mutex[rank.Refusals]
	paces map[error]*pace.Pace // by kind
}

// due reports whether a refusal may be logged now, and how many of its kind were held back since
// the last one.
func (r *refusals) due(kind error, now time.Time) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paces == nil {
		r.paces = make(map[error]*pace.Pace)
	}
	if r.paces[kind] == nil {
		r.paces[kind] = new(pace.Pace)
	}
	return r.paces[kind].Due(now)
}

// kindOf returns the kind of the refusal that ended a handshake, or nil if it was another error.
func kindOf(err error) error {
	for _, kind := range refusalKinds {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// logAccept logs that a connection could not be accepted.
func (g *Gateway) logAccept(err error) {
	if held, ok := g.refusals.due(errAccept, time.Now()); ok {
		g.log.Warn("cannot accept a connection, trying again", "cause", err, "repeated", held)
	}
}

// logCensus logs that the sessions could not be counted.
func (g *Gateway) logCensus(err error) {
	if held, ok := g.refusals.due(errCensus, time.Now()); ok {
		g.log.Warn("cannot count the sessions", "cause", err, "repeated", held)
	}
}

// panicked counts a panic of a client's connection, and logs it.
func (c *conn) panicked(cause any, stack string) {
	c.gate.panics.Add(1)
	if held, ok := c.gate.refusals.due(errPanic, time.Now()); ok {
		c.gate.log.Error("a client's connection panicked",
			"client", c.raw.RemoteAddr().String(), "cause", cause, "stack", stack, "repeated", held)
	}
}

// logChange logs that a client's change of the members has failed.
func (c *conn) logChange(err error) {
	if held, ok := c.gate.refusals.due(errChange, time.Now()); ok {
		c.gate.log.Info("a client's change of the members has failed",
			"client", c.raw.RemoteAddr().String(), "cause", err, "repeated", held)
	}
}

// logEnd logs why a connection has ended.
func (c *conn) logEnd(err error) {
	client := c.raw.RemoteAddr().String()
	kind := kindOf(err)
	if kind == nil {
		c.gate.log.Debug("client's connection ended", "client", client, "cause", err)
		return
	}
	if held, ok := c.gate.refusals.due(kind, time.Now()); ok {
		c.gate.log.Debug("client refused", "client", client, "cause", err, "repeated", held)
	}
}
