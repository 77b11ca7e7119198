package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
)

const (
	backlogMax = 8 * workersPer         // orders on a process's list; enough to work on while a dead dispatcher is replaced
	deskPause  = 200 * time.Millisecond // between looks at the desk, which cannot be watched
)

// A dispatcher shares out the orders to the processes of the pool while it is the elected one. It keeps nothing in memory
// that matters: everything it decides is one transaction on the tree, so its successor goes on where it stopped.
type dispatcher struct {
	process int
	session *embed.Session
	desk    deskClient
	leads   *atomic.Bool // for the status
	log     *slog.Logger
}

// loop campaigns, and dispatches whenever it is elected, until ctx ends.
func (d *dispatcher) loop(ctx context.Context) {
	for ctx.Err() == nil {
		turn, err := election.New(d.session, dispatcherPath).Campaign(ctx, []byte(strconv.Itoa(d.process)))
		if err != nil {
			if ctx.Err() == nil {
				d.log.Warn("campaign", "err", err)
			}
			pause(ctx, retryPause)
			continue
		}
		leading, cancel := context.WithCancel(turn.Context())
		stop := context.AfterFunc(ctx, cancel)
		d.leads.Store(true)
		d.lead(leading)
		d.leads.Store(false)
		stop()
		cancel()
		_ = turn.Resign() // if it cannot be sent the node goes on trying
	}
}

// lead shares out orders until the leadership ends.
func (d *dispatcher) lead(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.round(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("dispatch", "err", err)
			pause(ctx, retryPause)
		}
	}
}

// round looks at the pool, does what there is to do, and waits for the pool to change.
func (d *dispatcher) round(ctx context.Context) error {
	changed, err := d.session.Watch(ctx, poolPath, embed.WatchRecursive)
	if err != nil {
		return err
	}
	defer changed.Close()
	// The desk first, then Sync: a process that joined before these orders came in is seen, and so is all that an
	// earlier dispatcher did.
	next, version, err := d.next(ctx)
	if err != nil {
		return err
	}
	orders, err := d.desk.from(ctx, next)
	if err != nil {
		return err
	}
	if _, err := d.session.Sync(ctx, poolPath); err != nil {
		return err
	}
	pool, err := d.look(ctx)
	if err != nil {
		return err
	}
	if err := d.move(ctx, pool); err != nil {
		return err
	}
	if err := d.share(ctx, pool, orders, next, version); err != nil {
		return err
	}
	look := time.NewTimer(deskPause)
	defer look.Stop()
	select {
	case <-changed.Events(): // closed too, if it overflowed
	case <-look.C:
	case <-ctx.Done():
	}
	return nil
}

// next returns the number of the next order to be shared out and the version of the znode that says so.
func (d *dispatcher) next(ctx context.Context) (n int, version int32, err error) {
	data, stat, err := d.session.Get(ctx, nextPath)
	if err != nil {
		return 0, 0, err
	}
	n, err = strconv.Atoi(string(data))
	return n, stat.Version, err
}

// A pool is the lists of the processes that take orders, and those of the others.
type pool struct {
	lists   map[int][]string
	orphans map[int][]string
}

func (d *dispatcher) look(ctx context.Context) (pool, error) {
	in, err := joined(ctx, d.session)
	if err != nil {
		return pool{}, err
	}
	p := pool{lists: make(map[int][]string), orphans: make(map[int][]string)}
	for process := 1; process <= processes; process++ {
		names, _, err := d.session.Children(ctx, todoOf(process))
		if err != nil {
			return pool{}, err
		}
		if in[process] {
			p.lists[process] = names
		} else {
			p.orphans[process] = names
		}
	}
	return p, nil
}

// pick returns the process with the shortest list, or false if there is none with room.
func (p pool) pick(room int) (process int, ok bool) {
	for candidate := 1; candidate <= processes; candidate++ {
		list, in := p.lists[candidate]
		if in && len(list) < room {
			process, room, ok = candidate, len(list), true
		}
	}
	return process, ok
}

func (p pool) add(process int, name string) { p.lists[process] = append(p.lists[process], name) }

// move gives the orders of processes that have left the pool to the others. Each goes in one transaction, which fails if
// the order is not there any more: then it is done, or moved already.
func (d *dispatcher) move(ctx context.Context, p pool) error {
	for from, names := range p.orphans {
		for _, name := range names {
			to, ok := p.pick(ordersMax) // they have waited long enough: no list is full for them
			if !ok {
				return nil
			}
			old := todoOf(from) + "/" + name
			data, _, err := d.session.Get(ctx, old)
			if err == nil {
				_, err = d.session.Multi(ctx,
					embed.OpDelete(old, embed.AnyVersion),
					embed.OpCreate(todoOf(to)+"/"+name, data, embed.Persistent))
			}
			if errors.Is(err, embed.ErrNoNode) {
				continue
			}
			if err != nil {
				return fmt.Errorf("move: %w", err)
			}
			p.add(to, name)
			d.log.Info("moved", "order", name, "from", from, "to", to)
		}
	}
	return nil
}

// share puts new orders on the lists of processes that have room, together with the number of the next one, in one
// transaction. The version keeps a dispatcher that was deposed without knowing it from sharing them out again.
func (d *dispatcher) share(ctx context.Context, p pool, orders []order, next int, version int32) error {
	var ops []embed.Op
	for _, o := range orders {
		to, ok := p.pick(backlogMax)
		if !ok {
			break
		}
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		ops = append(ops, embed.OpCreate(todoOf(to)+"/"+key(next), data, embed.Persistent))
		p.add(to, key(next))
		next++
	}
	if len(ops) == 0 {
		return nil
	}
	ops = append(ops, embed.OpSet(nextPath, []byte(strconv.Itoa(next)), version))
	if _, err := d.session.Multi(ctx, ops...); err != nil {
		return fmt.Errorf("share out: %w", err)
	}
	return nil
}
