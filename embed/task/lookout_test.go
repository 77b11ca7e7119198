package task_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/task"
)

// The callers of one Queue do not compete: each tries another task.
func TestClaim_CallersDoNotCompete(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		q := task.New(ens.Session(1, embed.SessionOptions{}), path, task.Options{})
		const n = 8
		for range n {
			put(t, q, "x", task.PutOptions{})
		}
		var mu sync.Mutex
		var tried []string
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				must(t, q.Wait(bounded(t), func(name string) (bool, error) {
					mu.Lock()
					tried = append(tried, name)
					mu.Unlock()
					<-time.After(time.Second) // until all have begun
					return true, nil
				}))
			})
		}
		all.Wait()
		want := children(t, ens.Session(1, embed.SessionOptions{}), path+"/entries")
		if slices.Sort(tried); !slices.Equal(tried, want) {
			t.Errorf("they tried %v, want %v", tried, want)
		}
	})
}

// A caller gives up while it tries a task, and the other one, which has passed over the task, gets
// it at once when there is a quorum.
func TestClaim_GivenBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		ens.Until("a leader", func() bool { return ens.Leader() != 0 })
		other := embed.MemberID(1)
		if ens.Leader() == other {
			other = 2
		}
		session := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
		q := task.New(session, path, task.Options{})
		put(t, q, "x", task.PutOptions{})
		ens.Isolate(other)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if c, err := q.Claim(ctx); err == nil {
				t.Errorf("%s is claimed without a quorum", c.Name())
			}
		})
		all.Go(func() {
			<-time.After(time.Second)
			must(t, claim(t, q).Finish())
		})
		<-time.After(5 * time.Second)
		ens.HealAll()
		healed := time.Now()
		all.Wait()
		if took := time.Since(healed); took > 5*time.Second {
			t.Errorf("it got the task after %v", took)
		}
	})
}
