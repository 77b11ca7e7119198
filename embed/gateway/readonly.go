package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// readOnlyAfter is how long a member must have known no leader before the read-only mode begins, or
// a tick if that is longer. It is ZooKeeper's.
const readOnlyAfter = 2 * time.Second

// readOnly is the read-only mode of a gateway. It looks at one thing only: whether this member knows
// a leader. Whether sessions are Suspended does not matter to it, and it changes no session.
//
//	       no leader for two seconds
//	off -----------------------------> on
//	    <-----------------------------
//	       a leader is known, or a session of the ensemble was opened or reattached
//
// On the way back, all connections that may only read are ended before anything else happens. So no
// handshake gives out a session of the ensemble while such a connection is open.
type readOnly struct {
	gate  *Gateway      // nil: Config.ReadOnly is off
	after time.Duration // see readOnlyAfter

	mu      rank.Mutex[rank.ReadOnly]
	looked  time.Time          // when the loop or a handshake last looked
	since   time.Time          // when a leader was last known, or the gateway started
	clients map[*conn]struct{} // the connections that may only read; nil while the mode is off
}

// begin has the mode begin and end as it should, if the configuration allows it.
func (r *readOnly) begin(g *Gateway) {
	if !g.cfg.ReadOnly {
		return
	}
	r.gate, r.since, r.after = g, time.Now(), max(readOnlyAfter, g.node.Config.Tick)
	r.looked = r.since
	g.goroutines.Go(func() {
		tick := time.NewTicker(g.node.Config.Tick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.look()
			case <-g.ctx.Done():
				return
			}
		}
	})
}

// look lets the mode begin or end, and reports whether it is on.
func (r *readOnly) look() bool {
	if r.gate == nil {
		return false
	}
	now := time.Now() // before the question: what another goroutine finds out meanwhile is newer
	leads := r.gate.serving()
	log := func() {} // not under the lock, for which every handshake waits
	r.mu.Lock()
	defer func() { r.mu.Unlock(); log() }()
	if now.Sub(r.looked) >= r.after && r.clients == nil {
		r.since = now // the process has slept: a leader may just not have been heard yet
	}
	r.looked = now
	switch {
	case leads:
		log = r.endLocked()
	case r.clients == nil && now.Sub(r.since) >= r.after:
		r.clients = make(map[*conn]struct{})
		since := r.since
		log = func() { r.gate.log.Warn("read-only mode begins: no leader is known", "since", since) }
	}
	return r.clients != nil
}

// end ends the mode. The caller knows that there is a quorum.
func (r *readOnly) end() {
	if r.gate == nil {
		return
	}
	r.mu.Lock()
	log := r.endLocked()
	r.mu.Unlock()
	log()
}

// endLocked ends the mode, and all connections that may only read. It returns what logs that.
func (r *readOnly) endLocked() (log func()) {
	r.since = time.Now()
	if r.clients == nil {
		return func() {}
	}
	n := len(r.clients)
	for c := range r.clients {
		c.drop()
	}
	r.clients = nil
	return func() { r.gate.log.Info("read-only mode ends", "clients", n) }
}

// on reports whether the mode is on.
func (r *readOnly) on() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients != nil
}

// count returns how many connections may only read.
func (r *readOnly) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}

// admit makes a connection one that may only read. It returns false if the mode is off.
func (r *readOnly) admit(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients == nil {
		return false
	}
	r.clients[c] = struct{}{}
	return true
}

// forget removes a connection that is not served any more.
func (r *readOnly) forget(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.clients, c)
}

// Why a client is turned away in read-only mode.
var (
	errNeedsQuorum = errors.New("no leader is known, and the client does not accept a session that only reads")
	errReattach    = errors.New("no leader is known, so the client's session cannot be reattached")
	errAnyShard    = errors.New("the client has seen a zxid, which says nothing about most of the shards")
)

// handshakeReadOnly answers the connect request in read-only mode.
func (c *conn) handshakeReadOnly(q *wire.ConnectRequest, timeout time.Duration) (result, error) {
	a := wire.ConnectResponse{Old: q.Old, Password: make([]byte, 16)}
	id := tree.SessionID(q.SessionID)
	switch {
	case !q.ReadOnly:
		return resultFailed, errNeedsQuorum
	case ofReading(id):
		return resultExpired, errors.Join(c.say(a.AppendFrame(nil)), errEnded)
	case id != 0:
		// It may live on, and its client must not believe that it lost it. Reads that do not belong
		// to it would make the client forget it.
		return resultFailed, errReattach
	case c.gate.node.Config.Shards > 1 && q.LastZxid > 0:
		return resultFailed, errAnyShard
	}
	if err := c.gate.checkSeen(q.LastZxid); err != nil {
		return resultFailed, err
	}
	s := c.gate.newReading(timeout, c.identities)
	if _, _, err := s.Exists("/"); err != nil { // it has no state to show yet, or has ended
		return resultFailed, err
	}
	if !c.gate.readOnly.admit(c) {
		return resultFailed, fmt.Errorf("the read-only mode has ended meanwhile")
	}
	a.SessionID, a.Timeout, a.ReadOnly = int64(s.id), int32(s.timeout.Milliseconds()), true
	if err := c.send(a.AppendFrame(nil)); err != nil {
		return resultFailed, err
	}
	c.attach(s, true)
	return resultReadOnly, nil
}

// A reading is the session of a client in read-only mode. It belongs to its connection alone: the
// ensemble does not know it, it owns nothing, and it ends with the connection. Its methods other
// than ID and Timeout are for the reader.
type reading struct {
	engine.Peek
	gate    *Gateway
	id      tree.SessionID
	timeout time.Duration
}

// readingBit is set in the ids of readings. No session of the ensemble has it: its id is the zxid
// that opened it, and zxids do not come that far.
const readingBit tree.SessionID = 1 << 62

// ofReading reports whether an id is that of a reading, of any member.
func ofReading(id tree.SessionID) bool { return id > 0 && id&readingBit != 0 }

// newReading returns a reading. Its id is chosen at random, because members that hear of no other
// cannot agree on one.
func (g *Gateway) newReading(timeout time.Duration, who []tree.Identity) *reading {
	cfg := &g.node.Config
	return &reading{
		Peek: g.node.Engine.Peek(who...), gate: g,
		id:      readingBit | tree.SessionID(rand.Int64N(int64(readingBit))),
		timeout: min(max(timeout, cfg.MinSessionTimeout), cfg.MaxSessionTimeout),
	}
}

func (r *reading) ID() tree.SessionID     { return r.id }
func (r *reading) Timeout() time.Duration { return r.timeout }

// CurrentState is always Connected: no deadline of the ensemble applies to a reading.
func (r *reading) CurrentState() embed.State { return embed.Connected }

func (r *reading) OnStateChange(func()) {}
func (r *reading) Heard()               {}
func (r *reading) Busy(bool)            {}

// Ephemerals returns none, because a reading can create none.
func (r *reading) Ephemerals(context.Context, string) ([]string, error) { return nil, nil }

func (r *reading) SetIdentities(_ context.Context, who ...tree.Identity) error {
	r.Peek = r.gate.node.Engine.Peek(who...)
	return nil
}

func (r *reading) Close() error { return nil }
func (r *reading) Err() error   { return nil }
