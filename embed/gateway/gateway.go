package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/crowd"
	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// Defaults of Config. Those for connections per address and outstanding requests are ZooKeeper's, and
// so is DefaultFrameSize, the least default of the frame size.
const (
	DefaultConnectionsPerAddress = 60
	DefaultConnections           = 10_000
	DefaultHandshakes            = 2000
	DefaultFrameSize             = wire.FrameMax
	DefaultOutstanding           = 1000
	DefaultWriteTimeout          = 10 * time.Second
	DefaultFirstFrame            = 10 * time.Second
	DefaultWatchBytes            = 64 << 20
	DefaultMemory                = 512 << 20
)

// frameRoom is what the largest create takes beside its data: a path of 64 KiB, an ACL of 64 KiB with
// 100 entries, and their lengths.
const frameRoom = 160 << 10

// Config says where a gateway listens and what it allows. All fields except Listen may be zero.
type Config struct {
	// Listen is the address for clients, such as ":2181" or "127.0.0.1:0".
	Listen string `yaml:"listen"`
	// TLS encrypts and authenticates the clients' connections. Nil means plain text, which anyone on
	// the way can read and change.
	TLS *TLS `yaml:"tls"`

	// ConnectionsPerAddress bounds the connections from one address, Connections bounds all of
	// them. Of IPv6, a network of 64 bits counts as one address. At a bound, a newcomer takes the
	// place of a connection that has not asked for a session, or with RequireSASL has not proved
	// who it is: the oldest of them. If there is none, the newcomer is closed. Zero means
	// DefaultConnectionsPerAddress and DefaultConnections. A negative number means no bound of its
	// own. The process may not be able to open so many files beside those that the node needs. Then
	// the bound is what it can, and Start logs a warning.
	ConnectionsPerAddress int `yaml:"connectionsPerAddress"`
	Connections           int `yaml:"connections"`
	// Handshakes bounds the new sessions of the ensemble that clients may open, per second. As many
	// may come at once after a quiet second. A client beyond that waits for up to a second. If it
	// would have to wait longer, its connection is closed, and it may try again or elsewhere. A
	// client that comes back to its session never waits. One that names a session of somebody else
	// costs the ensemble no entry of its log. Keep it well above ConnectionsPerAddress:
	// otherwise one address can keep all others out. Zero means DefaultHandshakes. A negative number
	// means no bound.
	Handshakes int `yaml:"handshakes"`
	// FrameSize bounds the bytes of a request. A connection with a longer request is closed. Zero
	// means DefaultFrameSize, or what it takes to create a znode of the node's MaxDataSize with any
	// path and ACL, if that is more. MaxDataSize bounds the data of znodes as well.
	FrameSize int `yaml:"frameSize"`
	// Outstanding bounds the requests that were read and are not answered yet. It applies to each
	// connection, and to all of them together. At the bound, no more requests are read, except that
	// every connection may have one. Zero means DefaultOutstanding.
	Outstanding int `yaml:"outstanding"`
	// WatchBytes bounds the memory for the watches of one connection: their paths, and 256 bytes
	// more for each. A connection that needs more is ended. Zero means DefaultWatchBytes.
	WatchBytes int `yaml:"watchBytes"`
	// Watches bounds the number of watches of one connection. A path counts once for its data, once
	// for its children, and once if all below it is watched; a persistent watch is the first two. A
	// request that would add another gets BadArguments, and adds none. A setWatches that would go
	// beyond it ends the connection, because clients do not look at its answer. Zero means no bound.
	Watches int `yaml:"watches"`
	// Memory bounds what all connections hold: frames that are being read, requests with all that is
	// made of them, answers and events that are not sent yet, and watches. Beyond the bound, the
	// gateway ends the connections that hold most, and logs it; meanwhile requests wait, for up to a
	// second. Zero means DefaultMemory. Memory covers what clients ask for. It does not cover the
	// 12 KiB or so that every idle connection takes, and as much again in the middle of a request.
	Memory int `yaml:"memory"`
	// WriteTimeout is how long a client may take to read what is sent to it. After that its
	// connection is closed. Zero means DefaultWriteTimeout.
	WriteTimeout time.Duration `yaml:"writeTimeout"`
	// FirstFrame is how long a new connection may take to send its first request, including TLS's
	// handshake. Zero means DefaultFirstFrame.
	FirstFrame time.Duration `yaml:"firstFrame"`
	// ReadOnly serves reads while the ensemble has no quorum, to clients that ask for it: Java's
	// canBeReadOnly, kazoo's read_only. It begins when this member has known no leader for two
	// seconds, or for a tick if that is longer. docs/zookeeper-clients.md says what such a client
	// can do. Off by default.
	ReadOnly bool `yaml:"readOnly"`
	// Words are the four-letter words that the gateway answers, out of cons, conf, crst, dirs,
	// dump, envi, gtmk, isro, mntr, ruok, srst, srvr, stat, wchc, wchp and wchs. "*" means all of
	// them. Nil means "srvr", and with ReadOnly "isro" too, as in ZooKeeper.
	Words []string `yaml:"words"`

	// Advertise is the host:port at which clients reach this gateway; the port is a number. The list
	// of members in /zookeeper/config shows it. Some clients, such as Curator's, read that list and
	// from then on connect to the addresses in it, and to no others. So set it on all members, to
	// addresses that every client can reach, or on none. Empty means that the list has no address
	// for clients of this member.
	// A node has at most one gateway with it.
	Advertise string `yaml:"advertise"`
	// Reconfig lets clients change the members with ZooKeeper's reconfig: remove members, and let
	// learners vote. Such a client needs Write on /zookeeper/config, as a session of
	// embed.Config.SuperDigest has it.
	Reconfig bool `yaml:"reconfig"`

	// SASL lets clients prove who they are by a mechanism, such as DigestMD5. Nil means that there
	// is no SASL. Set embed.Config.Schemes["sasl"] to SASL() on all members, so that ACLs can name
	// such clients.
	SASL Mechanism `yaml:"-"`
	// SASLUsers is a file with the users of DigestMD5, in place of SASL. It has a line for each,
	// user:zk-sasl-md5:HA1, as UserLine writes it. Empty lines and lines that begin with # count for
	// nothing. The gateway reads the file at Start, then once a minute, and for ReloadUsers. A file
	// that Start would refuse changes nothing, and the log says so. Whoever can read the file can
	// log in as its users. A user who is taken out stays until the connection ends. To change the
	// file, rename another one to its name: one that is being written may be read half done.
	SASLUsers string `yaml:"saslUsers"`
	// RequireSASL ends the connection of a client that asks for anything before it has
	// authenticated by SASL. Identities of other kinds do not count. Four-letter words are answered
	// as ever.
	RequireSASL bool `yaml:"requireSASL"`
}

