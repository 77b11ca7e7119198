// Lock shows three workers that take turns at a lock. It shows what their tokens are for, and what
// happens to a lock whose holder goes away without releasing it.
//
// One node is enough: each worker has a session of its own, as if it were in another process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/examples/internal/nodes"
)

const path = "/locks/report"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	node, end, err := nodes.One("lock")
	if err != nil {
		return err
	}
	defer end()
	if err := takeTurns(ctx, node); err != nil {
		return err
	}
	return goAway(ctx, node)
}

// A report accepts a line only from a token that is at least as great as any before it.
type report struct {
	newest lock.Token
	lines  int
}

func (r *report) write(t lock.Token) error {
	if t.Compare(r.newest) < 0 {
		return errors.New("the token is stale")
	}
	r.newest = t
	r.lines++
	return nil
}

// takeTurns lets three workers write three lines each. Nothing protects the report but the lock.
func takeTurns(ctx context.Context, node *embed.Node) error {
	var r report
	var workers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		workers.Go(func() { errs[i] = work(ctx, node, fmt.Sprint("worker ", i+1), &r) })
	}
	workers.Wait()
	fmt.Println(r.lines, "lines")
	return errors.Join(errs...)
}

func work(ctx context.Context, node *embed.Node, name string, r *report) error {
	s, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	for range 3 {
		hold, err := lock.NewMutex(s, path).Lock(ctx)
		if err != nil {
			return err
		}
		err = r.write(hold.Token())
		fmt.Println(name, "has the lock, token", hold.Token())
		if err := errors.Join(err, hold.Release()); err != nil {
			return err
		}
	}
	return nil
}

// goAway ends the session of a holder. Its hold ends at once, and the next worker in the queue
// acquires the lock.
func goAway(ctx context.Context, node *embed.Node) error {
	first, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer first.Close()
	second, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer second.Close()
	hold, err := lock.NewMutex(first, path).Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := lock.NewMutex(second, path).TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("the lock is held, and trying it answers %w", err)
	}
	fmt.Println("a second session finds the lock held")

	if err := first.Close(); err != nil {
		return err
	}
	fmt.Println("the first session ends; its hold says:", hold.Err())
	next, err := lock.NewMutex(second, path).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("the second has the lock, and a greater token:", next.Token().Compare(hold.Token()) > 0)
	return next.Release()
}
