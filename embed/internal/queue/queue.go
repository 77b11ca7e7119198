package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// ErrExhausted says that the parent's create counter has come to its end: no number is left for another contender.
var ErrExhausted = errors.New("the parent znode has used up its sequence numbers: use another path")

// A Contender stands in a queue, or in several at once, until it is released. It is not for several goroutines at once.
type Contender struct {
	Session *embed.Session
	Claim   *embed.Claim
	Turn    *embed.Turn // of its claim, from when it is its turn
	Paths   []string    // of its znodes
	Czxid   embed.Zxid  // of their creation
	kind    Kind
	again   bool
	past    string               // the path of one that it does not wait for
	seen    map[string]time.Time // when it saw that those before it were lost
}

// An Entry says how a contender enters. The zero value but for Kind is usable.
type Entry struct {
	Kind     Kind
	Data     []byte
	Words    []string      // in its name
	Delay    time.Duration // that it lingers when its session is lost
	Identity string        // who may take its place meanwhile; empty: nobody
	Again    bool          // its claim is held again and again
	Prompt   bool          // it does not outwait a quorum that is away: embed.ErrUnavailable
}

// words are all that an entry's name says.
func (e *Entry) words() []string {
	words := slices.Clone(e.Words)
	if e.Delay > 0 {
		words = append(words, delayWord(e.Delay))
		if e.Identity != "" {
			words = append(words, identityWord(e.Identity))
		}
	}
	return words
}

// Create returns the operation that creates a contender under a parent, with its next number.
func (e *Entry) Create(parent string) embed.Op {
	return e.create(newName(prefix, "", e.Kind, e.words()), "", parent)
}

// create returns the operation that creates a contender under a parent: with a number if one is given, else the parent's next.
func (e *Entry) create(name, number, parent string) embed.Op {
	mode := embed.EphemeralSequential
	if number != "" {
		mode = embed.Ephemeral
	}
	return embed.OpCreateWith(Child(parent, name+number), e.Data, embed.CreateOptions{Mode: mode, TTL: e.Delay})
}

// Enter queues a contender under each parent, all in one transaction; those that are missing are created. If ctx ends first nothing is left
// in the queues.
func Enter(ctx context.Context, s *embed.Session, e Entry, parents ...string) (*Contender, error) {
	if slices.Contains(parents, "") {
		return nil, fmt.Errorf("%w: it is empty", embed.ErrInvalidPath) // with a name it would be one below the root
	}
	for {
		ops := make([]embed.Op, len(parents))
		for i, parent := range parents {
			// What this node does not have is made first: to have the claim refused for it would cost a commit.
			if err := Ensure(ctx, s, parent); err != nil && (e.Prompt || !Unanswered(err)) {
				return nil, e.prompt(ctx, err)
			}
			ops[i] = e.Create(parent)
		}
		c, err := e.Claim(ctx, s, ops...)
		if errors.Is(err, embed.ErrNoNode) {
			continue // one has been reaped meanwhile
		}
		return c, err
	}
}

// Claim submits a transaction that creates contenders, and waits for it.
func (e *Entry) Claim(ctx context.Context, s *embed.Session, ops ...embed.Op) (*Contender, error) {
	claim, err := s.Claim(ctx, ops...)
	if err != nil {
		return nil, err
	}
	results, err := claim.Created(ctx)
	for !e.Prompt && late(claim, err) {
		results, err = claim.Created(ctx)
	}
	if err != nil {
		_ = claim.Release() // the node sees to it once the outcome is known
		if ended := s.Err(); ended != nil && errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
			err = ended // whatever was created goes with the session
		}
		return nil, e.prompt(ctx, err)
	}
	c := &Contender{Session: s, Claim: claim, kind: e.Kind, again: e.Again}
	for _, r := range results {
		if r.Path != "" {
			c.Paths, c.Czxid = append(c.Paths, r.Path), r.Stat.Czxid
		}
	}
	for _, path := range c.Paths {
		if strings.HasSuffix(path, lastNumber) {
			return nil, errors.Join(ErrExhausted, claim.Release())
		}
	}
	return c, nil
}

// prompt is the error of an entry that does not outwait a quorum: whatever is on its way is taken back, or is an empty container, so nothing
// comes of it.
func (e *Entry) prompt(ctx context.Context, err error) error {
	if e.Prompt && errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
		return embed.ErrUnavailable
	}
	return err
}

// late reports whether an error of Created means that the claim's transaction is still on its way.
func late(claim *embed.Claim, err error) bool {
	return errors.Is(err, embed.ErrUnknownOutcome) && claim.Err() == nil
}

// Unanswered reports whether a call ended because no quorum answered it in time.
func Unanswered(err error) bool {
	return errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)
}

