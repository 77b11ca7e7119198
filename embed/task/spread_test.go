package task_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
)

// The callers of several Queues compete: each tries another task as a rule. All tasks of a priority
// begin before those of the next one. Once a Queue is alone, its tasks begin in order again.
func TestClaim_QueuesSpread(t *testing.T) {
	const queues, each, priorities = 24, 100, 3
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		var all []*task.Queue
		for i := range queues {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			all = append(all, task.New(s, path, task.Options{}))
		}
		var names []string
		for i := range each * priorities {
			names = append(names, put(t, all[0], "x", task.PutOptions{Priority: i % priorities}))
		}
		slices.Sort(names)
		_, err := all[0].Session().Sync(bounded(t), path)
		must(t, err)

		var mu sync.Mutex
		tries := 0
		tokens := make(map[string]lock.Token)
		var wg sync.WaitGroup
		claimOne := func(q *task.Queue) {
			var c *task.Task
			err := q.Wait(bounded(t), func(name string) (_ bool, err error) {
				mu.Lock()
				tries++
				mu.Unlock()
				c, err = q.Try(bounded(t), name)
				return c != nil, err
			})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tokens[c.Name()] = c.Token()
			mu.Unlock()
			if err := c.Finish(); err != nil {
				t.Error(err)
			}
		}
		left := make(chan struct{}, len(names))
		for range names {
			left <- struct{}{}
		}
		close(left)
		for _, q := range all {
			wg.Go(func() {
				for range left {
					claimOne(q)
				}
			})
		}
		wg.Wait()
		if len(tokens) != len(names) {
			t.Fatalf("%d of %d tasks began", len(tokens), len(names))
		}
		for i := each; i < len(names); i += each {
			newest := func(a, b string) int { return tokens[a].Compare(tokens[b]) }
			last := slices.MaxFunc(names[i-each:i], newest)
			first := slices.MinFunc(names[i:i+each], newest)
			if newest(last, first) > 0 {
				t.Errorf("%s began before %s", first, last)
			}
		}
		t.Logf("%d tries for %d tasks", tries, len(names))
		if tries > 4*len(names) {
			t.Errorf("%d tries for %d tasks", tries, len(names))
		}
		inOrderAgain(t, all[len(all)-1])
	})
}

// inOrderAgain tests that a Queue that was spread goes back to the order within a few claims.
func inOrderAgain(t *testing.T, q *task.Queue) {
	t.Helper()
	const n, few = 30, 15
	for i := range n {
		put(t, q, fmt.Sprint(i), task.PutOptions{})
	}
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	for i := range n {
		c, err := q.Claim(ctx)
		must(t, err)
		if first := children(t, q.Session(), path+"/entries")[0]; i >= few && c.Name() != first {
			t.Errorf("claim %d is %s, want %s", i, c.Name(), first)
		}
		must(t, c.Finish())
	}
}
