package partition

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// An Owner has a part.
type Owner struct {
	ID      string          // of its Options
	Session embed.SessionID // that holds the part's lock
	Member  embed.MemberID  // whose node speaks for the session; zero: it has ended meanwhile
	Token   lock.Token      // of its Hold
}

// The children of the directory below which the parts' locks are.
const (
	partsName      = "parts"
	kazooPartsName = "locks"
)

// Owners returns who owns which part, as this node's replica knows them. A part without an owner is
// not there. Each part is read by itself, so a part that moves meanwhile may have its old owner or
// its new one. It finds the owners of both layouts; of a client of kazoo the ID is unknown. Errors
// are those of lock.Holders.
func Owners(ctx context.Context, s *embed.Session, dir string) (map[string]Owner, error) {
	if dir == "" { // with a name appended, it would mean the root
		return nil, wrap(dir, fmt.Errorf("%w: it is empty", embed.ErrInvalidPath))
	}
	owners := make(map[string]Owner)
	for _, below := range []string{partsName, kazooPartsName} {
		if err := addOwners(ctx, s, queue.Child(dir, below), owners); err != nil {
			return nil, wrap(dir, err)
		}
	}
	return owners, nil
}

// addOwners adds the owners of the parts below a path.
func addOwners(ctx context.Context, s *embed.Session, parts string, owners map[string]Owner) error {
	names, _, err := s.Children(ctx, parts)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return err
	}
	for _, name := range names {
		part, err := url.PathUnescape(name) // as lock.Keys has escaped it
		if err != nil {
			continue // a znode of somebody else
		}
		holders, err := lock.Holders(ctx, s, queue.Child(parts, name))
		if err != nil {
			return err
		}
		if len(holders) > 0 {
			h := holders[0]
			owners[part] = Owner{ID: h.Note, Session: h.Session, Member: h.Member, Token: h.Token}
		}
	}
	return nil
}
