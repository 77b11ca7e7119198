package transfer

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// workers bounds the znodes that are handled at the same time, and with them the data in memory.
const workers = 32

// A visitor handles a name, and returns further ones.
type visitor func(ctx context.Context, name string) ([]string, error)

// each calls visit for the names in first, and for those that visit returns, until there are none
// left. Each call comes after the one that has returned its name. The first error ends it.
func each(ctx context.Context, first []string, visit visitor) error {
	p := pool{stack: slices.Clone(first)}
	p.changed.L = &p.mu
	all, ctx := errgroup.WithContext(ctx)
	for range workers {
		all.Go(func() error {
			for name, ok := p.next(); ok; name, ok = p.next() {
				more, err := visit(ctx, name)
				p.done(more, err)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// A pool has the names that wait. The newest is next, which keeps the stack short.
type pool struct {
	mu      sync.Mutex
	changed sync.Cond
	stack   []string
	busy    int
	over    bool // a visit has failed
}

// next returns a name. ok is false when there will be no more.
func (p *pool) next() (name string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.stack) == 0 && p.busy > 0 && !p.over {
		p.changed.Wait()
	}
	if len(p.stack) == 0 || p.over {
		return "", false
	}
	last := len(p.stack) - 1
	name, p.stack = p.stack[last], p.stack[:last]
	p.busy++
	return name, true
}

// done ends a visit, and with an error all of them.
func (p *pool) done(more []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.stack = append(p.stack, more...)
	p.over = p.over || err != nil
	p.changed.Broadcast()
}
