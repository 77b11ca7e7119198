package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

const (
	callsMax  = 4096                  // requests in flight; one more is refused with ErrBusy
	frameMax  = 64 << 20              // from a server: a list of a million names
	pauseMin  = 50 * time.Millisecond // between rounds of the servers; doubles up to pauseMax
	pauseMax  = time.Second
	closeWait = 5 * time.Second // how long Close waits for the server to close the session
)

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 30 * time.Second

// A Config says where the ensemble is. Servers is required.
type Config struct {
	Servers []string // host:port
	Chroot  string   // the path that the client sees as the root; "" for none
	// WithoutConfig puts the Chroot before /zookeeper/config as before any other path. Otherwise that
	// is the ensemble's, as for ZooKeeper's client.
	WithoutConfig bool
	// Timeout is the session timeout to request; zero means DefaultTimeout. One round of all
	// servers takes at most as long. The client leaves a connection on which nothing arrives for
	// two thirds of the granted timeout.
	Timeout  time.Duration
	ReadOnly bool        // accept a server without a quorum
	TLS      *tls.Config // nil means plain text
	// Events, if not nil, receives the events of watches and of the connection. It must neither
	// call the client nor block for long.
	Events func(Event)

	pipe func(ctx context.Context, server string) (net.Conn, error) // instead of TCP; for tests in virtual time
}

// An Event is what a watch saw. If its Type is wire.EventNone, it is a change of the State.
type Event struct {
	Type  wire.EventType
	State wire.State
	Path  string
	Zxid  int64 // of the change; zero if the server does not say it
}

// A State says how a client is connected.
type State int

// The states. Closed, Expired and AuthFailed are final.
const (
	Connecting State = iota
	Connected
	ConnectedReadOnly
	Closed
	Expired
	AuthFailed
)

// String returns the state's name in ZooKeeper's client, which calls an expired session closed.
func (s State) String() string {
	return [...]string{"CONNECTING", "CONNECTED", "CONNECTEDREADONLY", "CLOSED", "CLOSED", "AUTH_FAILED"}[s]
}

// Alive reports whether the client's session may still be used.
func (s State) Alive() bool { return s <= ConnectedReadOnly }

// A Client is a session. Any number of goroutines may call its methods.
type Client struct {
	// Immutable after New.
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutines have ended

	// Owned by the loop.
	session  wire.ConnectResponse // zero until there is a session
	lastZxid int64

	mu struct {
		sync.Mutex
		state   State
		changed chan struct{} // closed when state changes
		cause   error         // why the last server did not accept the client, or lost it
		closing bool
		queue   []*call // not sent yet
		under   int     // calls in queue and with the link
		link    *link   // nil while there is no connection
		auths   []wire.Auth
		watches watches
	}
}

// A call is a request in flight.
type call struct {
	// Immutable.
	q      *wire.Request
	path   string                // for the error
	answer func(err error) error // if not nil, the loop runs it before the caller learns the outcome; may change the error

	sent bool // guarded by the Client's mu: a server may have received it

	// Written before done is closed.
	reply wire.Reply
	err   error
	done  chan struct{}
}

// New returns a client that connects in the background. Close ends it.
func New(cfg Config) (*Client, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("client: no servers")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if ms := cfg.Timeout.Milliseconds(); ms < 1 || ms > 1<<31-1 {
		return nil, fmt.Errorf("client: a timeout of %v", cfg.Timeout)
	}
	c := &Client{cfg: cfg, ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.changed = make(chan struct{})
	c.mu.watches = newWatches()
	go c.loop()
	return c, nil
}

// State returns the state, and a channel that is closed when the state changes.
func (c *Client) State() (now State, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.state, c.mu.changed
}

// Cause returns why the client is not connected, as far as it knows.
func (c *Client) Cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cause
}

// Ready waits until the client is connected. It returns an Error if the client or ctx ends first.
func (c *Client) Ready(ctx context.Context) error {
	for {
		now, changed := c.State()
		switch {
		case now == Connected || now == ConnectedReadOnly:
			return nil
		case !now.Alive():
			return c.endError("", now)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &Error{Code: wire.ConnectionLoss, Cause: c.Cause()}
		}
	}
}

// endError returns the error of calls in a final state.
func (c *Client) endError(path string, s State) error {
	switch s {
	case Expired:
		return &Error{Code: wire.SessionExpired, Path: path}
	case AuthFailed:
		return &Error{Code: wire.AuthFailed, Path: path}
	}
	return &Error{Code: wire.SessionExpired, Path: path, Cause: errClosed} // like ZooKeeper's client
}

var errClosed = errors.New("the client is closed")

// Call sends a request and returns its reply, with paths as the client sees them. If the reply's
// code is not OK, Call returns the reply and an Error. The client chooses q.Xid itself.
//
// If ctx is canceled first, Call returns ctx.Err(). If the deadline of ctx passes first, Call
// returns an Error: ConnectionLoss if the request was not sent, OperationTimeout if the outcome is
// unknown.
func (c *Client) Call(ctx context.Context, q wire.Request) (wire.Reply, error) {
	return c.do(ctx, q, nil)
}

