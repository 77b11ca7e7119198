package transfer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// walk looks at the whole subtree and copies what differs from what was copied before.
func (c *copier) walk(ctx context.Context) error {
	return each(ctx, []string{""}, c.visit)
}

// visit handles one znode of a walk, and returns its children.
func (c *copier) visit(ctx context.Context, name string) ([]string, error) {
	c.counts.walked.Add(1)
	names, stat, err := c.from.list(ctx, name)
	switch {
	case errors.Is(err, errAbsent), err == nil && stat.EphemeralOwner != 0:
		return nil, c.settled(name, c.remove(ctx, name))
	case err != nil:
		return nil, c.settled(name, err)
	}
	if have, ok := c.known.get(name); ok && have == stampOf(&stat) {
		c.known.put(name, have) // also below a parent that was forgotten
	} else if present, err := c.apply(ctx, name); err != nil || !present {
		return nil, err
	}
	if err := c.removeOthers(ctx, name, names); err != nil {
		return nil, err
	}
	return names, nil
}

// removeOthers deletes the children at the target that the source has no longer, and with Prune
// those that it has not had.
func (c *copier) removeOthers(ctx context.Context, name string, names []string) error {
	there := c.known.children(name)
	if c.pruning.Load() {
		all, _, err := c.to.list(ctx, name)
		if err != nil && !errors.Is(err, errAbsent) {
			return c.settled(name, err)
		}
		there = all
	}
	slices.Sort(names)
	for _, child := range there {
		if _, found := slices.BinarySearch(names, child); found {
			continue
		}
		if err := c.settled(child, c.remove(ctx, child)); err != nil {
			return err
		}
	}
	return nil
}

// newsMax bounds the names that wait. Beyond that, the whole subtree is walked instead.
const newsMax = 100_000

// news is what events tell. Its methods may be called by any goroutine.
type news struct {
	ready chan struct{} // has a value when there is something new

	mu    sync.Mutex
	names map[string]bool
	whole bool // all names
}

func newNews() *news { return &news{ready: make(chan struct{}, 1), names: make(map[string]bool)} }

func (n *news) add(name string) {
	n.mu.Lock()
	if !n.whole {
		n.names[name] = true
	}
	if len(n.names) > newsMax {
		n.whole = true
		clear(n.names)
	}
	n.mu.Unlock()
	n.wake()
}

// all asks for a walk.
func (n *news) all() {
	n.mu.Lock()
	n.whole = true
	clear(n.names)
	n.mu.Unlock()
	n.wake()
}

func (n *news) wake() {
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// take returns what is new, and forgets it.
func (n *news) take() (names []string, whole bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.names {
		names = append(names, name)
	}
	whole = n.whole
	clear(n.names)
	n.whole = false
	return names, whole
}

// catchUp copies what events have told of since the last call. It reports whether there was
// anything.
func (c *copier) catchUp(ctx context.Context) (bool, error) {
	names, whole := c.news.take()
	if whole {
		return true, c.walk(ctx)
	}
	// Parents come before their children, and nothing comes together with what is below it.
	byDepth := make(map[int][]string)
	deepest := 0
	for _, name := range names {
		depth := strings.Count(name, "/")
		byDepth[depth] = append(byDepth[depth], name)
		deepest = max(deepest, depth)
	}
	for depth := range deepest + 1 {
		err := each(ctx, byDepth[depth], func(ctx context.Context, name string) ([]string, error) {
			_, err := c.apply(ctx, name)
			return nil, err
		})
		if err != nil {
			return true, err
		}
	}
	return len(names) > 0, nil
}
