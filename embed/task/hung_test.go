package task_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/task"
)

// A function that hangs keeps its task for as long as its process lives (asynq#1089). Somebody who
// deletes the claim ends it: the function is told, another one claims the task at once, and the one
// that hung can no longer finish it. That is what docs/recipes.md says.
func TestWork_AFunctionThatHangs(t *testing.T) {
	bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		name := put(t, task.New(s, path, task.Options{}), "x", task.PutOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		hung, goOn := make(chan *task.Task, 1), make(chan struct{})
		defer close(goOn)
		all.Go(func() {
			hang := func(_ context.Context, c *task.Task) error {
				hung <- c
				<-goOn
				return nil
			}
			_ = task.Work(ctx, ens.Opener(1), path, task.Options{}, hang)
		})
		var first *task.Task
		select {
		case first = <-hung:
		case <-time.After(patience):
			t.Fatal("it is not claimed")
		}
		other := task.New(ens.Session(2, embed.SessionOptions{}), path, task.Options{})
		ctx2, cancel2 := context.WithTimeout(ctx, 10*time.Minute)
		_, err := other.Claim(ctx2)
		cancel2()
		wantErr(t, err, context.DeadlineExceeded)

		claimed := path + "/taken/" + name
		stat, there, err := s.Exists(t.Context(), claimed)
		if must(t, err); !there {
			t.Fatalf("no %s", claimed)
		}
		if member, err := s.Member(t.Context(), stat.EphemeralOwner); member != 1 || err != nil {
			t.Errorf("member %d, %v", member, err)
		}
		must(t, s.Delete(t.Context(), claimed, embed.AnyVersion))
		second := claim(t, other)
		if second.Name() != name || second.Attempt() != 2 {
			t.Errorf("%s, attempt %d", second.Name(), second.Attempt())
		}
		select {
		case <-first.Done():
		case <-time.After(time.Second):
			t.Error("the first one is not told")
		}
		wantErr(t, first.Finish(), embed.ErrNotHeld)
		must(t, second.Finish())
	})
}