// TLS says how clients' connections are encrypted. Set either Config or the files.
type TLS struct {
	// Config needs Certificates, GetCertificate or GetConfigForClient. To use client certificates
	// as identities, set ClientCAs and a ClientAuth of VerifyClientCertIfGiven or
	// RequireAndVerifyClientCert. The gateway clones the Config.
	Config *tls.Config `yaml:"-"`
	// CertFile and KeyFile are PEM files with the gateway's certificate chain and its key. The
	// gateway reads its files at Start, then once a minute, and for Gateway.ReloadTLS. New
	// connections use what was read last. Files that Start would refuse change nothing, and the log
	// says so.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// ClientCAFile is a PEM file with the authorities that sign clients' certificates. With it, a
	// client may present a certificate, whose subject becomes its identity under the scheme "x509":
	// see X509.
	// If ClientCertRequired is set, it must. Empty means that no certificate is asked for.
	ClientCAFile       string `yaml:"clientCAFile"`
	ClientCertRequired bool   `yaml:"clientCertRequired"`
}

// Validate reports every problem of the Config at once.
func (c Config) Validate() error {
	_, _, err := c.complete()
	return err
}

// complete fills in the defaults, checks the result and loads the TLS files.
func (c Config) complete() (Config, *certs.Store, error) {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		add("Listen is %q: want host:port, such as \":2181\"", c.Listen)
	}
	for _, n := range []struct {
		name        string
		value       *int
		preset      int
		least, most int
	}{
		{"ConnectionsPerAddress", &c.ConnectionsPerAddress, DefaultConnectionsPerAddress, -1 << 31, 1<<31 - 1},
		{"Connections", &c.Connections, DefaultConnections, -1 << 31, 1<<31 - 1},
		{"Handshakes", &c.Handshakes, DefaultHandshakes, -1 << 31, 1<<31 - 1},
		{"FrameSize", &c.FrameSize, DefaultFrameSize, 128, 64 << 20},
		{"Outstanding", &c.Outstanding, DefaultOutstanding, 1, 1 << 20},
		{"WatchBytes", &c.WatchBytes, DefaultWatchBytes, 1 << 10, 1<<31 - 1},
		{"Watches", &c.Watches, 0, 0, 1<<31 - 1},
		{"Memory", &c.Memory, DefaultMemory, 1 << 20, math.MaxInt},
	} {
		if *n.value == 0 {
			*n.value = n.preset
		}
		if *n.value < n.least || *n.value > n.most {
			add("%s is %d: want %d to %d", n.name, *n.value, n.least, n.most)
		}
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"WriteTimeout", &c.WriteTimeout, DefaultWriteTimeout},
		{"FirstFrame", &c.FirstFrame, DefaultFirstFrame},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < 0 {
			add("%s is %v: want a positive duration", d.name, *d.value)
		}
	}
	if c.Words == nil {
		c.Words = []string{"srvr"}
		if c.ReadOnly {
			c.Words = append(c.Words, "isro") // clients that only read find a better member by it
		}
	}
	for i, w := range c.Words {
		if w != "*" && words[w].text == nil {
			add("Words[%d] is %q: want \"*\", or some of %s", i, w, strings.Join(answered(), ", "))
		}
	}
	if host, _, _ := net.SplitHostPort(c.Advertise); c.Advertise != "" && !engine.IsAddress(c.Advertise) {
		add("Advertise is %q: want host:port, with a host name or an IP address and a number", c.Advertise)
	} else if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() || len(c.Advertise) > engine.AddressMax {
		add("Advertise is %q: want an address that clients can reach, of %d bytes at most", c.Advertise, engine.AddressMax)
	}
	if err := c.completeSASL(); err != nil {
		problems = append(problems, err)
	}
	var t *certs.Store
	if c.TLS != nil {
		var err error
		if t, err = c.TLS.certificates(); err != nil {
			problems = append(problems, err)
		}
	}
	return c, t, errors.Join(problems...)
}

