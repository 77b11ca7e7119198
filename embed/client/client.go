package client

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/lines"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
	"golang.org/x/sync/errgroup"
)

// A Client opens sessions over connections to an ensemble's gateways. It is an embed.Opener. It has
// no connection of its own: each session has one. Its methods may be called by any number of
// goroutines.
type Client struct {
	config Config
	lines  *lines.Queue
	log    *slog.Logger // writes to lines
	queued meter.Gauge
	// goroutines are those of all sessions. None begins after Close.
	goroutines sync.WaitGroup
	done       chan struct{} // closed by Close

	mu struct {
		rank.Mutex[rank.Servers]
		servers  []string // where to connect, in an order of this client's own
		next     int      // the index of the next one to try
		sessions map[*session]struct{}
		closed   bool
	}
}

// logWait is how long Close waits for the Logger.
const logWait = time.Second

var _ embed.Opener = (*Client)(nil)

// New returns a Client. It connects to nothing yet. Errors are those of Config.Validate.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	k := &Client{config: c.complete(), done: make(chan struct{})}
	k.lines = lines.New(k.config.Logger.Handler())
	k.log = k.lines.Logger()
	k.mu.servers = slices.Clone(c.Servers)
	shuffle(k.mu.servers) // so that many clients do not all begin at one member
	k.mu.sessions = make(map[*session]struct{})
	return k, nil
}

func shuffle(list []string) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// NewSession opens a session. Like a call of a session, it waits no longer than ctx, or
// Config.RequestTimeout if ctx has no deadline. If its caller stops waiting, a session that is
// opened later ends at its timeout at the latest.
//
// Errors: embed.ErrUnavailable with the reason if no server opened a session in time, the ctx's
// error, embed.ErrInvalidPath (Root), embed.ErrInvalidArgument (Timeout), embed.ErrAuthFailed,
// embed.ErrClosed.
func (k *Client) NewSession(ctx context.Context, o embed.SessionOptions) (*embed.Session, error) {
	root, err := rootOf(o.Root)
	if err != nil {
		return nil, &embed.OpError{Op: "new session", Path: o.Root, Err: err}
	}
	s, err := k.open(ctx, o)
	if err != nil {
		return nil, &embed.OpError{Op: "new session", Err: err}
	}
	return (*embed.Session)(inside.NewSession(inside.SessionParts{Session: s, Root: root, MaxData: s.maxData()})), nil
}

func rootOf(path string) (inside.Root, error) {
	if path == "" || path == "/" {
		return "", nil
	}
	return inside.Root(path), tree.ValidatePath(path)
}

func (k *Client) open(ctx context.Context, o embed.SessionOptions) (*session, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("%w: SessionOptions.Timeout is %v", embed.ErrInvalidArgument, o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = k.config.SessionTimeout
	}
	s := newSession(k, o)
	if err := k.begin(s); err != nil {
		return nil, err
	}
	if err := s.opened(ctx); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// begin begins to connect a session, which Close has to end.
func (k *Client) begin(s *session) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		return engine.ErrClosed
	}
	k.mu.sessions[s] = struct{}{}
	k.goroutines.Go(s.run)
	return nil
}

func (k *Client) forget(s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mu.sessions, s)
}

// Close ends all sessions of the client as their Close does, and refuses further ones. It waits
// until their goroutines have ended, and is idempotent. The error is that of one session that could
// not be closed. Such sessions end at their timeouts.
func (k *Client) Close() error {
	k.mu.Lock()
	if !k.mu.closed {
		k.mu.closed = true
		close(k.done)
	}
	var all []*session
	for s := range k.mu.sessions {
		all = append(all, s)
	}
	k.mu.Unlock()
	var closing errgroup.Group
	for _, s := range all {
		closing.Go(s.Close)
	}
	err := closing.Wait()
	k.goroutines.Wait()
	k.lines.Flush(logWait)
	return err
}

// server returns the next address to try, and whether all were tried since the last one that
// worked.
func (k *Client) server() (address string, round bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.next = (k.mu.next + 1) % len(k.mu.servers)
	return k.mu.servers[k.mu.next], k.mu.next == 0
}

// learn takes over the servers that the ensemble's list of members names. Without any it keeps what
// it has.
func (k *Client) learn(config []byte) {
	found := serversOf(string(config))
	if len(found) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	shuffle(found)
	for _, server := range k.config.Servers { // last, in case the others cannot be reached from here
		if !slices.Contains(found, server) {
			found = append(found, server)
		}
	}
	if same(found, k.mu.servers) {
		return
	}
	k.mu.servers, k.mu.next = found, 0
}

func same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// serversOf returns the addresses for clients in the data of /zookeeper/config. Its lines are
// ZooKeeper's: server.ID=host:port:port[:role];[host:]port.
func serversOf(config string) (servers []string) {
	for line := range strings.Lines(config) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		_, address, ok := strings.Cut(value, ";")
		if !ok || !strings.HasPrefix(name, "server.") {
			continue
		}
		if host, port, err := net.SplitHostPort(address); err == nil && host != "" && host != "0.0.0.0" && port != "" {
			servers = append(servers, address)
		}
	}
	return servers
}
