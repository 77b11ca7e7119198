package barrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

// A Gate is open unless its znode exists. It stays shut when whoever shut it is gone. Deleting its
// znode opens it, even if the same transaction creates the znode again. Its path
// cannot be "/", which no session can delete: embed.ErrInvalidPath. Its methods may be called by
// any number of goroutines.
type Gate struct {
	session *embed.Session
	path    string
}

// NewGate returns the gate on a path.
func NewGate(s *embed.Session, path string) Gate { return Gate{s, path} }

// Shut shuts the gate, if it is open. It is a commit in any case, for this node's replica may not
// know yet that somebody has opened the gate. It creates missing parents as containers. Errors are
// those of embed.Session.Create.
func (g Gate) Shut(ctx context.Context) error {
	err := g.check()
	if err == nil {
		err = create(ctx, g.session, g.path, nil)
	}
	return g.wrap("shut", err)
}

func (g Gate) check() error {
	if g.path == "/" {
		return fmt.Errorf("%w: no session can delete /, so it cannot be a gate", embed.ErrInvalidPath)
	}
	return nil
}

// create creates a persistent znode and its parents, unless it exists.
func create(ctx context.Context, s *embed.Session, path string, data []byte) error {
	_, _, err := s.CreateWith(ctx, path, data, embed.CreateOptions{Parents: true})
	if errors.Is(err, embed.ErrNodeExists) {
		err = nil
	}
	return err
}

// Open opens the gate, if it is shut: everybody who waits passes. Errors are those of
// embed.Session.Delete.
func (g Gate) Open(ctx context.Context) error {
	err := g.check()
	if err == nil {
		err = g.session.Delete(ctx, g.path, embed.AnyVersion)
	}
	if errors.Is(err, embed.ErrNoNode) {
		err = nil
	}
	return g.wrap("open", err)
}

// Wait waits until the gate is open. It begins with an embed.Session.Sync, because this node may not
// show yet that another one has shut the gate. It returns nil if the gate was open at any moment since
// the ensemble has answered that, even if it is shut again. Wait is bounded by ctx alone, and outlasts
// the lack of a quorum.
//
// Errors: the ctx's error, embed.ErrInvalidPath, embed.ErrNoAuth as soon as the session may not read
// the znode, and those of an ended session.
func (g Gate) Wait(ctx context.Context) error { return g.wrap("wait", g.wait(ctx)) }

func (g Gate) wait(ctx context.Context) error {
	if err := g.check(); err != nil {
		return err
	}
	var shut embed.Zxid // by this creation
	return follow(ctx, g.session, g.path, func(now sight) (open bool, _ error) {
		shut = cmp.Or(shut, now.stat.Czxid)
		return now.stat.Czxid == 0 || now.stat.Czxid != shut, nil // before another creation it was open
	})
}

func (g Gate) wrap(op string, err error) error { return wrap(op, g.path, err) }

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
