package task_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
)

// A model of the queue under failures: each task that was put is finished or dead, none has two
// live claims, tokens grow, and what Finish writes is written once for each task. Members are
// killed and cut off, tasks fail, and some kill their claims for ever. A consumer that comes back
// after a long partition goes on (CURATOR-623), and two never have one task when a claim is lost
// (CURATOR-605).
func TestWork_UnderFailures(t *testing.T) {
	for _, layout := range []task.Layout{task.Locking, task.Priority} {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
				o := task.Options{Layout: layout, Attempts: 8}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				s := ens.Session(1, embed.SessionOptions{})
				_, err := s.Put(t.Context(), "/tasks/sum", embed.Int64.Format(0))
				must(t, err)

				var mu sync.Mutex
				live := make(map[string]context.Context)
				tokens := make(map[string]lock.Token)
				over := make(map[embed.MemberID]bool)
				works := 0
				work := func(ctx context.Context, c *task.Task) error {
					mu.Lock()
					if c.Err() == nil {
						if other := live[c.Name()]; other != nil && other.Err() == nil {
							t.Errorf("%s has two claims", c.Name())
						}
						if tokens[c.Name()].Compare(c.Token()) >= 0 {
							t.Errorf("%s has token %v after %v", c.Name(), c.Token(), tokens[c.Name()])
						}
						live[c.Name()], tokens[c.Name()] = c.Context(), c.Token()
					}
					works++
					n := works
					mu.Unlock()
					select {
					case <-time.After(time.Duration(n%5) * time.Second):
					case <-ctx.Done():
						return context.Cause(ctx)
					}
					switch {
					case strings.HasPrefix(string(c.Data()), "poison"):
						return errors.New("it does not work")
					case n%4 == 0:
						return errors.New("not this time")
					}
					_ = c.Finish(embed.OpAdd("/tasks/sum", 1, embed.Int64))
					return nil
				}
				start := func(id embed.MemberID) {
					node := ens.Node(id)
					for range 2 {
						wg.Go(func() {
							err := task.Work(ctx, node, path, o, work)
							mu.Lock()
							defer mu.Unlock()
							if !over[id] && !errors.Is(err, context.Canceled) {
								t.Errorf("member %d: %v", id, err)
							}
						})
					}
				}
				for _, id := range ens.Members() {
					start(id)
				}
				good, poison := 0, 0
				putAll := func(n int) {
					for i := range n {
						data := fmt.Sprint(i)
						if i%10 == 7 {
							data = "poison"
						}
						s, err := ens.Opener(embed.MemberID(i%3+1)).NewSession(ctx, embed.SessionOptions{})
						must(t, err)
						_, err = task.New(s, path, o).Put(ctx, []byte(data), task.PutOptions{Priority: i % 3})
						must(t, err)
						if data == "poison" {
							poison++
						} else {
							good++
						}
						must(t, s.Close())
					}
				}
				for round := range 4 {
					putAll(20)
					<-time.After(5 * time.Second)
					id := embed.MemberID(round%3 + 1)
					if round%2 == 0 {
						mu.Lock()
						over[id] = true
						mu.Unlock()
						ens.Kill(id)
						<-time.After(15 * time.Second)
						ens.Restart(id)
						mu.Lock()
						over[id] = false
						mu.Unlock()
						start(id)
					} else {
						ens.Isolate(id)
						<-time.After(time.Minute)
						ens.HealAll()
					}
				}
				entries, dead := path, path+"-dead"
				if layout == task.Locking {
					entries, dead = path+"/entries", path+"/dead"
				}
				s = ens.Session(1, embed.SessionOptions{})
				for begun := time.Now(); len(children(t, s, entries)) > 0; <-time.After(time.Second) {
					if time.Since(begun) > patience {
						t.Fatalf("%v are left", children(t, s, entries))
					}
				}
				data, _, err := s.Get(t.Context(), "/tasks/sum")
				must(t, err)
				sum, err := embed.Int64.Parse(data)
				must(t, err)
				buried := children(t, s, dead)
				// A good task may be among the dead, if its claims were lost so often.
				if int(sum)+len(buried) != good+poison || len(buried) < poison {
					t.Errorf("%d are done and %d dead, of %d good and %d bad", sum, len(buried), good, poison)
				}
				for _, part := range []string{path + "/taken", path + "/tries", path + "-locks",
					path + "-tries"} {
					for begun := time.Now(); len(children(t, s, part)) > 0; <-time.After(time.Second) {
						if time.Since(begun) > patience {
							t.Fatalf("%s has %v", part, children(t, s, part))
						}
					}
				}
				t.Logf("%d claims, %d done, %d dead", works, sum, len(buried))
			})
		})
	}
}

