package queue

import (
	"cmp"
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
	Key    string // empty, or as the first two groups of a uuid: behind those of the number without one, in order of the keys
	Zxid   embed.Zxid
	Grant  bool // it is taken with the turn, and by one only: ErrNodeExists
}

// upgradeKey is that of a reader who is upgraded: there is one at a time.
const upgradeKey = "00000000-0000"

// PlaceOf is where a contender of a path stands.
func PlaceOf(path string, czxid embed.Zxid) Place {
	parent, name := Split(path)
	zxid, _ := Order(name, czxid)
	number, _ := sequence(name)
	return Place{Parent: parent, Number: number, Key: key(name), Zxid: zxid}
}

// Place is where the contender stands.
func (c *Contender) Place() Place { return PlaceOf(c.Path(), c.Czxid) }

// inFrontOf is right before a contender, among those with a key.
func inFrontOf(path string, czxid embed.Zxid, key string) Place {
	at := PlaceOf(path, czxid)
	if at.Key == "" {
		n, _ := strconv.Atoi(at.Number) // which are digits
		at.Number, at.Zxid = fmt.Sprintf("%0*d", digits, n-1), at.Zxid-1
	}
	at.Key = key
	return at
}

// InFrontOf is the place right before a writer of a reader who is upgraded.
func InFrontOf(path string, czxid embed.Zxid) Place { return inFrontOf(path, czxid, upgradeKey) }

// PriorityMax is the highest priority.
const PriorityMax = 999

// Jump is where a candidate of a priority belongs among the names of all, itself included: the place right before the first who waits
// with a lower one, and who is ahead of that one, who must still be when the place is taken: or that one may have its turn already. It is false
// if the candidate is where it belongs.
func Jump(c *Contender, names []string, priority int) (lower, ahead string, ok bool) {
	parent, own := Split(c.Path())
	first, _ := First(names)
	for _, name := range names {
		if _, is := sequence(name); is && name != first && Priority(name) < priority && before(name, cmp.Or(lower, own)) < 0 {
			lower = name
		}
	}
	if lower == "" {
		return "", "", false
	}
	for _, name := range names {
		if _, is := sequence(name); is && before(name, lower) < 0 && (ahead == "" || before(name, ahead) > 0) {
			ahead = name
		}
	}
	return Child(parent, lower), Child(parent, ahead), true
}

// InFrontOfLower is the place of a candidate of a priority right before one with a lower: behind those of its own or a higher one, and of those of
// its own in the order in which they came.
func (c *Contender) InFrontOfLower(path string, czxid embed.Zxid, priority int) Place {
	n, _ := strconv.Atoi(c.Place().Number) // which are digits, of a number below 1<<31
	const rank = 3                         // digits of the priority in a key
	return inFrontOf(path, czxid, fmt.Sprintf("%0*d%05x-%04x", rank, PriorityMax-priority, n>>16, n&0xffff))
}

// Take creates a contender at a place, in a transaction that begins with ops, one of which makes sure that the place is free. It outwaits a
// quorum that is away, unless the entry is prompt.
func Take(ctx context.Context, s *embed.Session, e Entry, at Place, ops ...embed.Op) (*Contender, error) {
	e.Words = append(slices.Clone(e.Words), placeWord(at.Zxid))
	name, number := newName(prefix, "", e.Kind, e.words()), at.Number
	switch {
	case at.Grant:
		name = prefix + grantUUID + "-" + placeWord(at.Zxid) + "-" + e.Kind.Word
	case at.Key != "":
		// The number in front, then the key: so Curator, which compares all that follows the kind, has the same order.
		name, number = newName(prefixLast, at.Key, e.Kind, e.words()), at.Number+at.Key+at.Number
	}
	return e.Claim(ctx, s, append(slices.Clone(ops), e.create(name, number, at.Parent))...)
}

// Granted is the place of the first, in front of all who may come to stand at its number.
func (p Place) Granted() Place {
	p.Key, p.Grant = "", true
	return p
}

// Return takes the place of a contender of the same kind and identity that is there only because it was lost, if nobody is ahead of it for whom
// that kind waits. It returns nil if there is no such place.
func Return(ctx context.Context, s *embed.Session, e Entry, parent string) (*Contender, error) {
	if e.Identity == "" || e.Delay == 0 {
		return nil, nil
	}
	names, _, err := s.Children(ctx, parent)
	if err != nil {
		return nil, nil // whoever enters is told
	}
	for _, name := range Sorted(names) {
		if who, _ := word(name, wordIdentity); identityWord(e.Identity)[1:] == who && strings.Contains(name, e.Kind.Word) {
			path := Child(parent, name)
			stat, ok, err := s.Exists(ctx, path)
			if err == nil && ok && stat.EphemeralOwner == 0 {
				c, err := Take(ctx, s, e, PlaceOf(path, stat.Czxid), embed.OpInherit(path))
				if errors.Is(err, embed.ErrNoNode) {
					return nil, nil // somebody has waited for long enough
				}
				return c, err
			}
		}
		if Waits(e.Kind, []string{name}) {
			return nil, nil
		}
	}
	return nil, nil
}
