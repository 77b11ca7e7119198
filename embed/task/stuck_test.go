package task_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/task"
)

// Somebody deletes the tries of a task that is worked on, to give it new attempts. The worker that
// fails then goes on.
func TestWork_WithoutTries(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		o := task.Options{}
		q := task.New(s, path, o)
		first := put(t, q, "x", task.PutOptions{})
		put(t, q, "y", task.PutOptions{})
		y := 0
		worked(t, ens.Node(1), o, time.Hour, func(ctx context.Context, c *task.Task) error {
			if c.Name() != first {
				y++
				return nil
			}
			must(t, s.Delete(ctx, path+"/tries/"+first, embed.AnyVersion))
			return errors.New("failed")
		})
		if y == 0 {
			t.Errorf("the other task was not worked on in an hour; claims: %v", children(t, s, path+"/taken"))
		}
	})
}

// The queue has filled its quota of bytes. Each worker fails once, and there is no room to write when
// that task is retried. The workers go on with the others.
func TestWork_FailedTasksAtAQuotaOfBytes(t *testing.T) {
	const workers = 3
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		o := task.Options{}
		q := task.New(s, path, o)
		for range 10 {
			put(t, q, "0123456789", task.PutOptions{})
		}
		at := "/zookeeper/quota" + path
		_, err := s.Put(t.Context(), at+"/zookeeper_limits", []byte("count=-1,bytes=-1=;byteHardLimit=100;countHardLimit=-1"))
		must(t, err)
		_, err = s.Put(t.Context(), at+"/zookeeper_stats", nil)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		var runs, failed atomic.Int32
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				_ = task.Work(ctx, ens.Node(1), path, o, func(ctx context.Context, c *task.Task) error {
					runs.Add(1)
					if failed.Add(1) <= int32(workers) { // each worker's first
						return errors.New("failed")
					}
					return nil
				})
			})
		}
		all.Wait()
		if left := children(t, s, path+"/entries"); len(left) > workers {
			t.Errorf("after a day %d of 10 tasks are left, fn was called %d times", len(left), runs.Load())
		}
	})
}

// A task that has failed and cannot be moved to the dead ones stops no other.
func TestWork_ATaskThatCannotBeBuried(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		o := task.Options{Attempts: 1}
		q := task.New(s, path, o)
		first := put(t, q, "x", task.PutOptions{})
		for range 5 {
			put(t, q, "y", task.PutOptions{})
		}
		_, _, err := s.CreateWith(t.Context(), path+"/dead", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}}})
		must(t, err)
		others := 0
		n := worked(t, ens.Node(1), o, 24*time.Hour, func(ctx context.Context, c *task.Task) error {
			if c.Name() == first {
				return errors.New("failed")
			}
			others++
			return nil
		})
		if others != 5 {
			t.Errorf("in a day, fn was called %d times, for %d of the 5 other tasks; left %v", n, others, children(t, s, path+"/entries"))
		}
	})
}
