// Semaphore runs workers on three members that share the connections of a database. There are never
// more connections in use than the limit allows, and the limit changes while they work.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/examples/internal/nodes"
)

const path = "/locks/database"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	members, end, err := nodes.Three("semaphore")
	if err != nil {
		return err
	}
	defer end()
	var db database
	var workers sync.WaitGroup
	ctx, fail := context.WithCancelCause(ctx)
	defer workers.Wait()
	defer fail(nil)
	for _, node := range members {
		s, err := node.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			return err
		}
		for range 3 {
			workers.Go(func() {
				// Two connections. All who share them must name the same limit, or they are
				// refused.
				fail(work(ctx, lock.NewSemaphore(s, path, 2), &db))
			})
		}
	}
	s, err := members[1].NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	// 0 means the limit that the others have agreed on
	if err := operate(ctx, lock.NewSemaphore(s, path, 0), &db); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// work makes one query after another, each with a permit of its own, until ctx ends.
func work(ctx context.Context, connections *lock.Semaphore, db *database) error {
	for {
		hold, err := connections.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		db.query(hold.Context())
		if err := hold.Release(); err != nil {
			return err
		}
	}
}

// operate changes the limit while the workers work.
func operate(ctx context.Context, connections *lock.Semaphore, db *database) error {
	if err := db.watch(ctx, 2); err != nil {
		return err
	}
	if err := connections.Resize(ctx, 5); err != nil {
		return err
	}
	if err := db.watch(ctx, 5); err != nil {
		return err
	}

	// in its turn: workers that want one permit do not overtake a worker that wants many
	all, err := connections.Acquire(ctx, 5)
	if err != nil {
		return err
	}
	defer all.Release()
	fmt.Println("a backup has all 5 connections; the limit goes down to 1 meanwhile")
	if err := connections.Resize(ctx, 1); err != nil { // permits that are held stay valid
		return err
	}
	if now, _, _ := db.counts(); now != 0 {
		return fmt.Errorf("%d queries run beside the backup", now)
	}
	if err := all.Release(); err != nil {
		return err
	}
	return db.watch(ctx, 1)
}

// A database counts its queries, and how many run at once.
type database struct {
	mu struct {
		sync.Mutex
		now, most, done int
	}
}

// query takes a while.
func (d *database) query(ctx context.Context) {
	d.mu.Lock()
	d.mu.now++
	d.mu.most = max(d.mu.most, d.mu.now)
	d.mu.Unlock()
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	d.mu.Lock()
	d.mu.now--
	d.mu.done++
	d.mu.Unlock()
}

func (d *database) counts() (now, most, done int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.now, d.mu.most, d.mu.done
}

// watch lets some queries pass, and prints how many of them ran at once.
func (d *database) watch(ctx context.Context, limit int) error {
	d.mu.Lock()
	begin := d.mu.done
	d.mu.most = d.mu.now
	d.mu.Unlock()
	for {
		_, most, done := d.counts()
		switch {
		case most > limit:
			return fmt.Errorf("%d queries run at once, the limit is %d", most, limit)
		case done-begin >= 30:
			fmt.Printf("limit %d: %d queries of 9 workers on 3 members, %d at once at most\n", limit, done-begin, most)
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
