package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

const (
	callsMax  = 4096                  // requests under way; one more is refused with ErrBusy
	frameMax  = 64 << 20              // of a server: a list of a million names
	pauseMin  = 50 * time.Millisecond // between rounds of the servers; it doubles
	pauseMax  = time.Second
	closeWait = 5 * time.Second // for the session to be closed, at most; then it is left to its timeout
)

// DefaultTimeout is that of a session if Config says nothing.
const DefaultTimeout = 30 * time.Second

// A Config says where the ensemble is. Servers must be there.
type Config struct {
	Servers []string // host:port
	Chroot  string   // what the client takes for the root; "" for none
	// Timeout is the session's that is asked for. A server has the Timeout's share of its number to take the client, and a connection on
	// which nothing comes for two thirds of what was granted is left. Zero means DefaultTimeout.
	Timeout  time.Duration
	ReadOnly bool        // a server without a quorum will do
	TLS      *tls.Config // how connections are encrypted; nil for not at all
	// Events, if it is not nil, is told of watches and of the connection. It must neither call the client nor block for long.
	Events func(Event)
}

// An Event is what a watch tells, or if its Type is wire.EventNone, that the State has changed.
type Event struct {
	Type  wire.EventType
	State wire.State
	Path  string
	Zxid  int64 // of the change, if the server says it
}

// A State says how a client is connected.
type State int

// The states. After Closed, Expired and AuthFailed no other one comes.
const (
	Connecting State = iota
	Connected
	ConnectedReadOnly
	Closed
	Expired
	AuthFailed
)

// String is the state's name in ZooKeeper's client. An expired session is a closed client there.
func (s State) String() string {
	return [...]string{"CONNECTING", "CONNECTED", "CONNECTEDREADONLY", "CLOSED", "CLOSED", "AUTH_FAILED"}[s]
}

// Alive reports whether requests have a chance.
func (s State) Alive() bool { return s <= ConnectedReadOnly }

// A Client is a session. Its methods may be called by any number of goroutines.
type Client struct {
	// Immutable after New.
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutines are gone

	// Owned by the loop.
	session  wire.ConnectResponse // zero until there is one
	lastZxid int64

	mu struct {
		sync.Mutex
		state   State
		changed chan struct{} // closed when state is stale
		cause   error         // of the last server that did not take the client or lost it
		closing bool
		queue   []*call // to be sent
		under   int     // calls in queue and with the link
		link    *link   // nil while there is no connection
		auths   []wire.Auth
		watches watches
	}
}

// A call is a request under way.
type call struct {
	// Immutable.
	q      *wire.Request
	path   string                // for the error
	settle func(err error) error // unless nil, run by the loop before the caller hears of it; it may change the error

	sent bool // guarded by the Client's mu: a server may know of it

	// Written before done is closed.
	reply wire.Reply
	err   error
	done  chan struct{}
}

// New begins to connect. Close ends the client.
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

// State returns the state, and a channel that is closed when it is another.
func (c *Client) State() (now State, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.state, c.mu.changed
}

// Cause is why the client is not connected, as far as it knows.
func (c *Client) Cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cause
}

// Ready waits until the client is connected. It returns an Error if the client has ended or ctx has.
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

// endError is what calls get in a state in which they have no chance.
func (c *Client) endError(path string, s State) error {
	switch s {
	case Expired:
		return &Error{Code: wire.SessionExpired, Path: path}
	case AuthFailed:
		return &Error{Code: wire.AuthFailed, Path: path}
	}
	return &Error{Code: wire.SessionExpired, Path: path, Cause: errClosed} // as ZooKeeper's client says
}

var errClosed = errors.New("the client is closed")

// Call sends a request and returns its reply, with the paths as the client sees them. An Error is returned for a code that is not OK,
// together with the reply. q.Xid is the client's to choose.
//
// When ctx ends first, the error is its Canceled, or an Error: of ConnectionLoss if the request was not sent, of OperationTimeout if whether it
// is carried out stays open.
func (c *Client) Call(ctx context.Context, q wire.Request) (wire.Reply, error) {
	return c.do(ctx, q, nil)
}

// AddAuth adds an identity, also to every later connection.
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

// RemoveWatches removes the watches of a kind at a path, and has Config.Events told of each. With local set they are removed here even
// if no server can be asked.
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

func (c *Client) do(ctx context.Context, q wire.Request, settle func(error) error) (wire.Reply, error) {
	if err := checkPaths(&q); err != nil {
		return wire.Reply{}, err
	}
	k := &call{q: &q, settle: settle, done: make(chan struct{})}
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

// withdraw takes back a call, and reports whether it was not sent.
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

// finish is run by the loop for every call that was not withdrawn.
func (c *Client) finish(k *call, r *wire.Reply, err error) {
	if k.settle != nil {
		err = k.settle(err)
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

// failAll finishes calls without an answer.
func (c *Client) failAll(calls []*call, code wire.Code, cause error) {
	for _, k := range calls {
		c.finish(k, nil, &Error{Code: code, Path: k.path, Cause: cause})
	}
}

// failQueue fails what was not sent.
func (c *Client) failQueue(code wire.Code, cause error) {
	c.mu.Lock()
	waiting := c.mu.queue
	c.mu.queue = nil
	c.mu.Unlock()
	c.failAll(waiting, code, cause)
}

// Close closes the session, which deletes its ephemerals, and waits until nothing of the client runs any more. Without a connection
// the session is left to its timeout. It is idempotent.
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

// become changes the state and tells of it.
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
