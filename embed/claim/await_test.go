package claim

import (
	"context"
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/tree"
)

// slow is a claim whose transaction is refused while Created gives up waiting.
type slow struct {
	inside.Claim
	asked, known int // Created knows the outcome when it is asked for the known-th time
	over         bool
}

func (s *slow) Created(context.Context) ([]tree.Result, error) {
	if s.asked++; s.known > 0 && s.asked >= s.known {
		return nil, embed.ErrNoNode
	}
	return nil, embed.ErrUnknownOutcome
}

func (s *slow) Err() error {
	if s.over {
		return embed.ErrNoNode
	}
	return nil
}

// backend is one of which only transactions are made.
type backend struct{ inside.Backend }

func (backend) NewTerms() inside.Terms { return nil }

func newTxn() *inside.Txn {
	return inside.NewSession(inside.SessionParts{Session: backend{}}).NewTxn(0)
}

// Created and Err are two questions. If the outcome comes between them, Await must not pass on what
// the first one did not know yet: a Lock would fail that has only to create its znode's parent.
func TestAwait_TheOutcomeComesBetween(t *testing.T) {
	for _, c := range []struct {
		claim slow
		want  error
		asked int
	}{
		{slow{known: 2, over: true}, embed.ErrNoNode, 2},
		{slow{known: 5}, embed.ErrNoNode, 5},
		{slow{over: true}, embed.ErrUnknownOutcome, 2}, // and it never comes
	} {
		_, err := (&Claim{c: &c.claim, txn: newTxn()}).Await(t.Context())
		if !errors.Is(err, c.want) || c.claim.asked != c.asked {
			t.Errorf("%v after %d questions", err, c.claim.asked)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := &slow{}
	if _, err := (&Claim{c: never, txn: newTxn()}).Await(ctx); err == nil || never.asked != 1 {
		t.Errorf("with a ctx that is over: %v after %d questions", err, never.asked)
	}
}
