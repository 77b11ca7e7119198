package barrier

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

const (
	// readyName is the child that says that enough have come, for members that do not follow every
	// change.
	readyName = "ready"
	// readyTime is how long it stays after a round in which nobody has left by Leave. Who waits for it
	// has seen it by then.
	readyTime = 10 * time.Minute
	// checksMax bounds the bytes of the paths that open checks in one transaction, well below what a
	// client may send at once.
	checksMax = 512 << 10
)

// A Pass says that its owner has entered a barrier. Leave may be called by one goroutine at a time.
type Pass struct {
	session *embed.Session
	path    string
	claim   *claim.Claim
	others  map[string]embed.Zxid // who was there when the barrier opened, with their czxid
}

// Enter waits until n members are in the barrier on a path, and is one of them meanwhile. It passes
// if n were there at any one zxid since it came, even if some have left or are lost by now. The
// package doc says what it may miss. A member that is lost before that counts no longer. More than n may pass: n is a threshold.
// Every ephemeral below the path that the session may read is a member, and nothing else is.
//
// Use a path for each round. If rounds share one, a member that comes while those of the last round
// still leave passes with them, as in Curator. A member whose process is lost in the barrier counts
// until its session ends. If the sessions of a round end without Leave, its znodes go ten minutes
// after it has opened.
//
// Clients of Curator and kazoo wait for a znode that a transaction creates which checks all members.
// It has no room for more than half a MiB of their paths, which is some thousand members, and the
// ensemble may refuse it, as where a hard quota is full. Then only callers of Enter pass.
//
// Enter creates missing parents as containers. It is bounded by ctx alone, and outlasts the lack of a
// quorum. After an error the node deletes the member's znode as soon as it can send that, at the
// latest with the session. Until then others may count it.
//
// Errors: the ctx's error, embed.ErrInvalidArgument if n is not positive, embed.ErrDeleted if
// somebody deleted the member's znode, and those of embed.Session.Create.
func Enter(ctx context.Context, s *embed.Session, path string, n int) (*Pass, error) {
	m := &member{crowd: crowd{session: s, path: path, counts: isMember}, n: n}
	err := m.enter(ctx)
	if err != nil {
		return nil, wrap("enter", path, m.giveUp(err))
	}
	others := maps.Clone(m.here)
	delete(others, m.own)
	delete(others, readyName)
	return &Pass{session: s, path: path, claim: m.claim, others: others}, nil
}

// isMember reports whether a child is a member or ready.
func isMember(name string, stat embed.Stat) bool {
	return stat.EphemeralOwner != 0 || name == readyName
}

// A member waits in the barrier.
type member struct {
	crowd
	n     int
	claim *claim.Claim
	own   string     // its name
	since embed.Zxid // its czxid
}

func (m *member) enter(ctx context.Context) error {
	if m.n < 1 {
		return fmt.Errorf("%w: a barrier of %d members", embed.ErrInvalidArgument, m.n)
	}
	for {
		if err := m.arm(ctx); err != nil {
			return err
		}
		err := m.come(ctx) // the watch is armed before
		passed := false
		if err == nil {
			passed, err = m.until(ctx, m.claim.Done(), m.claim.Err, func() (bool, error) { return m.look(ctx) })
		}
		m.close()
		if passed || err != nil {
			return err
		}
	}
}

// come creates the member's znode, if it has none.
func (m *member) come(ctx context.Context) error {
	if m.claim != nil {
		return nil
	}
	m.own = strings.ToLower(rand.Text())
	return queue.Within(ctx, m.session, m.path, func(parents bool) error {
		how := embed.CreateOptions{Mode: embed.Ephemeral, Parents: parents}
		create := embed.OpCreateWith(queue.Child(m.path, m.own), nil, how)
		c, results, err := queue.Submit(ctx, m.session, create)
		if err != nil {
			return err
		}
		m.claim, m.since = c, results[0].Stat.Czxid
		return nil
	})
}

// giveUp leaves the barrier, and returns why.
func (m *member) giveUp(err error) error {
	if m.claim == nil {
		return err
	}
	if ended := m.claim.Err(); ended != nil {
		err = ended
	}
	_ = m.claim.Release() // if it cannot be sent the node keeps trying until the session ends
	return err
}

// look reports whether the member may pass in the state that it knows. If n are there it first
// creates ready, in the place of one that is left over.
func (m *member) look(ctx context.Context) (bool, error) {
	ready, isReady := m.here[readyName]
	members := len(m.here)
	if isReady {
		members--
	}
	switch {
	case m.at < m.since:
		return false, nil
	case isReady && m.sawReady(ready):
		return true, nil
	case isReady:
		if err := m.removeStale(ctx, ready); err != nil {
			return false, err
		}
		delete(m.here, readyName)
	}
	if members < m.n {
		return false, nil
	}
	return true, m.open(ctx)
}