// certificates returns what secures the clients' connections.
func (t *TLS) certificates() (*certs.Store, error) {
	if t.Config != nil {
		if t.CertFile+t.KeyFile+t.ClientCAFile != "" || t.ClientCertRequired {
			return nil, errors.New("TLS has both a Config and other fields: give one of them")
		}
		if len(t.Config.Certificates) == 0 && t.Config.GetCertificate == nil && t.Config.GetConfigForClient == nil {
			return nil, errors.New("TLS.Config has no Certificates")
		}
		return certs.Fixed(t.Config.Clone()), nil
	}
	files := *t
	return certs.New(files.read)
}

// read reads the files.
func (t *TLS) read() (*tls.Config, error) {
	cert, err := certs.Pair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS.CertFile %q, TLS.KeyFile %q: %w", t.CertFile, t.KeyFile, err)
	}
	if end := cert.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("TLS.CertFile %q expired at %v", t.CertFile, end)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if t.ClientCAFile == "" {
		if t.ClientCertRequired {
			return nil, errors.New("TLS.ClientCertRequired needs TLS.ClientCAFile")
		}
		return out, nil
	}
	if out.ClientCAs, err = certs.Pool(t.ClientCAFile); err != nil {
		return nil, fmt.Errorf("TLS.ClientCAFile %q: %w", t.ClientCAFile, err)
	}
	out.ClientAuth = tls.VerifyClientCertIfGiven
	if t.ClientCertRequired {
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

// A Gateway serves ZooKeeper's clients on a port. Its methods are safe for concurrent use.
type Gateway struct {
	// Immutable after Start.
	cfg        Config
	tls        *certs.Store // nil: plain text
	node       *inside.NodeParts
	log        *slog.Logger
	listener   net.Listener
	since      time.Time
	ctx        context.Context // of all calls into the engine; ends with Close
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	withdraw   sync.Once // of Config.Advertise

	outstanding atomic.Int64
	authFailed  atomic.Int64
	panics      atomic.Int64  // of connections
	refused     atomic.Int64  // connections beyond a bound
	held        atomic.Int64  // bytes that all connections hold
	decoding    chan struct{} // of capacity 1; see decode
	reliefs     pace.Pace     // of the log's words about that; owned by who has set relieving
	relieving   atomic.Bool   // a connection is being ended because held is beyond Config.Memory
	meters      meters
	figures     figures
	reads       figures                // of the requests that only read
	writes      figures                // of those that write
	reset       atomic.Pointer[counts] // at the last srst; nil: never
	readOnly    readOnly
	throttle    throttle
	refusals    refusals

	mu        rank.Mutex[rank.Gateway]
	conns     map[*conn]uint64 // to their numbers, in the order in which they came
	arrivals  uint64
	addresses map[string]int // number of connections by address
	strangers []*conn        // those that have not asked for a session yet, the oldest first
	closed    bool
}

// Start opens a port for clients of the node. The gateway ends with Close, or when the node ends.
func Start(n *embed.Node, cfg Config) (*Gateway, error) {
	node, listen := (*inside.Node)(n).Parts(), net.Listen
	if cfg.FrameSize == 0 {
		cfg.FrameSize = max(DefaultFrameSize, node.Config.MaxDataSize+frameRoom)
	}
	cfg, t, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("gateway: config: %w", err)
	}
	if other := node.Config.Seams.Listen; other != nil {
		listen = other
	}
	listener, err := listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if cfg.Advertise != "" && !node.Engine.Presence.AnnounceClient(cfg.Advertise) {
		_ = listener.Close()
		return nil, errors.New("gateway: config: Advertise is set, and another gateway of this node has it too: leave it out on one of them")
	}
	g := &Gateway{cfg: cfg, tls: t, node: node, listener: listener, since: time.Now(),
		conns: make(map[*conn]uint64), addresses: make(map[string]int), decoding: make(chan struct{}, 1)}
	g.log = g.node.Config.Logger.With("member", g.node.Engine.Member(), "gateway", listener.Addr())
	g.fit()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.throttle.open(cfg.Handshakes, time.Now())
	g.readOnly.begin(g)
	g.goroutines.Go(g.acceptLoop)
	if g.tls != nil {
		g.goroutines.Go(func() { g.tls.Loop(g.log, g.ctx.Done()) })
	}
	if u, ok := cfg.SASL.(*users); ok {
		g.goroutines.Go(func() { u.loop(g.log, g.ctx.Done()) })
	}
	g.goroutines.Go(func() {
		select {
		case <-n.Done():
			g.shut()
		case <-g.ctx.Done():
		}
	})
	return g, nil
}

