package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
)

// The paths of the service.
const (
	root           = "/orders"
	dispatcherPath = "/orders/dispatcher"
	nextPath       = "/orders/next" // the number of the next order to put into the queue
	queuePath      = "/orders/queue"
)

func lockPath(account string) string { return "/orders/locks/" + url.PathEscape(account) }

const (
	// sessionTimeout is how long a dead process keeps its locks and claims.
	sessionTimeout = 4 * time.Second
	workersPer     = 4                      // orders that a process settles at a time
	workTime       = 100 * time.Millisecond // how long the business of one order takes
	lookPause      = 100 * time.Millisecond // between looks at what cannot be watched
)

// A service settles orders with the services of the other processes.
type service struct {
	process int
	from    embed.Opener
	ledger  ledgerClient
}

// run takes part until ctx or the node ends.
func (s service) run(ctx context.Context) error {
	if err := s.layOut(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	for range workersPer {
		running.Go(func() { cancel(task.Work(ctx, s.from, queuePath, task.Options{}, s.settle)) })
	}
	running.Go(func() { cancel(election.Run(ctx, s.from, dispatcherPath, nil, s.dispatch)) })
	running.Wait()
	return context.Cause(ctx)
}

// layOut creates the znodes that are always there. Every process does it; the first one succeeds.
func (s service) layOut(ctx context.Context) error {
	session, err := s.from.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer session.Close()
	for _, path := range []string{root, nextPath} {
		_, err := session.Create(ctx, path, []byte("0"), embed.Persistent)
		if err != nil && !errors.Is(err, embed.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// dispatch puts orders into the queue as they come in, as long as this process is elected. Which
// one is next is in a znode, so its successor continues where it stopped. If it ends between the
// two, the successor puts an order again, and whoever claims it finds it booked.
func (s service) dispatch(ctx context.Context, _ lock.Token) error {
	session, err := s.from.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return nil // to campaign again
	}
	defer session.Close()
	queue := task.New(session, queuePath, task.Options{})
	for ; ctx.Err() == nil; pause(ctx, lookPause) {
		if err := s.putOrders(ctx, session, queue); err != nil {
			return nil
		}
	}
	return nil
}

func (s service) putOrders(ctx context.Context, session *embed.Session, queue *task.Queue) error {
	if _, err := session.Sync(ctx, nextPath); err != nil { // what an earlier dispatcher wrote
		return err
	}
	data, stat, err := session.Get(ctx, nextPath)
	if err != nil {
		return err
	}
	next, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	orders, err := s.ledger.orders(ctx, next)
	if err != nil {
		return err
	}
	for _, o := range orders {
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := queue.Put(ctx, data, task.PutOptions{}); err != nil {
			return err
		}
		next++
		// The version keeps out a dispatcher that was deposed and does not know it.
		if stat, err = session.Set(ctx, nextPath, []byte(strconv.Itoa(next)), stat.Version); err != nil {
			return err
		}
	}
	return nil
}

// settle settles one order exactly once, even if this process ends on the way or another one tries
// it too.
//
// The order is booked at the ledger, then removed from the queue. No transaction spans these
// places, so a process that ends in between leaves an order that looks open. That is why a holder
// asks the ledger before it books.
//
// The ledger's answer stays true until the holder books. The lock keeps others out. The fence,
// which the question raised, refuses an earlier holder that does not know yet that it lost the
// lock.
//
// After an error the outcome of the booking is unknown. The order is tried again from the start,
// under a new hold. The new hold's greater token fences off what this attempt may have left in
// flight.
func (s service) settle(ctx context.Context, t *task.Task) error {
	var o order
	if err := json.Unmarshal(t.Data(), &o); err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	hold, err := lock.NewMutex(t.Session(), lockPath(o.Account)).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	e := Entry{Process: s.process, Token: hold.Token(), Order: o}
	booked, err := s.ledger.enter(hold.Context(), e)
	if err != nil || booked {
		return err // nil removes it from the queue
	}
	pause(hold.Context(), workTime)
	if err := hold.Err(); err != nil {
		return err
	}
	return s.ledger.ask(hold.Context(), "Book", e, new(bool))
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