// A task that failed is claimed again later and later, and a worker that shuts down gives it back
// at once. An error, or a lost claim, ends no worker (in Curator an exception in the loop ends the
// consumer for good).
func TestWork_Retries(t *testing.T) {
	bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		put(t, q, "x", task.PutOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		at := make(chan time.Time, 100)
		over := make(chan error, 1)
		go func() {
			over <- task.Work(ctx, ens.Opener(1), path, task.Options{},
				func(ctx context.Context, c *task.Task) error {
					at <- time.Now()
					if c.Attempt() < 9 {
						return errors.New("not yet")
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
		}()
		next := func() (now time.Time) {
			select {
			case now = <-at:
			case <-time.After(patience):
				t.Fatal("it is not claimed")
			}
			return now
		}
		last := next()
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			now := next()
			if d := now.Sub(last); d < want*time.Second || d > (want+1)*time.Second {
				t.Errorf("claimed again after %v, want %v s", d, want)
			}
			last = now
		}
		<-time.After(time.Hour)
		stopped := time.Now()
		cancel()
		c := claim(t, task.New(ens.Session(2, embed.SessionOptions{}), path, task.Options{}))
		if d := time.Since(stopped); c.Attempt() != 10 || d > time.Second {
			t.Errorf("attempt %d after %v", c.Attempt(), d)
		}
		select {
		case err := <-over:
			wantErr(t, err, context.Canceled)
		case <-time.After(patience):
			t.Error("Work does not end")
		}
		must(t, c.Finish())
	})
}

// M123: the parts of a queue are on several shards. It is refused before anything is made and before
// a task is worked on, also if only the dead ones are elsewhere.
func TestWork_WhereDeadTasksAreOnAnotherShard(t *testing.T) {
	synctestShards(t, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := ens.Session(1, embed.SessionOptions{})
		refused, buried := 0, 0
		for i := range 60 {
			path := fmt.Sprint("/queue", i)
			o := task.Options{Layout: task.Plain, LockPath: path + "/locks", Attempts: 1}
			soon, end := context.WithTimeout(ctx, time.Second)
			_, err := task.New(s, path, o).Claim(soon)
			end()
			if !errors.Is(err, context.DeadlineExceeded) {
				wantErr(t, err, embed.ErrCrossShard)
			}
			if _, made, _ := s.Exists(ctx, path); made == errors.Is(err, embed.ErrCrossShard) {
				t.Errorf("%s: %v, and it is there: %v", path, err, made)
			}
			put(t, task.New(s, path, o), "x", task.PutOptions{})
			soon, end = context.WithTimeout(ctx, time.Second)
			ran := 0
			err = task.Work(soon, ens.Opener(1), path, o, func(context.Context, *task.Task) error {
				ran++
				return errors.New("failed")
			})
			end()
			dead := len(children(t, s, path+"-dead"))
			switch {
			case ran == 0 && errors.Is(err, embed.ErrCrossShard):
				refused++
			case ran == 1 && dead == 1:
				buried++
			default:
				t.Errorf("%s: fn ran %d times, %d are dead: %v", path, ran, dead, err)
			}
		}
		if refused == 0 || buried == 0 {
			t.Errorf("%d were refused, %d buried", refused, buried)
		}
	})
}

// What is on another shard is refused, and nothing waits for ever.
func TestWork_OnSeveralShards(t *testing.T) {
	synctestShards(t, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := ens.Session(1, embed.SessionOptions{})
		refused := 0
		for i := range 20 {
			o := task.Options{Layout: task.Plain, LockPath: fmt.Sprint("/locks", i)}
			q := task.New(s, "/tasks/q", o)
			put(t, q, "x", task.PutOptions{})
			c, err := q.Claim(ctx)
			if err == nil {
				must(t, c.Finish())
				continue
			}
			refused++
			wantErr(t, err, embed.ErrCrossShard)
			wantErr(t, task.Work(ctx, ens.Opener(1), "/tasks/q", o, nil), embed.ErrCrossShard)
			must(t, claim(t, task.New(s, "/tasks/q", task.Options{Layout: task.Plain})).Finish())
		}
		if refused == 0 || refused == 20 {
			t.Errorf("%d of 20 were refused", refused)
		}
	})
}
