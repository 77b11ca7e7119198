package barrier

import (
	"context"
	"errors"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A crowd follows who is below a path. It knows that at one zxid after the other.
type crowd struct {
	session *embed.Session
	path    string
	counts  func(name string, stat embed.Stat) bool // which children to follow; nil means all
	watch   *embed.Watch
	at      embed.Zxid
	here    map[string]embed.Zxid // the children, with their czxid
	hidden  int                   // how many more there were when it was armed, unreadable
}

// arm begins to follow the changes after a state that it reads, once that can be read. close ends it.
// Nobody tells it of a child that it may not read, but hidden has how many there are.
func (c *crowd) arm(ctx context.Context) error {
	return queue.Retry(ctx, c.session, func() error { return c.armOnce(ctx) })
}

func (c *crowd) armOnce(ctx context.Context) (err error) {
	o := embed.WatchOptions{Buffer: waitingMax, Values: true}
	if c.watch, err = c.session.WatchWith(ctx, c.path, embed.WatchRecursive, o); err != nil {
		return err
	}
	c.here, c.hidden = make(map[string]embed.Zxid), 0
	for z, err := range c.session.WalkWith(ctx, c.path, embed.WalkOptions{Depth: 1}) {
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			return errors.Join(err, c.watch.Close())
		}
		c.at = z.Zxid
		if err != nil {
			continue
		}
		if c.hidden--; z.Path == c.path {
			c.hidden = int(z.Stat.NumChildren)
		}
		c.change(embed.NodeCreated, z.Path, z.Stat.Czxid, z.Stat)
	}
	return nil
}

func (c *crowd) close() { _ = c.watch.Close() }

// change notes that a child has come or gone. stat is that of one that is there.
func (c *crowd) change(what embed.EventType, path string, z embed.Zxid, stat embed.Stat) {
	name, below := strings.CutPrefix(path, queue.Child(c.path, ""))
	switch {
	case !below || name == "" || strings.Contains(name, "/"):
	case what == embed.NodeCreated && (c.counts == nil || c.counts(name, stat)):
		c.here[name] = z
	case what == embed.NodeDeleted:
		delete(c.here, name)
	}
}

// until calls look with the state that it knows, and after each transaction that changes it, until
// look returns true or an error. It returns false if the watch ends before: then arm it again. It
// also ends with gone, for which it returns why's error.
func (c *crowd) until(ctx context.Context, gone <-chan struct{}, why func() error, look func() (bool, error)) (bool, error) {
	for {
		if yes, err := look(); yes || err != nil {
			return yes, err
		}
		select {
		case e, ok := <-c.watch.Events():
			if !ok {
				return false, ended(c.session, c.watch.Err())
			}
			yes, over, err := c.follow(ctx, e, look)
			if yes || err != nil {
				return yes, err
			}
			if over {
				return false, ended(c.session, c.watch.Err())
			}
		case <-gone:
			return false, why()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// follow makes a change, and those that already wait. All changes of a transaction are queued before
// a read shows it. So when a read has come between the last change and none, they are complete.
func (c *crowd) follow(ctx context.Context, e embed.Event, look func() (bool, error)) (yes, over bool, err error) {
	for read := false; ; {
		if e.Zxid > c.at {
			if yes, err := look(); yes || err != nil {
				return yes, false, err
			}
			c.at = e.Zxid
		}
		if e.Zxid == c.at { // earlier ones are part of what arm has read
			stat, _ := e.Stat() // zero if the same transaction has deleted it
			c.change(e.Type, e.Path, e.Zxid, stat)
		}
		next, ok, over := poll(c.watch.Events())
		for !ok && !over && !read {
			if _, _, err := c.session.Exists(ctx, c.path); err != nil {
				return false, false, err
			}
			read = true
			next, ok, over = poll(c.watch.Events())
		}
		if !ok { // if the watch has ended, it may have taken in a part of its last transaction
			return false, over, nil
		}
		e, read = next, false
	}
}