// sawReady reports whether somebody is there who was there when ready was created. If nobody is, it
// is left over from a round whose members were lost.
func (m *member) sawReady(ready embed.Zxid) bool {
	for name, czxid := range m.here {
		if name != readyName && czxid < ready {
			return true
		}
	}
	return false
}

// open creates ready in a transaction that checks that n members are there. Those who follow every
// change need no ready, and pass without it. So no refusal counts: some members may have left, since
// they have passed, or there is no room for a znode more. Nor does it count that there is no answer,
// or that the members are too many to be checked at once.
func (m *member) open(ctx context.Context) error {
	how := embed.CreateOptions{Mode: embed.TTL, TTL: readyTime}
	ops := []embed.Op{embed.OpCreateWith(queue.Child(m.path, readyName), nil, how)}
	size := 0
	for name := range m.here {
		if name == readyName || len(ops) > m.n {
			continue
		}
		path := queue.Child(m.path, name)
		if size += len(path); size > checksMax {
			return nil
		}
		ops = append(ops, embed.OpCheck(path, embed.AnyVersion))
	}
	if _, err := m.session.Multi(ctx, ops...); err != nil {
		return cmp.Or(ctx.Err(), m.session.Err())
	}
	return nil
}

// removeStale deletes a ready that is left over, unless it is another one by now.
func (m *member) removeStale(ctx context.Context, ready embed.Zxid) error {
	err := queue.Retry(ctx, m.session, func() error {
		_, err := m.session.Multi(ctx, removeReady(m.path, ready)...)
		return err
	})
	if errors.Is(err, embed.ErrNoNode) || errors.Is(err, embed.ErrBadVersion) {
		return nil
	}
	return err
}

// removeReady returns the operations that delete the ready of one creation, which nobody sets.
func removeReady(path string, czxid embed.Zxid) []embed.Op {
	ready := queue.Child(path, readyName)
	return []embed.Op{embed.OpCheckMzxid(ready, czxid), embed.OpDelete(ready, embed.AnyVersion)}
}

// Leave leaves the barrier. Then it waits for those who were there when it opened for this member,
// until all of them have left or are lost, even if it may not read their znodes any more. It does
// not wait for those who came later. If ctx ends first, the member has left all the same. The error
// then names who is still there, at most 20, and Leave may be called again. Other errors:
// embed.ErrNoAuth if the session may not read the barrier's znode, and those of an ended session.
func (p *Pass) Leave(ctx context.Context) error { return wrap("leave", p.path, p.leave(ctx)) }

func (p *Pass) leave(ctx context.Context) error {
	if err := p.claim.Release(); err != nil && p.session.Err() != nil {
		return err
	}
	for {
		alone, err := p.await(ctx)
		switch {
		case alone:
			p.tidy(ctx)
			return nil
		case err != nil && len(p.others) > 0 && ctx.Err() != nil:
			return fmt.Errorf("%w: still there: %s", err, listed(slices.Sorted(maps.Keys(p.others))))
		case err != nil:
			return err
		}
	}
}

// await waits until the others have gone. It returns false if it must look again.
func (p *Pass) await(ctx context.Context) (alone bool, err error) {
	c := crowd{session: p.session, path: p.path}
	if err := c.arm(ctx); err != nil {
		return false, err
	}
	defer c.close()
	if c.hidden > 0 {
		return p.awaitHidden(ctx, &c)
	}
	return c.until(ctx, p.session.Done(), p.session.Err, func() (bool, error) { return p.look(&c), nil })
}

// awaitHidden is await for a crowd that has members that it may not read. Their names tell whether
// they are there.
func (p *Pass) awaitHidden(ctx context.Context, c *crowd) (alone bool, err error) {
	w, err := p.session.Watch(ctx, p.path, embed.WatchOnce)
	if err != nil {
		return false, err
	}
	defer w.Close()
	names, _, err := p.session.Children(ctx, p.path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return false, err
	}
	here := make(map[string]embed.Zxid)
	for _, name := range names {
		here[name] = cmp.Or(c.here[name], p.others[name])
	}
	if c.here = here; p.look(c) {
		return true, nil
	}
	select {
	case <-w.Events():
		return false, p.session.Err()
	case <-p.session.Done():
		return false, p.session.Err()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// listed returns a text of the first names.
func listed(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// look forgets the others who have gone, and reports whether all have.
func (p *Pass) look(c *crowd) bool {
	maps.DeleteFunc(p.others, func(name string, czxid embed.Zxid) bool { return c.here[name] != czxid })
	return len(p.others) == 0
}

// tidy deletes ready if nobody is left in the barrier. If it fails, the next round does so.
func (p *Pass) tidy(ctx context.Context) {
	if stat, there, err := p.session.Exists(ctx, queue.Child(p.path, readyName)); there && err == nil {
		_, _ = p.session.Multi(ctx, append(removeReady(p.path, stat.Mzxid), embed.OpCheckChildren(p.path, 0))...)
	}
}
