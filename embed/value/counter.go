package value

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/vivarium-go/vivarium/embed"
)

// A Counter is a number that all add to. It may be copied and used by any number of goroutines. It
// lasts as long as its session. NewCounter makes one; the zero Counter cannot be used.
//
// A znode that is missing or empty counts as zero. If the znode or those above it are missing, the
// first write creates them. Data that is no number of the Counter's width is embed.ErrNotNumber,
// and stays as it is.
type Counter struct {
	session *embed.Session
	path    string
	width   embed.Width
}

// NewCounter returns the Counter at a path for a session. It sends and reads nothing. The width is
// embed.Int64, embed.Int32 or embed.Text; a call of a Counter with another one fails with
// embed.ErrInvalidMode.
func NewCounter(s *embed.Session, path string, w embed.Width) Counter {
	return Counter{session: s, path: path, width: w}
}

// Add adds to the number and returns the sum. It costs one commit, however many add at once: nobody
// competes. No two Adds return a sum that leaves one of them out. Add of zero reads the number as
// of that commit.
//
// Errors: embed.ErrOverflow if the sum does not fit into the width; then nothing is changed.
// embed.ErrNotNumber, and those of embed.Session.Create. After
// embed.ErrUnknownOutcome it may have counted, or may yet count, at most once: a ctx with more time
// makes that rarer. After every other error it has not counted.
func (c Counter) Add(ctx context.Context, delta int64) (sum int64, err error) {
	sum, err = c.add(ctx, delta)
	return sum, wrap("add", c.path, err)
}

func (c Counter) add(ctx context.Context, delta int64) (int64, error) {
	if err := c.width.Validate(); err != nil {
		return 0, err
	}
	_, there, err := c.session.Exists(ctx, c.path)
	if err != nil {
		return 0, err
	}
	// What does not fit by itself may still fit into the sum.
	data, tooLarge := c.format(delta)
	for there = there || tooLarge != nil; ; there = !there {
		if there {
			r, err := c.session.Multi(ctx, embed.OpAdd(c.path, delta, c.width))
			if err == nil {
				return r[0].Value, nil
			}
			if !errors.Is(err, embed.ErrNoNode) {
				return 0, err
			}
			if tooLarge != nil {
				return 0, tooLarge
			}
		} else {
			_, err := create(ctx, c.session, c.path, data)
			if err == nil {
				return delta, nil
			}
			if !errors.Is(err, embed.ErrNodeExists) {
				return 0, err
			}
		}
	}
}

// format returns the data of a number, or embed.ErrOverflow if it does not fit into the width.
func (c Counter) format(n int64) ([]byte, error) {
	if err := c.width.Validate(); err != nil {
		return nil, err
	}
	if c.width == embed.Int32 && (n < math.MinInt32 || n > math.MaxInt32) {
		return nil, fmt.Errorf("%w: %d", embed.ErrOverflow, n)
	}
	return c.width.Format(n), nil
}

// Get returns the number that this node shows. It may be behind what another member has added;
// after embed.Session.Sync it is not.
//
// Errors: embed.ErrNotNumber, and those of embed.Session.Get except embed.ErrNoNode.
func (c Counter) Get(ctx context.Context) (int64, error) {
	n, _, err := c.read(ctx)
	return n, wrap("get", c.path, err)
}

// read returns the number and the zxid of its last write, which is zero if there is no znode.
func (c Counter) read(ctx context.Context) (int64, embed.Zxid, error) {
	if err := c.width.Validate(); err != nil {
		return 0, 0, err
	}
	data, stat, err := c.session.Get(ctx, c.path)
	if errors.Is(err, embed.ErrNoNode) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	n, err := c.width.Parse(data)
	return n, stat.Mzxid, err
}

// Set writes the number, whatever is there.
//
// Errors: embed.ErrOverflow if it does not fit into the width, and those of embed.Session.Create
// and Set. After embed.ErrUnknownOutcome it may have been written, or may yet be, at most once.
func (c Counter) Set(ctx context.Context, n int64) error {
	data, err := c.format(n)
	if err == nil {
		_, err = set(ctx, c.session, c.path, data)
	}
	return wrap("set", c.path, err)
}

// Swap writes the number next if the number is old. It does not rely on what this node shows: if
// that is not old, Swap waits until it is up to date.
//
// Errors: ErrChanged if the number is another one; embed.ErrNotNumber; and those of Set and
// embed.Session.Sync.
func (c Counter) Swap(ctx context.Context, old, next int64) error {
	return wrap("swap", c.path, c.swap(ctx, old, next))
}

func (c Counter) swap(ctx context.Context, old, next int64) error {
	data, err := c.format(next)
	if err != nil {
		return err
	}
	for synced := false; ; {
		now, mzxid, err := c.read(ctx)
		switch {
		case err == nil && now == old:
			// A refused swap has shown this node the newer number.
			if _, err := swap(ctx, c.session, c.path, mzxid, data); !errors.Is(err, ErrChanged) {
				return err
			}
		case !synced:
			if _, err := c.session.Sync(ctx, c.path); err != nil {
				return err
			}
			synced = true
		case err != nil:
			return err
		default:
			return fmt.Errorf("%w: it is %d, not %d", ErrChanged, now, old)
		}
	}
}
