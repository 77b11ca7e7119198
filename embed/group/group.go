package group

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/view"
)

// settleMax is how many times Options.Settle members that join are held back at most.
const settleMax = 10

// A Group shows the members of a directory. Its methods may be called by any number of goroutines.
// Members goes on to show the last state after the Group has ended.
type Group struct {
	dir    string
	layout Layout
	settle time.Duration
	view   *view.View[[]byte]
}

// Watch returns the Group of a directory. The znode of the directory need not exist; it may also
// come and go later. Each child of it is a member. With the Layout Party, a child without
// "__party__" in its name is none, as in kazoo.
//
// The Group shows what this node's replica does. To begin with every member that was there when
// another node answered, call embed.Session.Sync first.
//
// ctx bounds the call, not the Group. The Group lasts until Close or until the session ends. One
// session should have one Group of a directory, which all share.
//
// Errors: those of view.Open, and embed.ErrInvalidArgument for Options that are out of range.
func Watch(ctx context.Context, s *embed.Session, dir string, o Options) (*Group, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("watch members of %s: %w", dir, err)
	}
	g := &Group{dir: dir, layout: o.Layout, settle: o.Settle}
	keep := func(path string) bool { return true }
	if o.Layout == Party {
		keep = func(path string) bool { return strings.Contains(path[len(dir):], partyWord) }
	}
	var err error
	if g.view, err = view.Open(ctx, s, dir, view.Options[[]byte]{Depth: 1, Keep: keep}); err != nil {
		return nil, fmt.Errorf("watch members of %s: %w", dir, err)
	}
	return g, nil
}

// Members returns the members, sorted by ID and Czxid. It never waits. What it returns is the
// caller's, except Member.Data.
func (g *Group) Members() []Member {
	c := Change{Members: g.members(0)}
	c.sort()
	return c.Members
}

// members returns the members, sorted by path. They are about as many as the caller says.
func (g *Group) members(about int) []Member {
	list := make([]Member, 0, about)
	for path, e := range g.view.All() {
		_, name := queue.Split(path)
		list = append(list, Member{
			ID: g.layout.id(name, e.Value), Path: path, Data: e.Value,
			Czxid: e.Stat.Czxid, Mzxid: e.Stat.Mzxid, Session: e.Stat.EphemeralOwner,
		})
	}
	return list
}

// Changes yields the present members, all as Joined, and then the members after each change. A loop
// that is slow, or that Options.Settle holds back, gets several changes in one. Then a member that
// came and left in between is in none, but the newest state is never missed. When ctx or the Group
// ends, Changes yields that error and stops. Another range over the result begins anew.
func (g *Group) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if err := g.follow(ctx, g.settle, func(c Change) bool { return yield(c, nil) }); err != nil {
			yield(Change{}, fmt.Errorf("members of %s: %w", g.dir, err))
		}
	}
}

// follow calls tell with each Change. It returns nil if tell has returned false.
func (g *Group) follow(ctx context.Context, settle time.Duration, tell func(Change) bool) error {
	var told, seen []Member
	var since, quiet time.Time // when the first and the last of those who are held back were seen
	for first := true; ; {
		zxid := g.view.Zxid()
		now := g.members(len(told) + len(told)/8)
		c := differ(told, now)
		if !first && settle > 0 && len(c.Joined) > 0 && len(c.Left) == 0 {
			if since.IsZero() {
				since, quiet = time.Now(), time.Now()
			} else if news := differ(seen, now); len(news.Joined)+len(news.Left) > 0 {
				quiet = time.Now()
			}
			due := quiet.Add(settle)
			if last := since.Add(settleMax * settle); last.Before(due) {
				due = last
			}
			if seen = now; time.Now().Before(due) {
				if err := g.wait(ctx, zxid, due); err != nil {
					return err
				}
				continue
			}
		}
		since = time.Time{}
		if first || !c.empty() {
			first, told, seen = false, now, now
			c.Members, c.Zxid = slices.Clone(now), zxid
			c.sort()
			if !tell(c) {
				return nil
			}
		}
		if err := g.wait(ctx, zxid, time.Time{}); err != nil {
			return err
		}
	}
}

// wait waits until the view shows a change later than a zxid, or until a time that is not zero.
func (g *Group) wait(ctx context.Context, since embed.Zxid, until time.Time) error {
	bounded := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		bounded, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	for _, err := range g.view.Changes(bounded, since) {
		_, missed := errors.AsType[*embed.GapError](err)
		if missed || ctx.Err() == nil && bounded.Err() != nil {
			return nil
		}
		return err
	}
	return nil
}

// Await waits until ok accepts the members, and returns them. It calls ok with the present members
// and after each change, in its own goroutine. Options.Settle does not delay it. Errors: the ctx's,
// with the members that ok has seen last, and why the Group has ended.
func (g *Group) Await(ctx context.Context, ok func([]Member) bool) (now []Member, err error) {
	err = g.follow(ctx, 0, func(c Change) bool {
		now = c.Members
		return !ok(now)
	})
	if err != nil {
		return now, fmt.Errorf("members of %s: %w", g.dir, err)
	}
	return now, nil
}

// Share yields this process's share of a total: the total divided by the number of members, or the
// whole total while there is none. It yields the present share, and then each one that differs. So
// members can keep a common rate, each with a limiter of its own, without a commit for each
// request.
//
// A share is a local read. Until all have heard of a newcomer, the shares of m old members and the
// newcomer sum up to (m+1)/m of the total. Errors are those of Changes.
func (g *Group) Share(ctx context.Context, total float64) iter.Seq2[float64, error] {
	return func(yield func(float64, error) bool) {
		told := 0
		for c, err := range g.Changes(ctx) {
			if err != nil {
				yield(0, err)
				return
			}
			if n := max(1, len(c.Members)); n != told {
				if told = n; !yield(total/float64(n), nil) {
					return
				}
			}
		}
	}
}

// Done returns a channel that is closed when the Group has ended.
func (g *Group) Done() <-chan struct{} { return g.view.Done() }

// Err returns why the Group ended: view.ErrClosed or the error of the session. It is nil while the
// Group lasts.
func (g *Group) Err() error { return g.view.Err() }

// Close ends the Group. It is idempotent and always returns nil.
func (g *Group) Close() error { return g.view.Close() }
