//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
)

// inFlight is how many members or tasks are created at a time.
const inFlight = 64

// dataLen is how many bytes a member or a task has.
const dataLen = 32

// view measures how long a group takes to show n members that join, and how long another group
// takes to open then. The members are on the leader's node, the groups on another one.
func (e *ensemble) view(dir string, n int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	joins, err := e.nodes[0].NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return nil, err
	}
	defer joins.Close()
	if _, err := joins.Create(ctx, dir, nil, embed.Persistent); err != nil {
		return nil, err
	}
	g, err := group.Watch(ctx, e.sessions[1], dir, group.Options{})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	begun := time.Now()
	failed := make(chan error, 1)
	go func() {
		failed <- each(n, inFlight, func(i int) error {
			_, err := joins.Create(ctx, fmt.Sprintf("%s/m%05d", dir, i), make([]byte, dataLen), embed.Ephemeral)
			return err
		})
	}()
	_, err = g.Await(ctx, func(all []group.Member) bool { return len(all) == n })
	arrive := time.Since(begun)
	if err := <-failed; err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	begun = time.Now()
	again, err := group.Watch(ctx, e.sessions[1], dir, group.Options{})
	if err != nil {
		return nil, err
	}
	defer again.Close()
	shown := len(again.Members())
	open := time.Since(begun)
	if shown != n {
		return nil, fmt.Errorf("the group shows %d of %d members", shown, n)
	}
	return []float64{milliseconds(arrive), milliseconds(open)}, nil
}

// each calls f with all numbers below n, so many at a time. It returns the first error.
func each(n, atATime int, f func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, atATime)
	for range atATime {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// counter measures adds of one to a counter.
func (e *ensemble) counter(path string, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var added atomic.Int64
	ops := make([]func() error, callers)
	for i := range ops {
		c := value.NewCounter(e.sessions[i%members], path, embed.Int64)
		ops[i] = func() error {
			_, err := c.Add(ctx, 1)
			if err == nil {
				added.Add(1)
			}
			return err
		}
	}
	load, err := measure.Run(window, ops...)
	if err != nil {
		return nil, err
	}
	sum, err := value.NewCounter(e.sessions[0], path, embed.Int64).Add(ctx, 0)
	if err == nil && sum != added.Load() {
		err = fmt.Errorf("the counter is %d after %d adds", sum, added.Load())
	}
	return []float64{load.Rate}, err
}

// flow measures tasks that callers put into a queue, claim and finish, or take: each a task after
// the other.
func (e *ensemble) flow(kind, path string, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), window+patience/2)
	defer cancel()
	queues := e.queues(path)
	ops := make([]func() error, callers)
	for i := range ops {
		q := queues[i%members]
		ops[i] = func() error {
			if _, err := q.Put(ctx, make([]byte, dataLen), task.PutOptions{}); err != nil {
				return err
			}
			if kind == "take" {
				_, err := q.Take(ctx)
				return err
			}
			return work(ctx, q)
		}
	}
	load, err := measure.Run(window, ops...)
	return []float64{load.Rate}, err
}

// queues returns a queue on each member.
func (e *ensemble) queues(path string) (all []*task.Queue) {
	for _, s := range e.sessions {
		all = append(all, task.New(s, path, task.Options{}))
	}
	return all
}

// work claims and finishes one task.
func work(ctx context.Context, q *task.Queue) error {
	t, err := q.Claim(ctx)
	if err != nil {
		return err
	}
	return t.Finish()
}

// drain measures how fast callers claim and finish the tasks of a full queue.
func (e *ensemble) drain(path string, n, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	queues := e.queues(path)
	err := each(n, inFlight, func(int) error {
		_, err := queues[0].Put(ctx, make([]byte, dataLen), task.PutOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var left, done atomic.Int64
	left.Store(int64(n))
	begun := time.Now()
	err = each(callers, callers, func(i int) error {
		for time.Since(begun) < window && left.Add(-1) >= 0 {
			if err := work(ctx, queues[i%members]); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return []float64{float64(done.Load()) / time.Since(begun).Seconds()}, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