// Ensure creates a znode and those above it that are missing, as containers: the ensemble removes them again when they
// have been of use and are empty.
func Ensure(ctx context.Context, s *embed.Session, path string) error {
	_, ok, err := s.Exists(ctx, path)
	var no *embed.OpError
	if errors.Is(err, embed.ErrInvalidPath) && errors.As(err, &no) {
		return no.Err // whoever uses it would tell of a path below it, which no caller has written
	}
	if ok || err != nil {
		return nil // what is wrong with it is told by whoever uses it
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, ok, err := s.Exists(ctx, path[:i])
		if ok || errors.Is(err, embed.ErrNoAuth) { // of a znode that is there
			continue
		}
		if err != nil {
			return err
		}
		_, err = s.Create(ctx, path[:i], nil, embed.Container)
		switch {
		case err == nil, errors.Is(err, embed.ErrNodeExists):
		case errors.Is(err, embed.ErrNoNode) && strings.LastIndexByte(path[:i], '/') > 0:
			i = 0 // its parent has been reaped meanwhile; only the session's root would never come
		default:
			return err
		}
	}
	return nil
}

// Path is that of its znode, or of the first of several.
func (c *Contender) Path() string { return c.Paths[0] }

// Order returns the two numbers of its token.
func (c *Contender) Order() (zxid embed.Zxid, local uint64) {
	_, name := Split(c.Path())
	return Order(name, c.Czxid)
}

// Is reports whether it is of a kind.
func (c *Contender) Is(k Kind) bool { return c.kind.Word == k.Word }

// Past has it not wait for the contender at a path, which is its owner's too.
func (c *Contender) Past(path string) { c.past = path }

// Wait waits until it is the contender's turn and holds its claim. If it returns an error the contender has left the
// queue, or will as soon as that can be sent.
func (c *Contender) Wait(ctx context.Context) error {
	for {
		first, err := c.Try(ctx)
		switch {
		case first && err == nil:
			return nil
		case !first && err != nil:
			return err
		}
		if err := c.WaitChange(ctx, nil); err != nil {
			return c.Leave(err)
		}
	}
}

// Try holds the claim if it is the contender's turn, and reports whether it is. The error is embed.ErrSuspended if it is
// and the session is not safe at this moment; after any other the contender has left the queue.
func (c *Contender) Try(ctx context.Context) (first bool, err error) {
	ahead, err := c.ahead(ctx)
	if err != nil {
		return false, c.Leave(err)
	}
	if ahead != "" {
		return false, nil
	}
	// First in a state that this node has applied: only its own removal can change that, and every removal but one by
	// hand comes after the session's local deadline, which Hold compares with the clock.
	switch err := c.Hold(); {
	case err == nil:
		return true, nil
	case errors.Is(err, embed.ErrSuspended) && c.Claim.Err() == nil:
		return true, err
	default:
		return false, c.Leave(err)
	}
}

// Hold holds the claim.
func (c *Contender) Hold() (err error) {
	c.Turn, err = c.Claim.Hold(c.again)
	return err
}

// WaitFirst waits until it is the contender's turn, and does not hold its claim. After an error it has left the queue, as of Wait.
func (c *Contender) WaitFirst(ctx context.Context) error {
	for {
		ahead, err := c.ahead(ctx)
		if err == nil && ahead != "" {
			err = c.WaitChange(ctx, nil)
		}
		if err != nil {
			return c.Leave(err)
		}
		if ahead == "" {
			return nil
		}
	}
}

// ahead returns the path of somebody that the contender waits for, or nothing if it is its turn.
func (c *Contender) ahead(ctx context.Context) (string, error) {
	for _, path := range c.Paths {
		for {
			name, waits, err := c.Session.Before(ctx, path, c.kind.After...)
			if err != nil {
				return "", err
			}
			if !waits {
				break
			}
			parent, _ := Split(path)
			if path = Child(parent, name); path != c.past {
				return path, nil
			}
		}
	}
	return "", nil
}

// First reports whether it is the contender's turn.
func (c *Contender) First(ctx context.Context) (bool, error) {
	ahead, err := c.ahead(ctx)
	return ahead == "", err
}

// IsVacant is that of its name.
func (c *Contender) IsVacant() bool {
	_, name := Split(c.Path())
	return IsVacant(name)
}

// Leave gives up the place and returns the reason: why the claim ended if it has, else err. That its owner gave it up is none: he did that
// for another, of which err tells.
func (c *Contender) Leave(err error) error {
	if ended := c.Claim.Err(); ended != nil && !errors.Is(ended, embed.ErrReleased) {
		err = ended
	}
	_ = c.Claim.Release()
	return err
}

