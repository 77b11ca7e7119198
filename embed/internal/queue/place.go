package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// A Place is a number in a queue, and what the tokens of those who have it count from. It passes from one contender to another in the
// transaction that deletes the first, so that nobody comes between them.
type Place struct {
	Parent string
	Number string // ten digits
	Zxid   embed.Zxid
	Last   bool // behind all others of the number
}

// Place is where the contender stands.
func (c *Contender) Place() Place {
	parent, name := Split(c.Path())
	zxid, _ := c.Order()
	digits, _ := sequence(name)
	return Place{Parent: parent, Number: digits, Zxid: zxid}
}

// InFrontOf is the place right before that of a contender at a path, behind all others who are before it.
func InFrontOf(path string, stat embed.Stat) Place {
	parent, name := Split(path)
	zxid, _ := Order(name, stat.Czxid)
	digits, _ := sequence(name)
	n, _ := strconv.Atoi(digits) // which are digits
	return Place{Parent: parent, Number: fmt.Sprintf("%0*d", len(digits), n-1), Zxid: zxid - 1, Last: true}
}

// Take creates a contender at a place, in a transaction that begins with ops, one of which makes sure that the place is free. It outwaits a
// quorum that is away, unless the entry is prompt.
func Take(ctx context.Context, s *embed.Session, e Entry, at Place, ops ...embed.Op) (*Contender, error) {
	head, number := prefix, at.Number
	if at.Last {
		head, number = prefixLast, at.Number+at.Number // behind them for Curator too, which compares all that follows the kind
	}
	e.Words = append(slices.Clone(e.Words), placeWord(at.Zxid))
	create := e.create(newName(head, e.Kind, e.words()), number, at.Parent)
	return e.Claim(ctx, s, append(slices.Clone(ops), create)...)
}

// Return takes the place of the first contender, if that was the same kind and identity and is there only because it was lost. It returns nil
// if there is no such place.
func Return(ctx context.Context, s *embed.Session, e Entry, parent string) (*Contender, error) {
	if e.Identity == "" || e.Delay == 0 {
		return nil, nil
	}
	names, _, err := s.Children(ctx, parent)
	if err != nil {
		return nil, nil // whoever enters is told
	}
	first, _ := First(names)
	if who, ok := word(first, wordIdentity); !ok || identityWord(e.Identity)[1:] != who || !strings.Contains(first, e.Kind.Word) {
		return nil, nil
	}
	path := Child(parent, first)
	stat, ok, err := s.Exists(ctx, path)
	if err != nil || !ok || stat.EphemeralOwner != 0 {
		return nil, nil
	}
	zxid, _ := Order(first, stat.Czxid)
	digits, _ := sequence(first)
	c, err := Take(ctx, s, e, Place{Parent: parent, Number: digits, Zxid: zxid}, embed.OpDelete(path, embed.AnyVersion))
	if errors.Is(err, embed.ErrNoNode) {
		return nil, nil // somebody has waited for long enough
	}
	return c, err
}
