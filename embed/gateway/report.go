package gateway

import (
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Report has what the four-letter words tell, as data: for programs in the process.
type Report struct {
	// Monitor has the keys of mntr, without "zk_". Numbers are numbers.
	Monitor     map[string]any
	Connections []Connection
}

// A Connection is a client's connection to a gateway, as cons shows it.
type Connection struct {
	Client         string // host:port
	Outstanding    int    // answers that are not sent yet
	Received, Sent int64
	Established    time.Time
	// Session is zero while the client has none. Then what follows is zero too.
	Session       embed.SessionID
	Timeout       time.Duration
	LastOperation string // as cons names it; "NA" before the first
	LastCxid      int32
	LastZxid      embed.Zxid
	LastAnswer    time.Time
	LastLatency   time.Duration
	// LeastLatency, MeanLatency and MostLatency are milliseconds.
	LeastLatency, MeanLatency, MostLatency int64
	Watched                                []string // paths whose data is watched
}

// Report returns what the gateway's words tell. Config.Words does not matter. Report waits for a
// shard that stands still, for Config.RequestTimeout at most.
func (g *Gateway) Report() Report {
	r := Report{Monitor: make(map[string]any)}
	g.monitor(func(key string, value any) { r.Monitor[key] = value })
	for _, c := range g.connections() {
		r.Connections = append(r.Connections, c.report())
	}
	return r
}

// A Watching is what the client of one connection watches.
type Watching struct {
	Client  string // host:port
	Session embed.SessionID
	Paths   []string // whose data is watched
}

// Watched returns up to n paths that clients watch, by connection, the oldest first. It reports
// whether there are more. It waits for nothing.
func (g *Gateway) Watched(n int) (list []Watching, more bool) {
	for _, c := range g.connections() {
		c.mu.Lock()
		s := c.session
		c.mu.Unlock()
		if s == nil || c.watches.Len() == 0 {
			continue
		}
		if n == 0 {
			return list, true
		}
		paths := c.watches.Paths()
		shown := paths[:min(n, len(paths))]
		n -= len(shown)
		more = more || len(shown) < len(paths)
		if len(shown) > 0 {
			list = append(list, Watching{c.raw.RemoteAddr().String(), s.ID(), shown})
		}
	}
	return list, more
}

func (c *conn) report() Connection {
	c.mu.Lock()
	s, last, queued := c.session, c.last, len(c.queue)-c.head
	c.mu.Unlock()
	r := Connection{Client: c.raw.RemoteAddr().String(), Outstanding: queued, Received: c.figures.received.Load(), Sent: c.figures.sent.Load(),
		Established: c.arrived}
	if s == nil {
		return r
	}
	r.Session, r.Timeout, r.LastOperation = s.ID(), s.Timeout(), "NA"
	if op := opNames[last.op]; !last.at.IsZero() && op != "" {
		r.LastOperation = op
	}
	r.LastZxid, r.LastAnswer, r.LastLatency = embed.Zxid(last.zxid), last.at, last.latency
	if last.xid >= 0 {
		r.LastCxid = last.xid
	}
	least, mean, most := c.figures.latency()
	r.LeastLatency, r.MeanLatency, r.MostLatency = least, int64(mean), most
	r.Watched = c.watches.Paths()
	return r
}