// WaitChange waits until somebody ahead has gone, or until the session is Connected again when there is nobody; or until there is an event of
// another watch.
func (c *Contender) WaitChange(ctx context.Context, other <-chan embed.Event) error {
	state, changed := c.Session.State()
	ahead, err := c.ahead(ctx)
	if err != nil {
		return err
	}
	if ahead == "" {
		if state == embed.Connected {
			return nil
		}
		return c.sleep(ctx, changed, nil, other, 0)
	}
	watch, err := c.Session.Watch(ctx, ahead, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer watch.Close()
	// It may have gone before the watch was armed.
	stat, ok, err := c.Session.Exists(ctx, ahead)
	if err != nil && !errors.Is(err, embed.ErrNoAuth) || err == nil && !ok {
		return err // or nil, if it is gone; one that may not be read is there, and the watch ends without telling
	}
	var delay time.Duration
	if ok && stat.EphemeralOwner == 0 {
		if delay, err = c.outwait(ctx, ahead); err != nil || delay < 0 {
			return err
		}
	}
	return c.sleep(ctx, nil, watch.Events(), other, delay)
}

// outwait returns how long somebody ahead that its session has lost is still in the way; see Outwait.
func (c *Contender) outwait(ctx context.Context, ahead string) (time.Duration, error) {
	_, name := Split(ahead)
	if delayOf(name) == 0 {
		return 0, nil // somebody else's znode
	}
	after := KindOf(name).After
	if IsUpgrading(name) {
		after = Read.After // it may have been in beside its own read Hold
	}
	before, waited, err := c.Session.Before(ctx, ahead, after...)
	if err == nil && waited && !IsUpgrading(before) { // which may be its own, come in front of it while it was in
		return remove(ctx, c.Session, ahead) // it cannot have held anything
	}
	if c.seen == nil {
		c.seen = make(map[string]time.Time)
	}
	left, err := Outwait(ctx, c.Session, ahead, c.seen)
	// Readers who were lost together have their delays together.
	for path := ahead; err == nil && left > 0; {
		parent, _ := Split(path)
		before, ok, gone := c.Session.Before(ctx, path)
		if !ok || gone != nil {
			break
		}
		path = Child(parent, before)
		_, _ = Outwait(ctx, c.Session, path, c.seen)
	}
	return left, err
}

// Outwait returns how long a contender that its session has lost is still in the way: zero if it is no such contender, or nobody here
// knows. It removes it when that is over, and then returns less than zero. seen says when each was seen first.
func Outwait(ctx context.Context, s *embed.Session, path string, seen map[string]time.Time) (time.Duration, error) {
	_, name := Split(path)
	delay := delayOf(name)
	if delay == 0 {
		return 0, nil
	}
	stat, ok, err := s.Exists(ctx, path)
	if err != nil || !ok || stat.EphemeralOwner != 0 {
		return 0, err
	}
	first, known := seen[path]
	if !known {
		first = time.Now()
		seen[path] = first
	}
	if left := delay - time.Since(first); left > 0 {
		return left, nil
	}
	return remove(ctx, s, path)
}

// remove deletes a contender that nobody owns any more.
func remove(ctx context.Context, s *embed.Session, path string) (time.Duration, error) {
	err := s.Delete(ctx, path, embed.AnyVersion)
	switch {
	case errors.Is(err, embed.ErrNoAuth), errors.Is(err, embed.ErrNotEmpty):
		return 0, nil // the ensemble does it, once it can
	case errors.Is(err, embed.ErrNoNode), Unanswered(err):
		err = nil
	}
	return -1, err
}

// sleep waits for an event; a limit of zero is none.
func (c *Contender) sleep(ctx context.Context, changed <-chan struct{}, events, other <-chan embed.Event, limit time.Duration) error {
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-changed:
	case <-events: // closed too: whatever ended the watch, look again
	case <-other:
	case <-over:
	case <-c.Claim.Done():
		return c.Claim.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// First returns the name of the contender whose turn it is among a parent's children, or false if there is none.
func First(names []string) (string, bool) {
	first := ""
	for _, name := range names {
		if _, ok := sequence(name); ok && (first == "" || before(name, first) < 0) {
			first = name
		}
	}
	return first, first != ""
}

// Sorted returns the contenders among a parent's children, in order.
func Sorted(names []string) []string {
	list := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := sequence(name); return !ok })
	slices.SortFunc(list, before)
	return list
}

// Waits reports whether a newcomer of a kind would wait for one of a parent's children.
func Waits(k Kind, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := sequence(name)
		return ok && (len(k.After) == 0 || slices.ContainsFunc(k.After, func(word string) bool { return strings.Contains(name, word) }))
	})
}
