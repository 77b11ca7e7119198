package lock_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// Handing a lock over costs as much with many waiters as with few. It costs a little more where the
// tree of names has one more level of pages.
func TestHandOver_DoesNotCostByTheQueue(t *testing.T) {
	for name, kind := range map[string]func(s *embed.Session, path string) func(context.Context) (*lock.Hold, error){
		"mutex": func(s *embed.Session, path string) func(context.Context) (*lock.Hold, error) {
			return lock.NewMutex(s, path).Lock
		},
		"write": func(s *embed.Session, path string) func(context.Context) (*lock.Hold, error) {
			return lock.NewRWMutex(s, path).Lock
		},
		"semaphore": func(s *embed.Session, path string) func(context.Context) (*lock.Hold, error) {
			return acquires(lock.NewSemaphore(s, path, 1), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				few, many := handOver(t, 30, kind), handOver(t, 1000, kind)
				t.Logf("%.0f allocations of %.0f bytes with 30 waiters, %.0f of %.0f with 1,000", few.allocs, few.bytes, many.allocs, many.bytes)
				if many.allocs > 2*few.allocs || many.bytes > 2*few.bytes {
					t.Error("that grows with the queue")
				}
			})
		})
	}
}

// cost is what one hand-over allocates.
type cost struct{ allocs, bytes float64 }

// handOver acquires a lock for which n others wait, and passes it from one to the next.
func handOver(t *testing.T, n int, kind func(s *embed.Session, path string) func(context.Context) (*lock.Hold, error)) cost {
	t.Helper()
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	acquire := kind(s, path)
	h, err := acquire(bounded(t))
	must(t, err)
	holds := make(chan outcome, n)
	ctx, leave := context.WithCancel(bounded(t))
	for range n {
		go func() {
			h, err := acquire(ctx)
			holds <- outcome{h, err}
		}()
	}
	ens.Until("all to wait", func() bool {
		waiters, err := lock.Waiters(ctx, s, path)
		return err == nil && len(waiters) == n
	})
	// Waiters that are still finding out for whom they wait allocate too, so measure several times
	// and use the smallest.
	const turns = 5
	least := cost{allocs: math.Inf(1)}
	left := n
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range turns {
			must(t, h.Release())
			o := <-holds
			must(t, o.err)
			h = o.hold
		}
		runtime.ReadMemStats(&after)
		left -= turns
		if allocs := float64(after.Mallocs-before.Mallocs) / turns; allocs < least.allocs {
			least = cost{allocs, float64(after.TotalAlloc-before.TotalAlloc) / turns}
		}
	}
	leave()
	for range left {
		<-holds
	}
	return least
}

// readers makes n readers hold the lock, and n more wait behind a writer.
func readers(t testing.TB, s *embed.Session, n int) {
	t.Helper()
	create(t, s, "/locks", path)
	for _, kind := range []string{"READ", "WRIT", "READ"} {
		for i := 0; i < n && (kind == "READ" || i == 0); {
			var ops []embed.Op
			for ; len(ops) < 1000 && i < n && (kind == "READ" || i == 0); i++ {
				ops = append(ops, embed.OpCreate(fmt.Sprintf("%s/_c_%08x-0000-4000-8000-%012d-__%s__", path, i, i, kind), nil, embed.EphemeralSequential))
			}
			_, err := s.Multi(bounded(t), ops...)
			must(t, err)
		}
	}
}

// With ten times as many contenders, Holders costs ten times as much.
func BenchmarkHolders(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := one(b).Session(1, embed.SessionOptions{})
			readers(b, s, n)
			for b.Loop() {
				holders, err := lock.Holders(bounded(b), s, path)
				must(b, err)
				waiters, err := lock.Waiters(bounded(b), s, path)
				must(b, err)
				if len(holders) != n || len(waiters) != n+1 {
					b.Fatalf("%d hold it, %d wait; want %d and one more", len(holders), len(waiters), n)
				}
			}
		})
	}
}

// A kept lock allocates its Hold and what the Hold contains.
func TestKeep_AllocatesTheHoldOnly(t *testing.T) {
	sessionsflag.Member(t, "it counts what a member allocates")
	testkit.Bubble(t, func(t *testing.T) {
		m := kept(one(t).Session(1, embed.SessionOptions{}), time.Hour)
		ctx := bounded(t)
		again := func() {
			h, err := m.Lock(ctx)
			if err == nil {
				err = h.Release()
			}
			if err != nil {
				t.Error(err)
			}
		}
		again()
		// An idle node allocates now and then, so use the smallest of several measurements.
		least := testing.AllocsPerRun(1000, again)
		for range 4 {
			least = min(least, testing.AllocsPerRun(1000, again))
		}
		if least > 3 { // the Hold, and its tenure here and in the engine
			t.Errorf("a lock that is kept allocates %v times", least)
		}
	})
}

// The cost of a kept lock, next to that of a lock that each release gives up. There is one member,
// with a disk that takes no time.
func BenchmarkLock(b *testing.B) {
	s := embedtest.New(b, 1, embedtest.Options{}).Session(1, embed.SessionOptions{})
	for _, bench := range []struct {
		name    string
		keep    time.Duration
		callers int // per processor
	}{{"committed", 0, 0}, {"kept", time.Hour, 0}, {"kept, 4 callers a processor", time.Hour, 4}} {
		b.Run(bench.name, func(b *testing.B) {
			m, ctx := lock.NewMutex(s, path).With(lock.Options{Keep: bench.keep}), bounded(b)
			again := func() {
				h, err := m.Lock(ctx)
				if err == nil {
					err = h.Release()
				}
				if err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			if bench.callers == 0 {
				for b.Loop() {
					again()
				}
				return
			}
			b.SetParallelism(bench.callers)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					again()
				}
			})
		})
	}
}