// AddAuth authenticates the session with a further credential, also on every later connection.
func (c *Client) AddAuth(ctx context.Context, scheme string, proof []byte) error {
	auth := wire.Auth{Scheme: scheme, Proof: proof}
	q := wire.Request{Auth: auth}
	q.Op = wire.OpAuth
	_, err := c.do(ctx, q, func(err error) error {
		if err == nil {
			c.mu.Lock()
			c.mu.auths = append(c.mu.auths, auth)
			c.mu.Unlock()
		}
		return err
	})
	return err
}

// RemoveWatches removes the watches of a kind at a path, and sends Config.Events an event for each.
// If local is set, it removes them here even if the server does not.
func (c *Client) RemoveWatches(ctx context.Context, path string, kind wire.WatchKind, local bool) error {
	q := wire.Request{Operation: wire.Operation{Op: wire.OpRemoveWatches, Path: path, Kind: kind}}
	at := q
	c.toServer(&at)
	_, err := c.do(ctx, q, func(err error) error {
		if err != nil && !local {
			return err
		}
		if c.forget(kind, at.Path) {
			return nil
		}
		if err == nil {
			err = &Error{Code: wire.NoWatcher, Path: path}
		}
		return err
	})
	return err
}

func (c *Client) do(ctx context.Context, q wire.Request, answer func(error) error) (wire.Reply, error) {
	if err := checkPaths(&q); err != nil {
		return wire.Reply{}, err
	}
	k := &call{q: &q, answer: answer, done: make(chan struct{})}
	if hasPath(q.Op) && q.Path != wire.Null {
		k.path = q.Path
	}
	c.toServer(&q)
	if err := c.enqueue(k); err != nil {
		return wire.Reply{}, err
	}
	select {
	case <-k.done:
		return k.reply, k.err
	case <-ctx.Done():
	}
	unsent := c.withdraw(k)
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return wire.Reply{}, ctx.Err()
	case unsent:
		return wire.Reply{}, &Error{Code: wire.ConnectionLoss, Path: k.path, Cause: c.Cause()}
	}
	return wire.Reply{}, &Error{Code: wire.OperationTimeout, Path: k.path}
}

func (c *Client) enqueue(k *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.mu.state.Alive():
		return c.endError(k.path, c.mu.state)
	case c.mu.closing:
		return c.endError(k.path, Closed)
	case c.mu.under >= callsMax:
		return ErrBusy
	}
	c.mu.under++
	c.mu.queue = append(c.mu.queue, k)
	if c.mu.link != nil {
		c.mu.link.kick()
	}
	return nil
}

// withdraw removes a call from the queue, and reports whether it was not sent.
func (c *Client) withdraw(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.mu.queue {
		if other == k {
			c.mu.queue = append(c.mu.queue[:i:i], c.mu.queue[i+1:]...)
			c.mu.under--
			break
		}
	}
	return !k.sent
}

// finish gives a call its outcome. Only the loop calls it, once for every call that was not
// withdrawn.
func (c *Client) finish(k *call, r *wire.Reply, err error) {
	if k.answer != nil {
		err = k.answer(err)
	}
	c.mu.Lock()
	c.mu.under--
	c.mu.Unlock()
	if r != nil {
		k.reply = *r
	}
	k.err = err
	close(k.done)
}

// failAll finishes calls that got no answer.
func (c *Client) failAll(calls []*call, code wire.Code, cause error) {
	for _, k := range calls {
		c.finish(k, nil, &Error{Code: code, Path: k.path, Cause: cause})
	}
}

// failQueue fails the calls that were not sent.
func (c *Client) failQueue(code wire.Code, cause error) {
	c.mu.Lock()
	waiting := c.mu.queue
	c.mu.queue = nil
	c.mu.Unlock()
	c.failAll(waiting, code, cause)
}

// Close closes the session, which deletes its ephemerals, and waits until the client's goroutines
// have ended. Without a connection, it leaves the session to its timeout. It is idempotent.
func (c *Client) Close() error {
	c.mu.Lock()
	var last *call
	if !c.mu.closing && c.mu.link != nil && c.mu.state.Alive() {
		q := wire.Request{}
		q.Op = wire.OpCloseSession
		last = &call{q: &q, done: make(chan struct{})}
		c.mu.under++
		c.mu.queue = append(c.mu.queue, last)
		c.mu.link.kick()
	}
	c.mu.closing = true
	c.mu.Unlock()
	if last != nil {
		wait := time.NewTimer(min(closeWait, c.cfg.Timeout))
		select {
		case <-last.done:
		case <-c.ended:
		case <-wait.C:
		}
		wait.Stop()
	}
	c.cancel()
	<-c.ended
	return nil
}

// become changes the state and sends an event about it.
func (c *Client) become(s State, e wire.State) {
	c.mu.Lock()
	was := c.mu.state
	c.mu.state = s
	if was != s {
		close(c.mu.changed)
		c.mu.changed = make(chan struct{})
	}
	c.mu.Unlock()
	if was != s {
		c.tell(Event{Type: wire.EventNone, State: e})
	}
}

func (c *Client) tell(e Event) {
	if c.cfg.Events != nil {
		c.cfg.Events(e)
	}
}
