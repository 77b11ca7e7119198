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
	// orders on a process's list; enough to work on while a dead dispatcher is replaced
	backlogMax = 8 * workersPer
	deskPause  = 200 * time.Millisecond // between looks at the desk, which cannot be watched
)

// While it is elected, a dispatcher distributes the orders to the processes of the pool. It keeps
// nothing important in memory. Each of its decisions is one transaction on the tree, so its
// successor continues where it stopped.
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
		leadership, err := election.New(d.session, dispatcherPath).Campaign(ctx, []byte(strconv.Itoa(d.process)))
		if err != nil {
			if ctx.Err() == nil {
				d.log.Warn("campaign", "err", err)
			}
			pause(ctx, retryPause)
			continue
		}
		leading, cancel := context.WithCancel(leadership.Context())
		stop := context.AfterFunc(ctx, cancel)
		d.leads.Store(true)
		d.lead(leading)
		d.leads.Store(false)
		stop()
		cancel()
		_ = leadership.Resign() // if it cannot be sent, the node keeps trying
	}
}

// lead distributes orders until the leadership ends.
func (d *dispatcher) lead(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.round(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("dispatch", "err", err)
			pause(ctx, retryPause)
		}
	}
}

// round looks at the pool, does what is necessary, and waits for the pool to change.
func (d *dispatcher) round(ctx context.Context) error {
	changed, err := d.session.Watch(ctx, poolPath, embed.WatchRecursive)
	if err != nil {
		return err
	}
	defer changed.Close()
	// The order matters: the desk first, then Sync. Then round sees every process that joined
	// before these orders came in, and everything that an earlier dispatcher did.
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
	case <-changed.Events(): // also closed if the watch overflowed
	case <-look.C:
	case <-ctx.Done():
	}
	return nil
}

// next returns the number of the next order to distribute, and the version of the znode that holds
// it.
func (d *dispatcher) next(ctx context.Context) (n int, version int32, err error) {
	data, stat, err := d.session.Get(ctx, nextPath)
	if err != nil {
		return 0, 0, err
	}
	n, err = strconv.Atoi(string(data))
	return n, stat.Version, err
}

// A pool is the lists of the processes that take orders, and the lists of those that left.
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
	for process := 1; process <= processesMax; process++ {
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

// pick returns the process with the shortest list. ok is false if no process has room.
func (p pool) pick(room int) (process int, ok bool) {
	for candidate := 1; candidate <= processesMax; candidate++ {
		list, in := p.lists[candidate]
		if in && len(list) < room {
			process, room, ok = candidate, len(list), true
		}
	}
	return process, ok
}

func (p pool) add(process int, name string) { p.lists[process] = append(p.lists[process], name) }

// move gives the orders of processes that have left the pool to the others, each in one
// transaction. The transaction fails if the order is no longer there: it is then done, or already
// moved.
func (d *dispatcher) move(ctx context.Context, p pool) error {
	for from, names := range p.orphans {
		for _, name := range names {
			// a full list makes no difference, because they have waited long enough
			to, ok := p.pick(ordersMax)
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

// share puts new orders on the lists of processes that have room, together with the number of the
// next one, in one transaction. A dispatcher that was deposed may not know it. The version keeps it
// from distributing the orders again.
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
		return fmt.Errorf("distribute: %w", err)
	}
	return nil
}
