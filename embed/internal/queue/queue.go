package queue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// lastNumber is where the create counter of a znode stands still. From there on all contenders get the same number, which no
// longer tells who came first, so nobody stands in a queue with it.
const lastNumber = "2147483647"

// ErrExhausted says that the parent's create counter has come to its end: no number is left for another contender.
var ErrExhausted = errors.New("the parent znode has used up its sequence numbers: take another path")

// A Contender stands in a queue until it is released.
type Contender struct {
	Session *embed.Session
	Claim   *embed.Claim
	Path    string     // of its znode
	Zxid    embed.Zxid // of its creation: in order of arrival, the commit that grants its turn
	parent  string
}

// Enter queues a contender under parent, which is created if it is missing. kind is the word in its name; data is what its
// znode holds. It outwaits a quorum that is away. If ctx ends first nothing is left in the queue.
func Enter(ctx context.Context, s *embed.Session, parent, kind string, data []byte) (*Contender, error) {
	return enter(ctx, s, parent, kind, data, true)
}

// TryEnter is Enter for who does not wait: if no quorum answers in the time that a call has, it ends with
// embed.ErrUnavailable.
func TryEnter(ctx context.Context, s *embed.Session, parent, kind string) (*Contender, error) {
	c, err := enter(ctx, s, parent, kind, nil, false)
	if errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
		err = embed.ErrUnavailable // whatever is on its way is taken back: nothing comes of it
	}
	return c, err
}

func enter(ctx context.Context, s *embed.Session, parent, kind string, data []byte, patient bool) (*Contender, error) {
	if parent == "" {
		return nil, fmt.Errorf("%w: it is empty", embed.ErrInvalidPath) // with a name it would be one below the root
	}
	for {
		// What this node does not have is made first: to have the claim refused for it would cost a commit.
		if _, ok, err := s.Exists(ctx, parent); err == nil && !ok {
			if err := makePath(ctx, s, parent); err != nil && !(patient && unanswered(err)) {
				return nil, err
			}
		}
		claim, err := s.Claim(ctx, Child(parent, "_c_"+newUUID()+"-"+kind+"-"), data, embed.EphemeralSequential)
		if err != nil {
			return nil, err
		}
		path, stat, err := claim.Created(ctx)
		for patient && late(claim, err) {
			path, stat, err = claim.Created(ctx)
		}
		switch {
		case err == nil && strings.HasSuffix(path, lastNumber):
			return nil, errors.Join(ErrExhausted, claim.Release())
		case err == nil:
			return &Contender{Session: s, Claim: claim, Path: path, Zxid: stat.Czxid, parent: parent}, nil
		case errors.Is(err, embed.ErrNoNode): // it has been reaped meanwhile
		default:
			_ = claim.Release() // the node sees to it once the outcome is known
			return nil, err
		}
	}
}

// late reports whether an error of Created means that the claim's znode is still on its way.
func late(claim *embed.Claim, err error) bool {
	return errors.Is(err, embed.ErrUnknownOutcome) && claim.Err() == nil
}

// unanswered reports whether a call ended because no quorum answered it in time.
func unanswered(err error) bool {
	return errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)
}

// makePath creates a znode and those above it that are missing, as containers: the ensemble removes them again when they
// have been of use and are empty.
func makePath(ctx context.Context, s *embed.Session, path string) error {
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
		if err := c.waitChange(ctx); err != nil {
			_ = c.Claim.Release()
			return err
		}
	}
}

// Try holds the claim if it is the contender's turn, and reports whether it is. The error is embed.ErrSuspended if it is
// and the session is not safe at this moment; after any other the contender has left the queue.
func (c *Contender) Try(ctx context.Context) (first bool, err error) {
	_, waits, err := c.Session.Before(ctx, c.Path)
	if err != nil {
		return false, c.leave(err)
	}
	if waits {
		return false, nil
	}
	// First in a state that this node has applied: only its own removal can change that, and every removal but one by
	// hand comes after the session's local deadline, which Hold compares with the clock.
	switch err := c.Claim.Hold(); {
	case err == nil:
		return true, nil
	case errors.Is(err, embed.ErrSuspended) && c.Claim.Err() == nil:
		return true, err
	default:
		return false, c.leave(err)
	}
}

// leave gives up the place and returns the reason: why the claim ended if it has, else err.
func (c *Contender) leave(err error) error {
	if ended := c.Claim.Err(); ended != nil {
		err = ended
	}
	_ = c.Claim.Release()
	return err
}

// waitChange waits until the predecessor has gone, or until the session is Connected again when there is none.
func (c *Contender) waitChange(ctx context.Context) error {
	state, changed := c.Session.State()
	name, waits, err := c.Session.Before(ctx, c.Path)
	if err != nil {
		return c.leave(err)
	}
	if !waits {
		if state == embed.Connected {
			return nil
		}
		return c.sleep(ctx, changed, nil)
	}
	watch, err := c.Session.Watch(ctx, Child(c.parent, name), embed.WatchOnce)
	if err != nil {
		return c.leave(err)
	}
	defer watch.Close()
	// It may have gone before the watch was armed.
	_, ok, err := c.Session.Exists(ctx, Child(c.parent, name))
	if err != nil && !errors.Is(err, embed.ErrNoAuth) || err == nil && !ok {
		return err // or nil, if it is gone; one that may not be read is there, and the watch ends without telling
	}
	return c.sleep(ctx, nil, watch.Events())
}

func (c *Contender) sleep(ctx context.Context, changed <-chan struct{}, events <-chan embed.Event) error {
	select {
	case <-changed:
	case <-events: // closed too: whatever ended the watch, look again
	case <-c.Claim.Done():
		return c.Claim.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// First returns the name of the contender whose turn it is among a parent's children, or false if there is none.
func First(names []string) (string, bool) {
	first, least := "", ""
	for _, name := range names {
		suffix, ok := sequence(name)
		if ok && (first == "" || suffix < least || suffix == least && name < first) {
			first, least = name, suffix
		}
	}
	return first, first != ""
}

// sequence returns the ten digits a contender's name ends in.
func sequence(name string) (string, bool) {
	if len(name) < 10 {
		return "", false
	}
	suffix := name[len(name)-10:]
	return suffix, strings.Trim(suffix, "0123456789") == ""
}

// Child returns the path of a child.
func Child(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// newUUID returns a random UUID (version 4) in its usual form.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := make([]byte, 0, 36)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}
