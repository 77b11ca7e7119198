package refusals

import (
	"context"
	"slices"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// An Opener opens sessions of another one, whose writes it may refuse. Releases of claims without a
// transaction of their own are no writes here: no caller can be told of them.
type Opener struct {
	From embed.Opener
	// Judge is asked of each write, counted from 1 over all sessions. If it returns an error, the
	// write is not sent, and has that error; embed.ErrUnknownOutcome is for Hide. It is called by one
	// goroutine at a time.
	Judge func(n int, ops []Write) error
	// Hide is asked of each write that Judge lets pass. If it reports true, the write is sent, and its
	// caller is told embed.ErrUnknownOutcome. A claim is told so once, as the node does until it knows.
	Hide func(n int, ops []Write) bool

	mu    sync.Mutex
	count int
}

// A Write is one operation of a transaction.
type Write = tree.Op

// NewSession implements embed.Opener.
func (o *Opener) NewSession(ctx context.Context, with embed.SessionOptions) (*embed.Session, error) {
	s, err := o.From.NewSession(ctx, with)
	if err != nil {
		return nil, err
	}
	parts := *(*inside.Session)(s).Parts()
	parts.Session = &backend{parts.Session, o}
	return (*embed.Session)(inside.NewSession(parts)), nil
}

// Count returns how many writes there were.
func (o *Opener) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

// judge counts a write and says what becomes of it.
func (o *Opener) judge(ops []tree.Op) (refusal error, hidden bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	if o.Judge != nil {
		refusal = o.Judge(o.count, ops)
	}
	return refusal, refusal == nil && o.Hide != nil && o.Hide(o.count, ops)
}

// Creates returns a Judge that refuses the creation of znodes whose paths are among some.
func Creates(refusal error, paths ...string) func(int, []Write) error {
	return func(_ int, ops []Write) error {
		for _, op := range ops {
			if op.Kind == tree.KindCreate && slices.Contains(paths, op.Path) {
				return refusal
			}
		}
		return nil
	}
}

// A backend is a session whose writes are judged.
type backend struct {
	inside.Backend
	opener *Opener
}

func (b *backend) NewTerms() inside.Terms { return terms{b.Backend.NewTerms()} }

func (b *backend) Do(ctx context.Context, ops []tree.Op, t inside.Terms) ([]tree.Result, error) {
	refusal, hidden := b.opener.judge(ops)
	if refusal != nil {
		undo(t)
		return nil, refusal
	}
	results, err := b.Backend.Do(ctx, ops, sent(t))
	if hidden {
		return nil, embed.ErrUnknownOutcome
	}
	return results, err
}

func (b *backend) Submit(ctx context.Context, ops []tree.Op, t inside.Terms) inside.Pending {
	refusal, hidden := b.opener.judge(ops)
	if refusal != nil {
		undo(t)
		return refused{refusal}
	}
	p := b.Backend.Submit(ctx, ops, sent(t))
	if hidden {
		return unknown{p}
	}
	return p
}

func (b *backend) Claim(ctx context.Context, ops []tree.Op, t inside.Terms) inside.Claim {
	refusal, hidden := b.opener.judge(ops)
	if refusal != nil {
		undo(t)
		return refused{refusal}
	}
	c := b.Backend.Claim(ctx, ops, sent(t))
	if hidden {
		return &late{Claim: c}
	}
	return c
}

// terms lets what it is given be of a backend.
type terms struct{ inside.Terms }

func (t terms) Release(c inside.Claim) ([]tree.Op, error) {
	switch own := c.(type) {
	case *late:
		c = own.Claim
	case refused:
		return nil, tree.ErrNotHeld
	}
	return t.Terms.Release(c)
}

func sent(t inside.Terms) inside.Terms {
	if t == nil {
		return nil
	}
	return t.(terms).Terms
}

func undo(t inside.Terms) {
	if t != nil {
		t.Undo()
	}
}

// over is closed.
var over = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// A refused is a transaction that was refused: a Pending, and a Claim.
type refused struct{ err error }

func (r refused) Done() <-chan struct{}                          { return over }
func (r refused) Result() ([]tree.Result, error)                 { return nil, r.err }
func (r refused) Created(context.Context) ([]tree.Result, error) { return nil, r.err }
func (r refused) Hold(bool) (*engine.Tenure, error)              { return nil, r.err }
func (r refused) Flush() error                                   { return r.err }
func (r refused) Err() error                                     { return r.err }
func (r refused) Release() error                                 { return nil }

// An unknown is a Pending whose outcome is hidden.
type unknown struct{ inside.Pending }

func (u unknown) Result() ([]tree.Result, error) {
	_, _ = u.Pending.Result()
	return nil, embed.ErrUnknownOutcome
}

// A late is a Claim whose outcome is hidden when it is first asked for.
type late struct {
	inside.Claim
	asked sync.Once
}

func (l *late) Created(ctx context.Context) ([]tree.Result, error) {
	results, err := l.Claim.Created(ctx)
	l.asked.Do(func() { results, err = nil, embed.ErrUnknownOutcome })
	return results, err
}
