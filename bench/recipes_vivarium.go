//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

// play does what words ask for; see recipes.
func (v *vivarium) play(words string) ([]float64, error) {
	if err := v.openSessions(); err != nil {
		return nil, err
	}
	switch w := strings.Fields(words); w[0] {
	case "view":
		return v.view(w[1], parsed(w[2]))
	case "counter":
		return v.counter(w[1], parsed(w[2]), window(w[3]))
	case "flow":
		return v.flow(w[1], w[2], parsed(w[3]), window(w[4]))
	case "drain":
		return v.drain(w[1], parsed(w[2]), parsed(w[3]), window(w[4]))
	}
	return nil, fmt.Errorf("no such request: %q", words)
}

// openSessions opens a session on each member, the leader's first, unless they are open.
func (v *vivarium) openSessions() error {
	if v.sessions != nil {
		return nil
	}
	leader, err := v.leader()
	if err != nil {
		return err
	}
	for i := range v.nodes {
		s, err := v.nodes[(leader+i)%len(v.nodes)].NewSession(context.Background(), embed.SessionOptions{})
		if err != nil {
			return err
		}
		v.sessions = append(v.sessions, s)
	}
	return nil
}

// parsed reads a number that this program has written.
func parsed(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

func window(word string) time.Duration { return time.Duration(parsed(word)) * time.Millisecond }

// view measures how long a group takes to show n members that join, and how long another group
// takes to open then. The members are on the leader's node, the groups on another one.
func (v *vivarium) view(dir string, n int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leader, err := v.leader()
	if err != nil {
		return nil, err
	}
	joins, err := v.nodes[leader].NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return nil, err
	}
	defer joins.Close()
	if _, err := joins.Create(ctx, dir, nil, embed.Persistent); err != nil {
		return nil, err
	}
	g, err := group.Watch(ctx, v.sessions[1], dir, group.Options{})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	begun := time.Now()
	failed := make(chan error, 1)
	go func() {
		failed <- inParallel(n, inFlight, func(i int) error {
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
	again, err := group.Watch(ctx, v.sessions[1], dir, group.Options{})
	if err != nil {
		return nil, err
	}
	defer again.Close()
	shown := len(again.Members())
	open := time.Since(begun)
	if shown != n {
		return nil, fmt.Errorf("the group shows %d of %d members", shown, n)
	}
	return []float64{millis(arrive), millis(open)}, nil
}

// counter measures adds of one to a counter.
func (v *vivarium) counter(path string, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var added atomic.Int64
	ops := make([]func() error, callers)
	for i := range ops {
		c := value.NewCounter(v.sessions[i%members], path, embed.Int64)
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
	sum, err := value.NewCounter(v.sessions[0], path, embed.Int64).Add(ctx, 0)
	if err == nil && sum != added.Load() {
		err = fmt.Errorf("the counter is %d after %d adds", sum, added.Load())
	}
	return []float64{load.Rate}, err
}

// flow measures tasks that callers put into a queue, claim and finish, or take: each a task after
// the other.
func (v *vivarium) flow(kind, path string, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), window+patience/2)
	defer cancel()
	queues := v.queues(path)
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
			return finish(ctx, q)
		}
	}
	load, err := measure.Run(window, ops...)
	return []float64{load.Rate}, err
}

// queues returns a queue on each member.
func (v *vivarium) queues(path string) (all []*task.Queue) {
	for _, s := range v.sessions {
		all = append(all, task.New(s, path, task.Options{}))
	}
	return all
}

// finish claims and finishes one task.
func finish(ctx context.Context, q *task.Queue) error {
	t, err := q.Claim(ctx)
	if err != nil {
		return err
	}
	return t.Finish()
}

// drain measures how fast callers claim and finish the tasks of a full queue.
func (v *vivarium) drain(path string, n, callers int, window time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	queues := v.queues(path)
	err := inParallel(n, inFlight, func(int) error {
		_, err := queues[0].Put(ctx, make([]byte, dataLen), task.PutOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var left, done atomic.Int64
	left.Store(int64(n))
	begun := time.Now()
	err = inParallel(callers, callers, func(i int) error {
		for time.Since(begun) < window && left.Add(-1) >= 0 {
			if err := finish(ctx, queues[i%members]); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return []float64{float64(done.Load()) / time.Since(begun).Seconds()}, err
}
