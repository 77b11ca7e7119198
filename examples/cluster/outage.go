package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// stopWait limits the wait for a worker of one process to reach the brake. Then the parent asks for
// the leader again.
const stopWait = 15 * time.Second

// An outage is the death of the leading process and its consequences.
type outage struct {
	id   int // of the process that was killed
	term uint64
	held held
	// the process was alive: later than this it began a write that was acknowledged
	proof   time.Time
	at      time.Time
	writes  time.Duration // until a write was acknowledged again
	granted time.Duration // until another process held the dead holder's lock
	to      int           // that process
	back    bool          // the process runs and takes orders again
	settled int           // what it had settled when it came back
}

// killLeader kills the process that leads the first shard while it holds a lock, measures, and
// starts it again.
func (r *runner) killLeader(ctx context.Context) (*outage, error) {
	o, err := r.corner(ctx)
	if err != nil {
		return nil, fmt.Errorf("no process that leads and holds a lock: %w", err)
	}
	left := r.ledger.leaves(o.held.Order.Account, o.id)
	o.at = r.ensemble.kill(o.id)
	r.ledger.died(o.id)
	r.say("process %d leads shard 1 (term %d) and holds the lock of %s, order %s is booked and not recorded: SIGKILL",
		o.id, o.term, o.held.Order.Account, o.held.Order.ID)

	var measures sync.WaitGroup
	defer measures.Wait()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	wrote := make(chan time.Time, processes)
	for _, p := range r.ensemble.processes() {
		measures.Go(func() { keepAsking(inner, p, "/probe", true, wrote) })
	}
	// The account may have no other order. This caller wants its lock, so that the measurement does
	// not depend on the file.
	survivor := r.ensemble.processes()[0]
	measures.Go(func() { keepAsking(inner, survivor, "/contend", o.held.Order.Account, nil) })

	for writes, grants := wrote, left; writes != nil || grants != nil; {
		select {
		case t := <-writes:
			o.writes, writes = t.Sub(o.at), nil
			r.say("writes are accepted again, %s after the kill", seconds(o.writes))
		case g := <-grants:
			o.granted, o.to, grants = g.at.Sub(o.at), g.process, nil
			r.say("the dead holder's lock is granted to process %d, %s after the kill", o.to, seconds(o.granted))
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
	}
	return o, r.bringBack(ctx, o)
}

// corner finds the process that leads and makes it hold a lock until it is killed.
func (r *runner) corner(ctx context.Context) (*outage, error) {
	for part := inAtKill; ; part = min(part+inAgain, inMost) {
		var o outage
		err := r.ensemble.until(ctx, func(all map[int]status) bool {
			o.id, o.term = r.ensemble.leads(all, 1)
			return o.id != 0 && all[o.id].Works
		})
		if err != nil {
			return nil, err
		}
		o.held, err = r.stopWorker(ctx, o.id, part)
		if err == nil {
			o.proof = time.Now()
			err = r.ensemble.process(o.id).control.ask(ctx, "/probe", true, new(bool))
		}
		if err == nil {
			// Another process may have become the leader while the worker waited for the lock.
			if id, term := r.ensemble.leads(r.ensemble.statuses(ctx), 1); id == o.id && term == o.term {
				return &o, nil
			}
			err = errors.New("it no longer leads")
		}
		r.say("process %d was not caught holding a lock, trying again: %v", o.id, err)
		if err := r.ensemble.process(o.id).control.ask(ctx, "/release", true, new(bool)); err != nil {
			return nil, err
		}
	}
}

// stopWorker lets a part of the orders in and waits until a worker of a process has stopped with a
// lock.
func (r *runner) stopWorker(ctx context.Context, id int, part float64) (h held, err error) {
	bound, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	r.letIn(part)
	err = r.ensemble.process(id).control.ask(bound, "/stop", true, &h)
	return h, err
}

// keepAsking asks until the answer is no error, and reports when that was.
func keepAsking(ctx context.Context, p *process, path string, q any, answered chan<- time.Time) {
	for ctx.Err() == nil {
		var a bool
		if err := p.control.ask(ctx, path, q, &a); err != nil {
			pause(ctx, lookPause)
			continue
		}
		if answered != nil {
			answered <- time.Now()
		}
		return
	}
}

// bringBack starts the killed process again and waits until it takes orders.
func (r *runner) bringBack(ctx context.Context, o *outage) error {
	r.ledger.restarts(o.id)
	if err := r.ensemble.restart(ctx, o.id); err != nil {
		return err
	}
	err := r.ensemble.until(ctx, func(all map[int]status) bool { return all[o.id].Works })
	if err != nil {
		return errors.Join(fmt.Errorf("process %d did not come back", o.id), err)
	}
	o.back, o.settled = true, r.ledger.counts().By[o.id]
	r.say("process %d is back and takes orders", o.id)
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
