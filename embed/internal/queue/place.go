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
	"github.com/vivarium-go/vivarium/embed/claim"
)

// A Place is a number in a queue, and the zxid from which the tokens of those at that number count.
// It passes from one contender to another in the transaction that deletes the first, so nobody
// comes between them.
type Place struct {
	Parent string
	Number string // ten digits
	// Empty, or in the form of a uuid's first two groups: then the place is behind those of the
	// number without a key, in the order of the keys.
	Key   string
	Zxid  embed.Zxid
	Grant bool // it is a grant, which only one contender can have: others get ErrNodeExists
}

// upgradeKey is the key of a reader that upgrades. Only one does so at a time.
const upgradeKey = "00000000-0000"

// PlaceOf returns the place of the contender at a path.
func PlaceOf(path string, czxid embed.Zxid) Place {
	parent, name := Split(path)
	zxid, _ := Order(name, czxid)
	number, _ := sequence(name)
	return Place{Parent: parent, Number: number, Key: key(name), Zxid: zxid}
}

// lineageBits are the upper bits of a zxid, which each forced recovery changes. Nothing else does
// in the first four thousand million transactions.
const lineageBits = ^embed.Zxid(1<<32 - 1)

// IsPast reports whether the place is from before a forced recovery, and now is a zxid from after
// it.
// The lost members may have granted later tokens than those of the place, so nobody may take it
// over, nor enter in front of it.
func (p Place) IsPast(now embed.Zxid) bool { return p.Zxid&lineageBits != now&lineageBits }

// shown returns the zxid that reads of a znode show. It asks nobody but the session's own node, as
// other reads do.
func shown(ctx context.Context, s *embed.Session, path string) (embed.Zxid, error) {
	w, err := s.Watch(ctx, path, embed.WatchOnce)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	return w.Zxid(), nil
}

// Place returns the contender's place.
func (c *Contender) Place() Place { return PlaceOf(c.Path(), c.Czxid) }

// inFrontOf returns the place right before a contender, among those with a key.
func inFrontOf(path string, czxid embed.Zxid, key string) Place {
	at := PlaceOf(path, czxid)
	if at.Key == "" {
		n, _ := strconv.Atoi(at.Number) // always digits
		at.Number, at.Zxid = fmt.Sprintf("%0*d", digits, n-1), at.Zxid-1
	}
	at.Key = key
	return at
}

// InFrontOf returns the place right before a writer, for a reader that upgrades.
func InFrontOf(path string, czxid embed.Zxid) Place { return inFrontOf(path, czxid, upgradeKey) }

// PriorityMax is the highest priority.
const PriorityMax = 999

