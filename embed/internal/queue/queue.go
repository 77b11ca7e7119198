package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// ErrExhausted says that the parent's create counter has reached its end. No number is left for
// another contender.
var ErrExhausted = errors.New("the parent znode has used up its sequence numbers: use another path, or wait until nobody is left and it is removed")

// A Contender stands in a queue, or in several at once, until it is released. Only one goroutine
// may use it at a time.
type Contender struct {
	Session *embed.Session
	Claim   *claim.Claim
	Tenure  *claim.Tenure // of its claim, once it is first
	Paths   []string      // of its znodes
	Czxid   embed.Zxid    // of their create
	kind    Kind
	again   bool
	ignored string               // the path of a contender that it does not wait for
	seen    map[string]time.Time // when it first saw the loss of each contender ahead
}

// An Entry says how a contender enters. Only Kind is required.
type Entry struct {
	Kind     Kind
	Data     []byte
	Words    []string      // in its name, besides those for the fields below
	Delay    time.Duration // how long it lingers when its session is lost
	Identity string        // who may take over its place meanwhile; empty: nobody
	Again    bool          // its claim may be held more than once
	Prompt   bool          // without a quorum it fails with embed.ErrUnavailable instead of waiting
}

// words returns all words of an entry's name.
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
func (e *Entry) Create(parent string) embed.Op { return e.next(parent, false) }

// next is Create. With parents, the operation also creates what is missing of the parent.
func (e *Entry) next(parent string, parents bool) embed.Op {
	return e.create(newName(prefix, "", e.Kind, e.words()), "", parent, parents)
}

// create returns the operation that creates a contender under a parent. If number is empty, the
// contender gets the parent's next one.
func (e *Entry) create(name, number, parent string, parents bool) embed.Op {
	mode := embed.EphemeralSequential
	if number != "" {
		mode = embed.Ephemeral
	}
	o := embed.CreateOptions{Mode: mode, TTL: e.Delay, Parents: parents}
	return counted(embed.OpCreateWith(Child(parent, name+number), e.Data, o), e.Kind.is)
}

// Enter queues a contender under each parent, all in one transaction. The transaction also creates
// missing parents, as containers. So a parent never stays that has had no contender, which the
// ensemble would not remove. If ctx ends first, nothing stays in the queues.
func Enter(ctx context.Context, s *embed.Session, e Entry, parents ...string) (*Contender, error) {
	if slices.Contains(parents, "") {
		// With a name appended, it would mean a child of the root.
		return nil, fmt.Errorf("%w: it is empty", embed.ErrInvalidPath)
	}
	for {
		ops := make([]embed.Op, len(parents))
		for i, parent := range parents {
			missing, err := isMissing(ctx, s, parent)
			if err != nil {
				return nil, err
			}
			ops[i] = e.next(parent, missing)
		}
		c, err := e.Claim(ctx, s, ops...)
		if !errors.Is(err, embed.ErrNoNode) { // else a parent has been removed meanwhile
			return c, err
		}
	}
}

// Claim submits a transaction that creates contenders, and waits for its outcome.
func (e *Entry) Claim(ctx context.Context, s *embed.Session, ops ...embed.Op) (*Contender, error) {
	submit := Submit
	if e.Prompt {
		submit = submitOnce
	}
	made, results, err := submit(ctx, s, ops...)
	if err != nil {
		return nil, err
	}
	c := &Contender{Session: s, Claim: made, kind: e.Kind, again: e.Again}
	for _, r := range results {
		if r.Path != "" {
			c.Paths, c.Czxid = append(c.Paths, r.Path), r.Stat.Czxid
		}
	}
	for _, path := range c.Paths {
		if strings.HasSuffix(path, lastNumber) {
			return nil, errors.Join(ErrExhausted, made.Release())
		}
	}
	return c, nil
}

// Submit claims what operations create, and waits for the outcome as long as ctx and the session
// last. It outlasts the lack of a quorum, and whatever else refuses transactions for a while. After
// an error the node deletes what was created once it knows the outcome.
func Submit(ctx context.Context, s *embed.Session, ops ...embed.Op) (c *claim.Claim, results []embed.Result, err error) {
	err = retry(ctx, s, isRefused, func() (err error) {
		c, results, err = submit(ctx, s, (*claim.Claim).Await, ops)
		return err
	})
	if ended := s.Err(); ended != nil && errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
		err = ended // what was created goes with the session
	}
	return c, results, err
}