// fit lowers the bound on connections to those for which there are file descriptors. Otherwise
// clients could take those that the node needs for its log and its links.
func (g *Gateway) fit() {
	most, files := crowd.Fits(g.cfg.Connections, g.node.Config.Shards)
	if most < g.cfg.Connections {
		g.log.Warn("fewer connections are served than configured: the process may not open enough files",
			"connections", g.cfg.Connections, "served", most, "files", files)
	}
	g.cfg.Connections = most
}

// Addr returns the address at which the gateway listens.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// ReloadTLS reads the files of Config.TLS again, as embed.Node.ReloadTLS does.
func (g *Gateway) ReloadTLS() (changed bool, err error) {
	if g.tls == nil {
		return false, nil
	}
	changed, err = g.tls.Reload()
	if err != nil {
		err = fmt.Errorf("gateway: reload TLS: %w", err)
	}
	return changed, err
}

// Close closes the port and all connections, and waits until all their goroutines have ended. The
// clients' sessions live on until their timeouts, so clients can reattach them to another member.
// Close is idempotent.
func (g *Gateway) Close() error {
	g.shut()
	g.goroutines.Wait()
	return nil
}

// shut is Close without the wait.
func (g *Gateway) shut() {
	g.mu.Lock()
	g.closed = true
	conns := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	g.cancel()
	_ = g.listener.Close()
	g.withdraw.Do(func() {
		if g.cfg.Advertise != "" {
			g.node.Engine.Presence.WithdrawClient()
		}
	})
	for _, c := range conns {
		c.drop()
	}
}

// acceptLoop accepts connections until the listener is closed. After any other error, such as a
// lack of file descriptors, it waits and tries again.
func (g *Gateway) acceptLoop() {
	const first, most = 5 * time.Millisecond, time.Second
	for pause := first; ; {
		sock, err := g.listener.Accept()
		if err == nil {
			pause = first
			g.accept(sock)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		g.logAccept(err)
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, most)
		}
	}
}

// accept serves a connection, or closes one if there are too many.
func (g *Gateway) accept(sock net.Conn) {
	out := g.admit(newConn(g, sock))
	if out == nil {
		return
	}
	out.drop()
	g.refused.Add(1)
	if held, ok := g.refusals.due(errCrowded, time.Now()); ok {
		g.log.Debug("connection refused: too many connections",
			"client", out.raw.RemoteAddr().String(), "repeated", held)
	}
}

// admit begins to serve a connection, and returns the one to be closed for it: perhaps itself.
func (g *Gateway) admit(c *conn) (out *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	beyond := func(n, limit int) bool { return limit >= 0 && n >= limit }
	crowded := beyond(g.addresses[c.host], g.cfg.ConnectionsPerAddress)
	switch {
	case g.closed:
		return c
	case !crowd.Enter(1, g.node.Config.Shards) || crowded || beyond(len(g.conns), g.cfg.Connections):
		if out = g.strangerLocked(c, crowded); out == nil {
			crowd.Leave(1)
			return c
		}
		g.removeLocked(out)
	}
	g.arrivals++
	g.conns[c] = g.arrivals
	g.addresses[c.host]++
	g.strangers = append(g.strangers, c)
	g.goroutines.Go(func() {
		c.serve()
		g.forget(c)
	})
	return out
}

