package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// workersPer is how many orders a process settles at a time.
const workersPer = 4

// retryPause keeps a worker or a dispatcher from spinning while the ensemble cannot serve it.
const retryPause = 100 * time.Millisecond

// A worker settles the orders of one process, several at a time, as long as a session lasts.
type worker struct {
	process int
	session *embed.Session
	desk    deskClient
	work    time.Duration // how long the business of one order takes
	brake   *brake
	log     *slog.Logger
}

// loop settles the orders on the process's list until ctx ends.
func (w *worker) loop(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	busy := make(map[string]bool)             // orders being settled, at most workersPer
	finished := make(chan string, workersPer) // never full: its orders are still busy
	for ctx.Err() == nil {
		names, changed, err := w.list(ctx)
		if err != nil {
			w.log.Warn("cannot list the orders", "err", err)
			pause(ctx, retryPause)
			continue
		}
		for _, name := range names {
			if busy[name] || len(busy) == workersPer {
				continue
			}
			busy[name] = true
			running.Go(func() {
				w.settleLoop(ctx, name)
				finished <- name
			})
		}
		select {
		case <-changed.Events():
		case name := <-finished:
			delete(busy, name)
		case <-ctx.Done():
		}
		_ = changed.Close()
	}
}

// list returns the process's orders, and a watch that was armed before list read them.
func (w *worker) list(ctx context.Context) ([]string, *embed.Watch, error) {
	changed, err := w.session.Watch(ctx, todoOf(w.process), embed.WatchOnce)
	if err != nil {
		return nil, nil, err
	}
	names, _, err := w.session.Children(ctx, todoOf(w.process))
	if err != nil {
		_ = changed.Close()
		return nil, nil, err
	}
	return names, changed, nil
}

// settleLoop tries until the order is off the process's list.
func (w *worker) settleLoop(ctx context.Context, name string) {
	for {
		err := w.settle(ctx, name)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.log.Warn("order not settled, trying again", "order", name, "err", err)
		pause(ctx, retryPause)
	}
}

// settle settles one order exactly once, even if this process ends on the way or another one tries
// it too.
//
// The order is booked at the ledger, then marked as done, then taken off the list. No transaction
// spans these three places, so a process that ends in between leaves an order that looks open. That
// is why a holder looks for the mark and asks the ledger before it books.
//
// The ledger's answer stays true until the holder books. The lock keeps others out. The fence,
// which the question raised, refuses an earlier holder that does not know yet that it lost the
// lock.
//
// After an error the outcome of the booking is unknown. The order is tried again from the start,
// under a new hold. The new hold's greater token fences off what this attempt may have left in
// flight.
func (w *worker) settle(ctx context.Context, name string) error {
	path := todoOf(w.process) + "/" + name
	o, ok, err := readOrder(ctx, w.session, path)
	if err != nil || !ok {
		return err
	}
	hold, err := lock.NewMutex(w.session, lockPath(o.Account)).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	// What earlier holders recorded is visible here: it is on the shard of their locks, and the
	// lock was acquired after it.
	_, done, err := w.session.Exists(ctx, donePath(o.Account, name))
	if err != nil {
		return err
	}
	if done {
		return w.takeOff(ctx, path)
	}
	e := entry{Process: w.process, Token: hold.Token(), Order: o}
	defer w.desk.leave(ctx, e, hold)
	booked, err := w.desk.enter(hold.Context(), e)
	if err != nil {
		return err
	}
	if !booked {
		if err := w.book(hold.Context(), e); err != nil {
			return err
		}
	}
	w.brake.pass(held{Order: o, Token: hold.Token()}, hold)
	if err := w.record(ctx, o, name, hold); err != nil {
		return err
	}
	return w.takeOff(ctx, path)
}

func (w *worker) book(ctx context.Context, e entry) error {
	pause(ctx, w.work)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.desk.book(ctx, e)
}

// record marks the order as done, if the lock is still held when the ensemble applies that.
func (w *worker) record(ctx context.Context, o order, name string, hold *lock.Hold) error {
	_, err := w.session.Multi(ctx,
		lock.Guard(hold),
		embed.OpCreate(donePath(o.Account, name), []byte(strconv.Itoa(w.process)), embed.Persistent))
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// takeOff takes an order that is marked as done off the process's list. The order may be gone
// already: if the dispatcher believed this process dead, it gave the order to another process,
// which will find the mark.
func (w *worker) takeOff(ctx context.Context, path string) error {
	if err := w.session.Delete(ctx, path, embed.AnyVersion); err != nil && !errors.Is(err, embed.ErrNoNode) {
		return fmt.Errorf("take off the list: %w", err)
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