// submitOnce is Submit for who waits for nothing. What was created is taken back, or is empty
// containers, so an unknown outcome has no effect.
func submitOnce(ctx context.Context, s *embed.Session, ops ...embed.Op) (*claim.Claim, []embed.Result, error) {
	c, results, err := submit(ctx, s, (*claim.Claim).Created, ops)
	if errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
		err = cmp.Or(s.Err(), embed.ErrUnavailable)
	}
	return c, results, err
}

// Hold holds a claim. While the session is not safe, it waits.
func Hold(ctx context.Context, s *embed.Session, c *claim.Claim) (*claim.Tenure, error) {
	for {
		_, changed := s.State()
		tenure, err := c.Hold(false)
		if !errors.Is(err, embed.ErrSuspended) || c.Err() != nil {
			return tenure, err
		}
		select {
		case <-changed:
		case <-c.Done():
			return nil, c.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type outcome = func(*claim.Claim, context.Context) ([]embed.Result, error)

// submit claims what operations create, and returns the outcome for which wait waits.
func submit(ctx context.Context, s *embed.Session, wait outcome, ops []embed.Op) (*claim.Claim, []embed.Result, error) {
	c, err := claim.New(ctx, s, ops...)
	if err != nil {
		return nil, nil, err
	}
	results, err := wait(c, ctx)
	if err != nil {
		_ = c.Release()
		return nil, nil, err
	}
	return c, results, nil
}

// Unanswered reports whether a call failed because no quorum answered it in time.
func Unanswered(err error) bool {
	return errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)
}

// retryPause is the time between two attempts of a call that gets no answer.
const retryPause = 50 * time.Millisecond

// isRefused reports whether a call was not carried out, for a reason that passes.
func isRefused(err error) bool { return errors.Is(err, embed.ErrUnavailable) }

// Retry calls fn again while no quorum answers, as long as ctx and the session last.
func Retry(ctx context.Context, s *embed.Session, fn func() error) error {
	return retry(ctx, s, Unanswered, fn)
}

// retry calls fn again while its error passes.
func retry(ctx context.Context, s *embed.Session, passes func(error) bool, fn func() error) error {
	for {
		err := fn()
		if !passes(err) {
			return err
		}
		if ended := s.Err(); ended != nil {
			return ended
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Rehearse returns why the ensemble would refuse operations now, or nil. Nothing is applied: after
// them comes one that always fails. path is on their shard. It is for what runs before its last step,
// which could turn out to be impossible.
func Rehearse(ctx context.Context, s *embed.Session, path string, ops ...embed.Op) error {
	_, err := s.Multi(ctx, append(slices.Clone(ops), claim.OpCheckCzxid(path, 0))...)
	if refused, ok := errors.AsType[*embed.MultiError](err); ok && refused.Index == len(ops) {
		return nil
	}
	return err
}

// Sync waits until this node shows all that was acknowledged before the call, anywhere, and returns
// what embed.Session.Sync does. Unlike that, it outlasts the lack of a quorum.
func Sync(ctx context.Context, s *embed.Session, path string) (at embed.Zxid, err error) {
	err = Retry(ctx, s, func() error {
		at, err = s.Sync(ctx, path)
		return err
	})
	return at, err
}

// Follow watches a znode, and returns the state from which the events go on. Events up to Since are of
// what happened before the ensemble was asked. It outlasts whatever passes.
func Follow(ctx context.Context, s *embed.Session, path string, buffer int) (f inside.Followed, err error) {
	err = Retry(ctx, s, func() error {
		f, err = (*inside.Session)(s).Parts().Follow(ctx, path, buffer)
		return err
	})
	return f, err
}

// Within calls fn, which creates a znode below a parent. fn is told whether to create what is missing
// above it too, in the same transaction; see embed.CreateOptions.Parents. So a parent never stays
// that has had no child, which the ensemble would not remove. fn is called again after
// embed.ErrNoNode.
func Within(ctx context.Context, s *embed.Session, parent string, fn func(parents bool) error) error {
	for {
		missing, err := isMissing(ctx, s, parent)
		if err != nil {
			return err
		}
		if err := fn(missing); !errors.Is(err, embed.ErrNoNode) { // else the parent has been removed meanwhile
			return err
		}
	}
}

// Ensure creates a znode and those above it that are missing, as containers. The ensemble removes a
// container that has had children and is empty again.
func Ensure(ctx context.Context, s *embed.Session, path string) error {
	missing, err := isMissing(ctx, s, path)
	if !missing || err != nil {
		return err
	}
	return create(ctx, s, path)
}

// isMissing reports whether this node's replica has no znode at a path. Of the errors it returns
// only that of an invalid path; the call that uses the znode reports others.
func isMissing(ctx context.Context, s *embed.Session, path string) (bool, error) {
	_, ok, err := s.Exists(ctx, path)
	var no *embed.OpError
	if errors.Is(err, embed.ErrInvalidPath) && errors.As(err, &no) {
		// The call that uses the znode would name a path below it, which no caller has written.
		return false, no.Err
	}
	return !ok && err == nil, nil
}

// create creates a znode and those above it that are missing, as containers.
func create(ctx context.Context, s *embed.Session, path string) error {
	_, _, err := s.CreateWith(ctx, path, nil, embed.CreateOptions{Mode: embed.Container, Parents: true})
	if errors.Is(err, embed.ErrNodeExists) {
		return nil
	}
	return err
}

// Path returns the path of the contender's znode, or of the first of several.
func (c *Contender) Path() string { return c.Paths[0] }

// Order returns the two numbers of the contender's token.
func (c *Contender) Order() (zxid embed.Zxid, local uint64) {
	_, name := Split(c.Path())
	return Order(name, c.Czxid)
}

// Is reports whether the contender is of a kind.
func (c *Contender) Is(k Kind) bool { return c.kind.Word == k.Word }

// Ignore makes the contender not wait for the one at path, which has the same owner.
func (c *Contender) Ignore(path string) { c.ignored = path }

// Wait waits until the contender is first and holds its claim. After an error the contender has
// left the queue; if its znode cannot be deleted at once, the node does so as soon as it can.
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

// Try holds the claim if the contender is first, and reports whether it is first. If it is first
// but the session is not safe at this moment, the error is embed.ErrSuspended. After any other
// error the contender has left the queue.
func (c *Contender) Try(ctx context.Context) (first bool, err error) {
	ahead, err := c.ahead(ctx)
	if err != nil {
		return false, c.Leave(err)
	}
	if ahead != "" {
		return false, nil
	}
	// The contender is first in a state that this node has applied. Only its own removal can change
	// that. Every removal but one by hand comes after the session's local deadline, which Hold
	// compares with the clock.
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
	c.Tenure, err = c.Claim.Hold(c.again)
	return err
}

// WaitFirst waits until the contender is first. It does not hold the claim. After an error the
// contender has left the queue, as with Wait.
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

// ahead returns the path of a contender that c waits for, or nothing if c is first.
func (c *Contender) ahead(ctx context.Context) (string, error) {
	for _, path := range c.Paths {
		for {
			name, waits, err := claim.Before(ctx, c.Session, path, c.kind.After...)
			if err != nil {
				return "", err
			}
			if !waits {
				break
			}
			parent, _ := Split(path)
			if path = Child(parent, name); path != c.ignored {
				return path, nil
			}
		}
	}
	return "", nil
}

// First reports whether the contender is first.
func (c *Contender) First(ctx context.Context) (bool, error) {
	ahead, err := c.ahead(ctx)
	return ahead == "", err
}

// NeedsGrant reports whether the contender, once it is first, still needs a grant of its place.
func (c *Contender) NeedsGrant() bool {
	_, name := Split(c.Path())
	return NeedsGrant(name)
}

// Leave gives up the place. It returns the reason for which the claim had ended, or else err. If
// the owner had released the claim itself, it did so because of err, so Leave returns err.
func (c *Contender) Leave(err error) error {
	if ended := c.Claim.Err(); ended != nil && !errors.Is(ended, embed.ErrReleased) {
		err = ended
	}
	_ = c.Claim.Release()
	return err
}

// WaitChange waits until the contender ahead has gone. If nobody is ahead and the session is not
// Connected, it waits until its state changes. It also returns at an event of other, a channel of
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
	// The contender ahead may have gone before the watch was armed.
	stat, ok, err := c.Session.Exists(ctx, ahead)
	if errors.Is(err, embed.ErrNoAuth) {
		return c.waitHidden(ctx, ahead, other)
	}
	if err != nil || !ok {
		return err // nil if it is gone
	}
	var delay time.Duration
	if stat.EphemeralOwner == 0 {
		delay, err = c.outwait(ctx, ahead, stat.Mzxid)
		if err != nil || delay < 0 {
			return err
		}
	}
	return c.sleep(ctx, nil, watch.Events(), other, delay)
}

// waitHidden is WaitChange for a contender ahead that the session may not read. So it need not be told
// of that contender's end. It looks whenever a contender comes or goes.
func (c *Contender) waitHidden(ctx context.Context, ahead string, other <-chan embed.Event) error {
	parent, _ := Split(ahead)
	watch, err := c.Session.Watch(ctx, parent, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer watch.Close()
	if _, _, err := c.Session.Exists(ctx, ahead); !errors.Is(err, embed.ErrNoAuth) {
		return err // nil if it is gone
	}
	return c.sleep(ctx, nil, watch.Events(), other, 0)
}

// outwait returns how long a contender at ahead, which was lost in transaction lost, still keeps c
// waiting; see Outwait.
func (c *Contender) outwait(ctx context.Context, ahead string, lost embed.Zxid) (time.Duration, error) {
	_, name := Split(ahead)
	if delayOf(name) == 0 {
		return 0, nil // not a contender with a delay
	}
	after := KindOf(name).After
	if IsUpgrading(name) {
		after = Read.After // it may have held the lock together with its own read Hold
	}
	before, waited, err := claim.Before(ctx, c.Session, ahead, after...)
	// An upgrading contender before it may be its own, which came in front of it while it held the
	// lock.
	if err == nil && waited && !IsUpgrading(before) {
		return remove(ctx, c.Session, ahead, lost) // it cannot have held anything
	}
	if c.seen == nil {
		c.seen = make(map[string]time.Time)
	}
	left, err := Outwait(ctx, c.Session, ahead, c.seen)
	// Readers that were lost together serve their delays together.
	for path := ahead; err == nil && left > 0; {
		parent, _ := Split(path)
		before, ok, gone := claim.Before(ctx, c.Session, path)
		if !ok || gone != nil {
			break
		}
		path = Child(parent, before)
		_, _ = Outwait(ctx, c.Session, path, c.seen)
	}
	return left, err
}

// Outwait returns how long a lost contender still keeps others waiting. It returns zero if the
// contender is not lost or has no delay. When the delay is over, Outwait deletes the contender and
// returns less than zero. seen has the time at which each loss was first seen.
func Outwait(ctx context.Context, s *embed.Session, path string, seen map[string]time.Time) (time.Duration, error) {
	_, name := Split(path)
	delay := delayOf(name)
	if delay == 0 {
		return 0, nil
	}
	stat, ok, err := s.Exists(ctx, path)
	if errors.Is(err, embed.ErrNoAuth) {
		return 0, nil // whether it is lost cannot be known: the ensemble deletes it once it can
	}
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
	return remove(ctx, s, path, stat.Mzxid)
}

// remove deletes a contender that was lost in transaction lost. What has the name of one, and is
// there to stay, keeps others waiting.
func remove(ctx context.Context, s *embed.Session, path string, lost embed.Zxid) (time.Duration, error) {
	_, err := s.Multi(ctx, claim.OpCheckLost(path, lost), embed.OpDelete(path, embed.AnyVersion))
	switch {
	case errors.Is(err, embed.ErrNoAuth), errors.Is(err, embed.ErrNotEmpty), errors.Is(err, embed.ErrBadVersion):
		return 0, nil // the ensemble deletes it once it can
	case errors.Is(err, embed.ErrNoNode), Unanswered(err):
		err = nil
	}
	return -1, err
}

// sleep waits for an event, for limit at most; a limit of zero means none.
func (c *Contender) sleep(ctx context.Context, changed <-chan struct{}, events, other <-chan embed.Event, limit time.Duration) error {
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-changed:
	case <-events: // also when the channel is closed: the watch has ended, so look again
	case <-other:
	case <-over:
	case <-c.Claim.Done():
		return c.Claim.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// First returns the name of the first contender among a parent's children, or false if there is
// none.
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

// Waits reports whether a new contender of a kind would wait for one of a parent's children.
func Waits(k Kind, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := sequence(name)
		return ok && (len(k.After) == 0 || slices.ContainsFunc(k.After, func(word string) bool { return strings.Contains(name, word) }))
	})
}
