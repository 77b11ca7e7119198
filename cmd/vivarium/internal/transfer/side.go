package transfer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A Side is the source or the target of a copy.
type Side struct {
	Servers []string    // host:port
	Path    string      // of the subtree, in the whole tree of the servers
	Auth    []wire.Auth // credentials
	TLS     *tls.Config // nil: plain text
}

// lostMax is how often a request that is alone on its connection may lose the connection, while
// the server answers others. After that it is the request's fault: it does not fit into a frame.
const lostMax = 3

// openWait is the pause after a session could not be opened.
const openWait = time.Second

// A lostError says that the connection ends whenever a request is sent.
type lostError struct{ cause error }

func (e *lostError) Error() string {
	return fmt.Sprintf("the connection ends each time (%v): it may be too large for a frame", e.cause)
}

func (e *lostError) Unwrap() error { return e.cause }

// A side is a session with one of the two trees. When the session expires it opens another one. Each
// begins with a sync.
// Any number of goroutines may call do.
type side struct {
	// Immutable.
	Side
	name   string // source or target
	log    func(format string, args ...any)
	permit map[wire.Op]bool   // the ops that do may send; nil permits all
	events func(client.Event) // may be nil
	// opened runs before anybody uses a new session. It may be nil.
	opened func(ctx context.Context, zk *client.Client) error

	alone sync.RWMutex // held by requests in flight, and to write by one that was lost before

	mu struct {
		sync.Mutex
		zk *client.Client // nil before the first session
	}
}

// open opens the first session. Unlike later, an error of the connection is one of the command.
func (s *side) open(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
	defer cancel()
	if _, err := s.session(limited); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func (s *side) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.zk != nil {
		_ = s.mu.zk.Close()
		s.mu.zk = nil
	}
}

// session returns a session that has a connection. It waits until there is one.
func (s *side) session(ctx context.Context) (*client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.mu.zk != nil {
			err := s.mu.zk.Ready(ctx)
			if err == nil {
				return s.mu.zk, nil
			}
			if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), s.mu.zk.Cause())
			}
			if client.CodeOf(err) != wire.SessionExpired {
				return nil, err
			}
			s.log("%s: the session has expired, opening another one", s.name)
			_ = s.mu.zk.Close()
			s.mu.zk = nil
		}
		zk, err := s.begin(ctx)
		switch {
		case err == nil:
			s.mu.zk = zk
		case ctx.Err() != nil || !transient(err):
			return nil, err
		default:
			s.log("%s: %v, trying again", s.name, err)
			select {
			case <-time.After(openWait):
			case <-ctx.Done():
			}
		}
	}
}

// begin opens a session.
func (s *side) begin(ctx context.Context) (*client.Client, error) {
	zk, err := client.New(client.Config{Servers: s.Servers, TLS: s.TLS, Events: s.told})
	if err != nil {
		return nil, err
	}
	if err = zk.Ready(ctx); err != nil {
		if cause := zk.Cause(); cause != nil {
			err = cause
		}
	}
	for _, a := range s.Auth {
		if err == nil {
			err = zk.AddAuth(ctx, a.Scheme, a.Proof)
		}
	}
	if err == nil && s.opened != nil {
		err = s.opened(ctx, zk)
	}
	if err == nil {
		err = s.syncFirst(ctx, zk)
	}
	if err != nil {
		return nil, errors.Join(err, zk.Close())
	}
	return zk, nil
}

// syncFirst waits in a new session until its server has caught up with the ensemble. The server of the
// session before may have been ahead of it.
func (s *side) syncFirst(ctx context.Context, zk *client.Client) (err error) {
	for range lostMax {
		o := wire.Operation{Op: wire.OpSync, Path: s.Path}
		if _, err = zk.Call(ctx, wire.Request{Operation: o}); err == nil || !transient(err) {
			break
		}
	}
	return err
}

// told passes on an event, and logs those of the connection.
func (s *side) told(e client.Event) {
	if e.Type == wire.EventNone && e.State == wire.StateDisconnected {
		s.log("%s: the connection is lost", s.name)
	}
	if s.events != nil {
		s.events(e)
	}
}

// transient reports whether it may help to ask again.
func transient(err error) bool {
	switch client.CodeOf(err) {
	case wire.ConnectionLoss, wire.OperationTimeout, wire.SessionExpired, wire.ThrottledOp:
		return true
	}
	return errors.Is(err, client.ErrBusy)
}

// do sends a request until it is answered. So a request may be carried out more than once: again
// says that it may have been before. The error is a client.Error, a lostError or the end of ctx.
func (s *side) do(ctx context.Context, o wire.Operation) (r wire.Reply, again bool, err error) {
	if s.permit != nil && !s.permit[o.Op] {
		return r, false, fmt.Errorf("op %d is not for the %s", o.Op, s.name)
	}
	s.alone.RLock()
	r, err = s.once(ctx, o)
	s.alone.RUnlock()
	if err == nil || !transient(err) {
		return r, false, err
	}
	s.alone.Lock()
	defer s.alone.Unlock()
	for lost := 0; lost < lostMax; lost++ {
		if err := s.answers(ctx); err != nil {
			return r, true, err
		}
		if r, err = s.once(ctx, o); err == nil || !transient(err) {
			return r, true, err
		}
	}
	return r, true, &lostError{err}
}

// answers waits until the server answers a small request.
func (s *side) answers(ctx context.Context) error {
	for {
		_, err := s.once(ctx, wire.Operation{Op: wire.OpExists, Path: "/"})
		if err == nil || !transient(err) {
			return err
		}
	}
}

func (s *side) once(ctx context.Context, o wire.Operation) (wire.Reply, error) {
	zk, err := s.session(ctx)
	if err != nil {
		return wire.Reply{}, err
	}
	return zk.Call(ctx, wire.Request{Operation: o})
}
