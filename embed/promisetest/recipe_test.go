package promisetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A step is a ctx that does something in the middle of a recipe. Every method of a Session asks its
// ctx for Err first, and so does claim.Before. The step acts at the n-th such question of one
// method. Watches are lost and found between two such calls.
type step struct {
	context.Context
	method string
	n      int32
	do     func()
	calls  atomic.Int32
}

func (s *step) Err() error {
	if s.askedBy(s.method) && s.calls.Add(1) == s.n {
		s.do()
	}
	return s.Context.Err()
}

func (s *step) askedBy(method string) bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/embed.(*Session)."+method) || strings.HasSuffix(f.Function, "/claim."+method) {
			return true
		}
		if !more {
			return false
		}
	}
}

func (s *step) String() string { return fmt.Sprintf("%s %d", s.method, s.n) }

// contender puts a contender into a queue, as another process would.
func contender(t *testing.T, s *embed.Session, parent, value string) (path string) {
	t.Helper()
	path, err := s.Create(bounded(t), parent+"/_c_00000000-0000-4000-8000-000000000000-lock-", []byte(value), embed.EphemeralSequential)
	must(t, err)
	return path
}

// A waiter for a lock looks for the contender ahead, arms a watch on it, and looks again. Whenever
// that contender leaves in between, the waiter learns of it.
//
// (CURATOR-527: one that was gone between two looks left the waiter waiting.)
func TestRecipes_APredecessorThatLeavesWhileAWaiterLooks(t *testing.T) {
	t.Parallel()
	recipes := map[string]func(ctx context.Context, s *embed.Session) error{
		"Lock": func(ctx context.Context, s *embed.Session) error {
			_, err := lock.NewMutex(s, "/queue").Lock(ctx)
			return err
		},
		"Campaign": func(ctx context.Context, s *embed.Session) error {
			_, err := election.New(s, "/queue").Campaign(ctx, nil)
			return err
		},
	}
	for name, enter := range recipes {
		for _, at := range []*step{{method: "Before", n: 1}, {method: "Before", n: 2}, {method: "Watch", n: 1}, {method: "Exists", n: 1}} {
			run(t, name+"/"+at.String(), func(t *testing.T) {
				s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{Timeout: time.Minute})
				_, err := s.Create(bounded(t), "/queue", nil, embed.Persistent)
				must(t, err)
				ahead := contender(t, s, "/queue", "")
				at.Context = bounded(t)
				at.do = func() { must(t, s.Delete(bounded(t), ahead, embed.AnyVersion)) }
				if err := enter(at, s); err != nil {
					t.Errorf("the one ahead left, and the waiter was told nothing: %v", err)
				}
			})
		}
	}
}

// Observe arms its watch and then looks. If the leader or its value changes meanwhile, Observe
// yields the newest.
func TestRecipes_ALeaderThatChangesWhileAnObserverLooks(t *testing.T) {
	t.Parallel()
	const path = "/election"
	changes := map[string]func(t *testing.T, s *embed.Session, first string){
		"the next one leads": func(t *testing.T, s *embed.Session, first string) {
			contender(t, s, path, "new")
			must(t, s.Delete(bounded(t), first, embed.AnyVersion))
		},
		"nobody leads for a while": func(t *testing.T, s *embed.Session, first string) {
			must(t, s.Delete(bounded(t), first, embed.AnyVersion))
			contender(t, s, path, "new")
		},
		"it has another value": func(t *testing.T, s *embed.Session, first string) {
			_, err := s.Set(bounded(t), first, []byte("new"), embed.AnyVersion)
			must(t, err)
		},
	}
	for name, change := range changes {
		for _, method := range []string{"Watch", "Children", "Get"} {
			for n := range int32(2) { // before Observe has yielded the first leader, and after
				at := &step{method: method, n: n + 1}
				run(t, name+"/"+at.String(), func(t *testing.T) {
					s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{Timeout: time.Minute})
					_, err := s.Create(bounded(t), path, nil, embed.Persistent)
					must(t, err)
					first := contender(t, s, path, "old")
					at.Context = bounded(t)
					at.do = func() { change(t, s, first) }
					for l, err := range election.New(s, path).Observe(at) {
						if err != nil {
							t.Errorf("the leader changed, and the observer was told nothing: %v", err)
						}
						if string(l.Value) == "new" {
							break
						}
					}
				})
			}
		}
	}
}

// TryLock of a held lock leaves no trace: no znode comes and goes, and no watch fires.
func TestRecipes_TryLockOfAHeldLockWritesNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
		must(t, err)
		before, _, err := s.Exists(bounded(t), "/lock")
		must(t, err)
		for range 5 {
			if _, err := lock.NewMutex(s, "/lock").TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("TryLock: %v", err)
			}
		}
		must(t, s.Close()) // comes after everything that they wrote
		after, _, err := ens.Session(1, embed.SessionOptions{}).Exists(bounded(t), "/lock")
		must(t, err)
		if wrote := after.Cversion - before.Cversion - 1; wrote != 0 { // the end of the hold is one
			t.Errorf("the children changed %d times for five who only asked", wrote)
		}
	})
}