// Jump returns where a candidate of a priority belongs, given the names of all candidates. It
// belongs right before the one at lower, which is the first that waits with a lower priority. Those
// at the paths in past do not count. ahead is the path of the candidate before lower.
// Both must still exist when the candidate enters there. Without ahead, lower may lead already.
// Without lower, a candidate of a higher priority may have entered further back.
// Jump returns false if the candidate is where it belongs.
func Jump(c *Contender, names, past []string, priority int) (lower, ahead string, ok bool) {
	parent, own := Split(c.Path())
	first, _ := First(names)
	for _, name := range names {
		if _, is := sequence(name); is && name != first && Priority(name) < priority && !slices.Contains(past, Child(parent, name)) && before(name, cmp.Or(lower, own)) < 0 {
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

// InFrontOfLower returns the place of c right before the candidate at path, whose priority is
// lower. There c stands behind candidates of a higher priority, and behind earlier ones of its own.
func (c *Contender) InFrontOfLower(path string, czxid embed.Zxid, priority int) Place {
	n, _ := strconv.Atoi(c.Place().Number) // always digits, of a number below 1<<31
	const rank = 3                         // digits of the priority in a key
	return inFrontOf(path, czxid, fmt.Sprintf("%0*d%05x-%04x", rank, PriorityMax-priority, n>>16, n&0xffff))
}

// EnterAt creates a contender at a place, in a transaction that begins with ops. One of them makes
// sure that the place is free. Unless the entry is prompt, EnterAt waits for a quorum that is away.
func EnterAt(ctx context.Context, s *embed.Session, e Entry, at Place, ops ...embed.Op) (*Contender, error) {
	e.Words = append(slices.Clone(e.Words), placeWord(at.Zxid))
	name, number := newName(prefix, "", e.Kind, e.words()), at.Number
	switch {
	case at.Grant:
		name = prefix + grantUUID + "-" + placeWord(at.Zxid) + "-" + e.Kind.Word
	case at.Key != "":
		// The number comes first, then the key. So Curator, which compares all that follows the
		// kind, orders them as we do.
		name, number = newName(prefixLast, at.Key, e.Kind, e.words()), at.Number+at.Key+at.Number
	}
	return e.Claim(ctx, s, append(slices.Clone(ops), e.create(name, number, at.Parent, false))...)
}

// Granted returns the place as a grant: in front of all who may come to stand at its number.
func (p Place) Granted() Place {
	p.Key, p.Grant = "", true
	return p
}

// comesBack reports whether an entry may take over the place of a lost contender.
func (e *Entry) comesBack() bool { return e.Identity != "" && e.Delay != 0 }

// Reenter takes over the place of a lost contender of the same kind and identity that lingers. If
// there is no such place, if it is past, or if a contender for which the kind waits is ahead of it,
// Reenter returns nil.
func Reenter(ctx context.Context, s *embed.Session, e Entry, parent string) (*Contender, error) {
	if !e.comesBack() {
		return nil, nil
	}
	c, _, err := e.takeOver(ctx, s, parent, "")
	return c, err
}

// formers returns which names are those of contenders of the same kind and identity, before its own
// name, whose place an entry could take over.
func (e *Entry) formers(names []string, own string) (list []string) {
	for _, name := range Sorted(names) {
		if name == own {
			break
		}
		if who, _ := word(name, wordIdentity); identityWord(e.Identity)[1:] == who && strings.Contains(name, e.Kind.Word) {
			list = append(list, name)
		}
		if Waits(e.Kind, []string{name}) {
			break
		}
	}
	return list
}

// takeOver is Reenter for an entry that comes back. own is the name of its contender, if it has one
// already; ops come first in the transaction. If there is nothing to take over, it returns the path
// of a contender of the identity that is not lost so far, if there is one.
func (e *Entry) takeOver(ctx context.Context, s *embed.Session, parent, own string, ops ...embed.Op) (c *Contender, alive string, err error) {
	names, _, err := s.Children(ctx, parent)
	if err != nil {
		return nil, "", nil // entering reports the error
	}
	for _, name := range e.formers(names, own) {
		path := Child(parent, name)
		stat, ok, err := s.Exists(ctx, path)
		switch {
		case err != nil || !ok:
			continue
		case stat.EphemeralOwner != 0:
			alive = cmp.Or(alive, path)
			continue
		}
		at := PlaceOf(path, stat.Czxid)
		if now, err := shown(ctx, s, path); err != nil || at.IsPast(now) {
			return nil, "", nil // likewise
		}
		c, err := EnterAt(ctx, s, *e, at, append(ops, claim.OpInherit(path))...)
		if errors.Is(err, embed.ErrNoNode) {
			return nil, "", nil // somebody has waited out the delay
		}
		return c, "", err
	}
	return nil, alive, nil
}

// WaitAs is Wait for the contender of an entry. If the entry has an identity, and a contender of it
// that is ahead is lost meanwhile, WaitAs takes over that one's place. It returns the contender that
// holds its claim. After an error nobody stays in the queue.
func (c *Contender) WaitAs(ctx context.Context, e Entry) (*Contender, error) {
	if !e.comesBack() {
		return c, c.Wait(ctx)
	}
	for {
		first, err := c.Try(ctx)
		switch {
		case first && err == nil:
			return c, nil
		case !first && err != nil:
			return nil, err
		}
		moved, err := c.waitAlive(ctx, &e)
		switch {
		case moved != nil:
			return moved, moved.Wait(ctx)
		case errors.Is(err, embed.ErrNotHeld):
			err = embed.ErrDeleted // somebody deleted the contender when it was about to move
		}
		if err != nil {
			return nil, c.Leave(err)
		}
	}
}

// waitAlive takes over the place of a contender of the entry's identity that is lost. If there is
// none, it waits until there may be one, or until c may be first.
func (c *Contender) waitAlive(ctx context.Context, e *Entry) (*Contender, error) {
	parent, own := Split(c.Path())
	look := func() (*Contender, string, error) {
		return e.takeOver(ctx, c.Session, parent, own, claim.OpRelease(c.Claim))
	}
	moved, alive, err := look()
	if moved != nil || err != nil {
		return moved, err
	}
	if alive == "" {
		return nil, c.WaitChange(ctx, nil)
	}
	w, err := c.Session.Watch(ctx, alive, embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// It may have been lost before the watch was armed.
	moved, still, err := look()
	if moved != nil || err != nil || still != alive {
		return moved, err
	}
	return nil, c.WaitChange(ctx, w.Events())
}