// strangersMax bounds the strangers that are compared.
const strangersMax = 64

// strangerLocked returns who makes room for a newcomer; nil if there are no strangers. A client needs a
// round trip or more until it is none, so of the oldest ones and the newcomer it is the oldest of the
// address that has most of them.
func (g *Gateway) strangerLocked(c *conn, crowded bool) *conn {
	oldest := g.strangers[:min(len(g.strangers), strangersMax)]
	i := slices.IndexFunc(g.strangers, func(o *conn) bool { return o.host == c.host })
	if !crowded && len(oldest) > 0 {
		var hosts []string
		for _, o := range oldest {
			hosts = append(hosts, o.host)
		}
		i, _ = crowd.Greediest(append(hosts, c.host)) // never the newcomer: it comes last, alone or not
	}
	if i < 0 {
		return nil
	}
	return g.strangers[i]
}

// known says that a connection is no stranger any more. It returns errEnded if it was one for too long.
func (g *Gateway) known(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.conns[c]; !ok {
		return errEnded
	}
	g.strangers = slices.DeleteFunc(g.strangers, func(o *conn) bool { return o == c })
	return nil
}

// removeLocked removes a connection that holds no place any more.
func (g *Gateway) removeLocked(c *conn) {
	if _, ok := g.conns[c]; !ok {
		return
	}
	delete(g.conns, c)
	crowd.Leave(1)
	g.strangers = slices.DeleteFunc(g.strangers, func(o *conn) bool { return o == c })
	if g.addresses[c.host]--; g.addresses[c.host] == 0 {
		delete(g.addresses, c.host)
	}
}

// forget removes a connection that is not served any more.
func (g *Gateway) forget(c *conn) {
	g.mu.Lock()
	g.removeLocked(c)
	g.held.Add(-c.held.Load())
	g.mu.Unlock()
}

// relieve ends those connections that hold most, if all together hold too much. It may be called
// under any lock.
func (g *Gateway) relieve() {
	if g.held.Load() > int64(g.cfg.Memory) && g.relieving.CompareAndSwap(false, true) {
		g.goroutines.Go(g.endGreediest)
	}
}

// endGreediest ends connections until the others hold no more than they may. It ends all of them at
// once: the memory of one is free only when its goroutines have ended, and until then others would
// take more than that.
func (g *Gateway) endGreediest() {
	for {
		if list := g.greediest(); len(list) > 0 {
			if others, ok := g.reliefs.Due(time.Now()); ok {
				g.log.Warn("client's connection ended: all connections hold too much memory, and this one holds most",
					"client", list[0].raw.RemoteAddr().String(), "bytes", list[0].held.Load(), "all", g.held.Load(), "limit", g.cfg.Memory, "repeated", others)
			}
			for _, c := range list {
				c.drop()
			}
			continue
		}
		g.relieving.Store(false)
		// Memory that grew meanwhile saw relieving set, and did nothing.
		if g.live() <= int64(g.cfg.Memory) || !g.relieving.CompareAndSwap(false, true) {
			return
		}
	}
}

// live returns what the connections hold that are not being ended for their memory.
func (g *Gateway) live() (bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		if !c.greedy {
			bytes += c.held.Load()
		}
	}
	return bytes
}

// greediest returns the connections to end so that the others hold no more than Config.Memory, and
// marks them. Those that hold most come first.
func (g *Gateway) greediest() (list []*conn) {
	type holder struct {
		*conn
		bytes int64
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []holder
	beyond := -int64(g.cfg.Memory)
	for c := range g.conns {
		if h := (holder{c, c.held.Load()}); !c.greedy {
			all = append(all, h)
			beyond += h.bytes
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, h := range all {
		if beyond <= 0 {
			break
		}
		beyond -= h.bytes
		h.greedy = true
		list = append(list, h.conn)
	}
	return list
}

// connections returns all connections, the oldest first.
func (g *Gateway) connections() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.Collect(maps.Keys(g.conns))
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(g.conns[a], g.conns[b]) })
	return list
}

// mayAnswer reports whether the configuration allows a word.
func (g *Gateway) mayAnswer(word string) bool {
	return slices.Contains(g.cfg.Words, word) || slices.Contains(g.cfg.Words, "*")
}
