package barrier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Countdown ends when a number of different names are done. Each name counts once, so whoever
// does not know whether its Done arrived calls it again. Its methods may be called by any number of
// goroutines.
type Countdown struct {
	session *embed.Session
	path    string
	total   int
}

// NewCountdown returns the countdown on a path. All callers give the same total. The first Done
// creates the znode, and missing parents as containers. The znodes are persistent: delete them when
// nobody needs them any more. The path cannot be "/": embed.ErrInvalidPath.
func NewCountdown(s *embed.Session, path string, total int) Countdown {
	return Countdown{s, path, total}
}

// Done counts a name, which is one component of a path. Counting it again changes nothing.
//
// Errors: embed.ErrInvalidArgument if the name has a slash, or if the total is negative, above
// 2147483647 or not the one of the countdown on the path; and those of embed.Session.Sync and
// embed.Session.Create.
func (c Countdown) Done(ctx context.Context, name string) error {
	return wrap("count down", c.path, c.done(ctx, name))
}

func (c Countdown) done(ctx context.Context, name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("%w: %q is not one component of a path", embed.ErrInvalidArgument, name)
	}
	for {
		round, err := c.begun(ctx)
		if err == nil && round.Mzxid == 0 {
			if err = create(ctx, c.session, c.path, embed.Int32.Format(int64(c.total))); err == nil {
				round, err = c.begun(ctx)
			}
		}
		if err != nil {
			return err
		}
		// Of a countdown with another total, which this node may not show yet, it must count nothing.
		_, err = c.session.Multi(ctx, embed.OpCheckMzxid(c.path, round.Mzxid), embed.OpCreate(queue.Child(c.path, name), nil, embed.Persistent))
		switch {
		case errors.Is(err, embed.ErrNodeExists):
			return nil
		case errors.Is(err, embed.ErrNoNode), errors.Is(err, embed.ErrBadVersion):
			err = c.sync(ctx) // it was deleted or begun anew
		case err == nil:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// errTotal says that the countdown that this node shows has another total.
var errTotal = fmt.Errorf("%w: the countdown has another total", embed.ErrInvalidArgument)

// begun compares the total, and returns the znode's Stat; the zero Stat if there is no countdown.
// What this node shows may be a former countdown, so begun looks again before it refuses.
func (c Countdown) begun(ctx context.Context) (embed.Stat, error) {
	stat, err := c.look(ctx)
	if !errors.Is(err, errTotal) {
		return stat, err
	}
	if err := c.sync(ctx); err != nil {
		return embed.Stat{}, err
	}
	return c.look(ctx)
}

func (c Countdown) sync(ctx context.Context) error {
	_, err := c.session.Sync(ctx, c.path)
	return err
}

// look is begun in the state that this node shows.
func (c Countdown) look(ctx context.Context) (embed.Stat, error) {
	if err := c.check(); err != nil {
		return embed.Stat{}, err
	}
	data, stat, err := c.session.Get(ctx, c.path)
	switch {
	case errors.Is(err, embed.ErrNoNode):
		return embed.Stat{}, nil
	case err != nil:
		return embed.Stat{}, err
	}
	return stat, c.compare(data)
}

func (c Countdown) check() error {
	if c.path == "/" {
		return fmt.Errorf("%w: no shard knows all children of /, so it cannot be a countdown", embed.ErrInvalidPath)
	}
	if c.total < 0 || c.total > math.MaxInt32 {
		return fmt.Errorf("%w: a total of %d", embed.ErrInvalidArgument, c.total)
	}
	return nil
}

// compare compares the total with the data of the znode.
func (c Countdown) compare(data []byte) error {
	if n, err := embed.Int32.Parse(data); err != nil || n != int64(c.total) {
		return fmt.Errorf("%w: the total is %d, the znode has %x", errTotal, c.total, data)
	}
	return nil
}

// Left returns how many names are not done yet, as this node's replica knows. Errors are those of
// Done.
func (c Countdown) Left(ctx context.Context) (int, error) {
	stat, err := c.begun(ctx)
	if err != nil {
		return 0, wrap("left of", c.path, err)
	}
	return max(0, c.total-int(stat.NumChildren)), nil
}

// Wait waits until all names are done. It begins with an embed.Session.Sync, for this node may still
// show a former countdown on the path. It returns nil if they were done at any moment after that, even
// if the znodes are deleted by now, or are those of a countdown with another total. A name that the
// session may not read counts. Wait is bounded by ctx alone.
//
// Errors are those of Done, as soon as the countdown on the path has another total; embed.ErrNoAuth
// once the session may no longer read the znode; and embed.ErrWatchGap if the countdown or a name was
// deleted while Wait could not see it, as during a break of a client's connection. Then all names may
// have been done before. Wait waits on if the whole countdown came and went during a break.
func (c Countdown) Wait(ctx context.Context) error { return wrap("wait for", c.path, c.wait(ctx)) }

func (c Countdown) wait(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	var was embed.Stat // zero: there was no znode
	return follow(ctx, c.session, c.path, func(now sight) (bool, error) {
		done, err := c.isDone(now)
		if !done && now.gap && lost(was, now.stat) {
			err = fmt.Errorf("%w: all names may have been done before some were deleted", embed.ErrWatchGap)
		}
		was = now.stat
		return done, err
	})
}

// isDone compares the total, and how many names there are.
func (c Countdown) isDone(now sight) (bool, error) {
	if now.stat.Czxid == 0 {
		return c.total == 0, nil
	}
	err := c.compare(now.data)
	return err == nil && int(now.stat.NumChildren) >= c.total, err
}

// lost reports whether a countdown or one of its names was deleted between two states. Stat.Cversion
// counts the names that were created and those that were deleted.
func lost(was, now embed.Stat) bool {
	return was.Czxid != 0 && was.Czxid != now.Czxid ||
		now.Cversion-was.Cversion != now.NumChildren-was.NumChildren
}
