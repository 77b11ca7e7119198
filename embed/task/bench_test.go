package task_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/task"
)

// BenchmarkWork finishes tasks by several calls of Work on three members. In "waiting" they all
// wait in the queue before. In "idle" one task at a time is put, once the one before is finished:
// then the calls of Work wait for tasks.
func BenchmarkWork(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("waiting/workers=%d", workers), func(b *testing.B) {
			benchWork(b, workers, func(ctx context.Context, s *embed.Session, done <-chan struct{}) {
				const each = 500
				for left := b.N; left > 0; left -= each {
					ops := make([]embed.Op, min(each, left))
					for i := range ops {
						ops[i] = embed.OpCreate(path+"/entries/entry-100-", nil, embed.Sequential)
					}
					_, err := s.Multi(ctx, ops...)
					must(b, err)
				}
				for range b.N {
					<-done
				}
			})
		})
		b.Run(fmt.Sprintf("idle/workers=%d", workers), func(b *testing.B) {
			benchWork(b, workers, func(ctx context.Context, s *embed.Session, done <-chan struct{}) {
				q := task.New(s, path, task.Options{})
				for range b.N {
					_, err := q.Put(ctx, nil, task.PutOptions{})
					must(b, err)
					<-done
				}
			})
		})
	}
}

// benchWork measures what feed takes, which puts b.N tasks and waits until so many are done.
func benchWork(
	b *testing.B, workers int, feed func(ctx context.Context, s *embed.Session, done <-chan struct{}),
) {
	ens := embedtest.New(b, 3, embedtest.Options{})
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	s := ens.Session(1, embed.SessionOptions{})
	_, err := task.New(s, path, task.Options{}).Put(ctx, nil, task.PutOptions{})
	must(b, err)
	done := make(chan struct{}, b.N+1)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range workers {
		all.Go(func() {
			node := ens.Node(embed.MemberID(i%3 + 1))
			_ = task.Work(ctx, node, path, task.Options{}, func(context.Context, *task.Task) error {
				done <- struct{}{}
				return nil
			})
		})
	}
	<-done
	b.ResetTimer()
	feed(ctx, s, done)
	b.StopTimer()
}
