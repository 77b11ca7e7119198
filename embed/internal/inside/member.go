package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// OnMember returns the Backend of a session of this process's own node.
func OnMember(s *engine.Session) Backend { return onMember{s} }

type onMember struct{ *engine.Session }

func (m onMember) NewTerms() Terms { return &memberTerms{session: m.Session} }

func (m onMember) Do(ctx context.Context, ops []tree.Op, t Terms) ([]tree.Result, error) {
	return m.Session.SubmitWith(ctx, ops, withOf(t)).Wait(ctx)
}

func (m onMember) Submit(ctx context.Context, ops []tree.Op, t Terms) Pending {
	return m.Session.SubmitWith(ctx, ops, withOf(t))
}

func (m onMember) Claim(ctx context.Context, ops []tree.Op, t Terms) Claim {
	return m.Session.Claim(ctx, ops, withOf(t))
}

func (m onMember) Get(_ context.Context, path string) ([]byte, tree.Stat, error) {
	return m.Session.Get(path)
}

func (m onMember) Exists(_ context.Context, path string) (tree.Stat, bool, error) {
	return m.Session.Exists(path)
}

func (m onMember) Children(_ context.Context, path string) ([]string, tree.Stat, error) {
	return m.Session.Children(path)
}

func (m onMember) Page(_ context.Context, path, after string, n int) ([]string, error) {
	return m.Session.Page(path, after, n)
}

func (m onMember) ACL(_ context.Context, path string) ([]tree.ACL, tree.Stat, error) {
	return m.Session.ACL(path)
}

func (m onMember) Descendants(_ context.Context, path string) (int, error) {
	return m.Session.Descendants(path)
}

func (m onMember) Before(_ context.Context, path string, match ...string) (string, bool, error) {
	return m.Session.Before(path, match...)
}

func (m onMember) Watch(_ context.Context, path string, mode watch.Mode, o watch.Options, root string) (Watch, error) {
	w, err := m.Session.Watch(path, mode, o, root)
	if err != nil {
		return nil, err // not a Watch that holds nil
	}
	return w, nil
}

func (m onMember) Follow(ctx context.Context, path string, o watch.Options, root string) (f Followed, err error) {
	if f.Watch, err = m.Watch(ctx, path, watch.Persistent, o, root); err != nil {
		return Followed{}, err
	}
	f.Data, f.Stat, f.Err = m.Session.Get(path)
	f.Since, err = m.Session.Sync(ctx, path)
	return f.Checked(err)
}

func (m onMember) Queued() *meter.Gauge { return &m.Session.Meters().Queued }

// Get reads a znode. A member's session is asked by its own type: then a path below the session's root
// is built on the stack. Through an interface each read would allocate it.
func (p *SessionParts) Get(ctx context.Context, path string) ([]byte, tree.Stat, error) {
	if m, ok := p.Session.(onMember); ok {
		return m.Session.Get(p.Root.In(path))
	}
	return p.Session.Get(ctx, p.Root.In(path))
}

// Exists is Get for a znode's Stat.
func (p *SessionParts) Exists(ctx context.Context, path string) (tree.Stat, bool, error) {
	if m, ok := p.Session.(onMember); ok {
		return m.Session.Exists(p.Root.In(path))
	}
	return p.Session.Exists(ctx, p.Root.In(path))
}

// Follow is that of the Backend, with the session's path. What the session may not read may be a former
// znode, so it looks again.
func (p *SessionParts) Follow(ctx context.Context, path string, buffer int) (Followed, error) {
	if err := cmp.Or(ctx.Err(), tree.ValidatePath(path)); err != nil {
		return Followed{}, err
	}
	o := watch.Options{Buffer: buffer, Values: true}
	f, err := p.Session.Follow(ctx, p.Root.In(path), o, string(p.Root))
	if err != nil || !errors.Is(f.Err, tree.ErrNoAuth) {
		return f, err
	}
	f.Data, f.Stat, f.Err = p.Get(ctx, path)
	return f.Checked(nil)
}

// memberTerms are the Terms of a transaction on this process's own node.
type memberTerms struct {
	session *engine.Session
	with    engine.With
}

// withOf returns what the engine knows Terms as.
func withOf(t Terms) *engine.With {
	if t == nil {
		return nil
	}
	return &t.(*memberTerms).with
}

func (t *memberTerms) Guard(by *engine.Tenure) ([]tree.Op, error) {
	return t.with.Guard(t.session.Session, by)
}

func (t *memberTerms) Release(c Claim) ([]tree.Op, error) {
	own, ok := c.(*engine.Claim)
	if c != nil && !ok {
		return nil, fmt.Errorf("%w: a claim is given up by its own session", tree.ErrNotHeld)
	}
	return t.with.Release(t.session.Session, own)
}

func (t *memberTerms) Set(inherits bool, kind engine.ClaimKind) {
	t.with.Inherits, t.with.Kind = inherits, kind
}

func (t *memberTerms) Undo() { t.with.Undo() }
