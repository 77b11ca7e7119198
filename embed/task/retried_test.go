package task_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// A step is a ctx that does something in the middle of a call: when a method of the Session asks it
// for the n-th time whether it has ended.
type step struct {
	context.Context
	method string
	n      int32
	do     func()
	calls  atomic.Int32
}

func (s *step) Err() error {
	if s.askedBy() && s.calls.Add(1) == s.n {
		s.do()
	}
	return s.Context.Err()
}

func (s *step) askedBy() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/embed.(*Session)."+s.method) {
			return true
		}
		if !more {
			return false
		}
	}
}

// begin begins a task in one of the two ways, and returns its data.
var begin = map[string]func(ctx context.Context, q *task.Queue) ([]byte, error){
	"Take": func(ctx context.Context, q *task.Queue) ([]byte, error) { return q.Take(ctx) },
	"Claim": func(ctx context.Context, q *task.Queue) ([]byte, error) {
		c, err := q.Claim(ctx)
		if err != nil {
			return nil, err
		}
		return c.Data(), c.Finish()
	},
}

// eachStep calls test for each step of both ways to begin a task, until the call has no more steps.
func eachStep(t *testing.T, test func(t *testing.T, way string, at *step)) {
	for way := range begin {
		for _, method := range []string{"Get", "Exists", "Page", "Submit"} {
			for n, over := int32(1), false; !over; n++ {
				t.Run(fmt.Sprint(way, "/", method, " ", n), func(t *testing.T) {
					at := &step{method: method, n: n}
					test(t, way, at)
					over = at.calls.Load() < n
				})
			}
		}
	}
}

// Somebody else claims a task and retries it while a caller is about to begin it, as the caller's
// node may learn only later. Nobody begins it before its time, and nothing is left behind.
func TestRetry_WhileAnotherBegins(t *testing.T) {
	eachStep(t, func(t *testing.T, way string, at *step) {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			q := task.New(s, path, task.Options{})
			other := task.New(ens.Session(1, embed.SessionOptions{}), path, task.Options{})
			put(t, q, "x", task.PutOptions{})
			var due time.Time
			at.do = func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if c, err := other.Claim(ctx); err == nil { // it is not too late
					due = time.Now().Add(time.Minute)
					must(t, c.Retry(time.Minute))
				}
			}
			at.Context = bounded(t)
			data, err := begin[way](at, q)
			if must(t, err); string(data) != "x" {
				t.Errorf("%q", data)
			}
			if early := time.Until(due); !due.IsZero() && early > 0 {
				t.Errorf("it began %v before its time", early)
			}
			for _, part := range []string{"/entries", "/taken", "/tries"} {
				if left := children(t, s, path+part); len(left) > 0 {
					t.Errorf("%s has %v", part, left)
				}
			}
		})
	})
}

// A task is removed while a caller takes it, and another one gets its name, because the queue was
// deleted and created anew. The other one is not lost.
func TestTake_ANameThatIsUsedAgain(t *testing.T) {
	for _, method := range []string{"Get", "Exists", "Submit"} {
		for n, over := int32(1), false; !over; n++ {
			t.Run(fmt.Sprint(method, " ", n), func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
					s := ens.Session(1, embed.SessionOptions{})
					q := task.New(s, path, task.Options{})
					name := put(t, q, "old", task.PutOptions{})
					at := &step{Context: bounded(t), method: method, n: n}
					at.do = func() {
						must(t, s.Delete(t.Context(), path+"/entries/"+name, 0))
						must(t, s.Delete(t.Context(), path+"/entries", embed.AnyVersion))
						if again := put(t, q, "new", task.PutOptions{}); again != name {
							t.Fatalf("%s, want %s", again, name)
						}
					}
					data, err := q.Take(at)
					must(t, err)
					if over = at.calls.Load() < n; !over && string(data) != "new" {
						t.Errorf("%q is taken", data)
					}
				})
			})
		}
	}
}

// A client of ZooKeeper removes a task that was retried: kazoo's consume and Curator's requeue do
// not know of its tries. Whoever waits for tasks deletes them, and nothing else.
func TestRetry_AnotherClientRemovesTheTask(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		const n = 250
		var names []string
		for i := range n {
			names = append(names, put(t, q, fmt.Sprint(i), task.PutOptions{}))
		}
		for range n {
			must(t, claim(t, q).Retry(time.Hour))
		}
		for _, name := range names[1:] {
			must(t, s.Delete(t.Context(), path+"/entries/"+name, 0))
		}
		_, err := s.Create(t.Context(), path+"/tries/foreign", nil, embed.Persistent)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = q.Claim(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		left, want := children(t, s, path+"/tries"), []string{names[0], "foreign"}
		if !slices.Equal(left, want) {
			t.Errorf("%s are left, want %s", left, want)
		}
		if c := claimWithin(t, q, 2*time.Hour); c.Attempt() != 2 {
			t.Errorf("attempt %d", c.Attempt())
		}
	})
}

// claimWithin claims a task that may be claimed later.
func claimWithin(t *testing.T, q *task.Queue, d time.Duration) *task.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	c, err := q.Claim(ctx)
	must(t, err)
	return c
}

// A Claim buries a dead task while there is no quorum. Its outcome says nothing of the Claim, which
// goes on and claims the next task.
func TestClaim_WithoutAQuorumWhileItBuries(t *testing.T) {
	sessionsflag.Member(t, "a claim whose answer a broken connection took counts as an attempt")
	for _, method := range []string{"Exists", "CreateWith", "Submit"} {
		for n, over := int32(1), false; !over; n++ {
			t.Run(fmt.Sprint(method, " ", n), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
					s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
					q := task.New(s, path, task.Options{Attempts: 1})
					put(t, q, "dead", task.PutOptions{})
					put(t, q, "good", task.PutOptions{})
					c := claim(t, q)
					must(t, s.Delete(t.Context(), path+"/taken/"+c.Name(), 0)) // the attempt is lost
					<-c.Done()
					// Without a deadline, so that a write waits only for a while.
					ctx, cancel := context.WithCancel(t.Context())
					defer time.AfterFunc(patience, cancel).Stop()
					at := &step{Context: ctx, method: method, n: n}
					at.do = func() {
						ens.Isolate(1)
						time.AfterFunc(30*time.Second, ens.HealAll)
					}
					c, err := q.Claim(at)
					over = at.calls.Load() < n
					if err != nil {
						t.Fatal(err)
					}
					if string(c.Data()) != "good" {
						t.Errorf("%q is claimed", c.Data())
					}
				})
			})
		}
	}
}

// Without a quorum a waiter cannot make the znodes of a queue, and sweeps where there is nothing
// yet. It comes back to that a minute later, not at once for ever.
func TestSweep_NothingThere(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		q := task.New(ens.Session(1, embed.SessionOptions{}), path, task.Options{})
		if pause, err := q.Sweep(t.Context()); pause < 0 || err != nil {
			t.Errorf("%v, %v", pause, err)
		}
	})
}
