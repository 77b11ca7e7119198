package watch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// idlePaths returns paths, which are made before anything is measured: tests measure the cost of a
// watch besides its path.
func idlePaths(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/services/%03d/instances/%07d", i%1000, i)
	}
	return paths
}

// idle fills a registry and returns the bytes that a watch takes.
func idle(paths []string, mode Mode, open bool) (*Registry, []*Stream, float64) {
	r := NewRegistry()
	streams := make([]*Stream, len(paths))
	before := testkit.Heap()
	for i, path := range paths {
		streams[i] = r.Add(path, mode, Options{}, nil)
		if open {
			streams[i].Events()
		}
	}
	return r, streams, float64(testkit.Heap()-before) / float64(len(paths))
}

// D3: a watch at rest has no buffer.
func TestIdleWatchIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	paths := idlePaths(100_000)
	for _, mode := range []Mode{Once, Persistent, Recursive} {
		r, streams, size := idle(paths, mode, false)
		t.Logf("mode %d: %.0f bytes a watch", mode, size)
		if size > 160 {
			t.Errorf("mode %d: %.0f bytes a watch", mode, size)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(streams)
	}
}

// D3: a change that many watches match makes no buffers for watchers that do not listen, and no
// event is lost.
func TestToldWatchIsSmall(t *testing.T) {
	const watches, most = 100_000, 200
	r := NewRegistry()
	streams := make([]*Stream, watches)
	for i := range streams {
		streams[i] = r.Add("/a", Persistent, Options{}, nil)
	}
	before := testkit.Heap()
	r.Deliver(1, set("/a"), nil)
	if size := float64(testkit.Heap()-before) / watches; size > most {
		t.Errorf("an event takes %.0f bytes a watch, want at most %d", size, most)
	}
	r.Deliver(2, set("/a"), nil)
	for i, s := range streams[:100] {
		if got := []Event{<-s.Events(), <-s.Events()}; got[0].Zxid != 1 || got[1].Zxid != 2 {
			t.Fatalf("watch %d is told %v", i, got)
		}
	}
	runtime.KeepAlive(streams)
}

// TestEndedWatchesLeaveNothing ends all watches of a registry that goes on.
func TestEndedWatchesLeaveNothing(t *testing.T) {
	paths := idlePaths(100_000)
	before := testkit.Heap()
	r, streams, _ := idle(paths, Once, true)
	for _, s := range streams {
		s.Close()
	}
	streams = nil
	if left := testkit.Heap() - before; left > 64<<10 {
		t.Errorf("%d bytes left", left)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(paths)
}

func BenchmarkIdle(b *testing.B) {
	paths := idlePaths(1_000_000)
	for _, mode := range []Mode{Once, Persistent, Recursive} {
		for _, open := range []bool{false, true} {
			if open && mode != Once {
				continue // 2 GiB
			}
			b.Run(fmt.Sprintf("mode=%d/open=%v", mode, open), func(b *testing.B) {
				var size float64
				for b.Loop() {
					r, streams, s := idle(paths, mode, open)
					runtime.KeepAlive(r)
					runtime.KeepAlive(streams)
					size = s
				}
				b.ReportMetric(size, "B/watch")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(paths)), "ns/watch")
			})
		}
	}
}

// BenchmarkDeliver measures one transaction with one change, by the number of watches that do not
// match it.
func BenchmarkDeliver(b *testing.B) {
	all := idlePaths(1_000_000)
	for _, mode := range []Mode{Persistent, Recursive} {
		for _, n := range []int{0, 1000, 1_000_000} {
			r := NewRegistry()
			for _, path := range all[:n] {
				r.Add(path, mode, Options{}, nil)
			}
			for _, matching := range []int{0, 1} {
				var events <-chan Event
				if matching > 0 {
					events = r.Add("/services/000/instances/new", mode, Options{}, nil).Events()
				}
				b.Run(fmt.Sprintf("mode=%d/idle=%d/matching=%d", mode, n, matching), func(b *testing.B) {
					b.ReportAllocs()
					changes := []tree.Change{{Type: tree.Created, Path: "/services/000/instances/new"}}
					for b.Loop() {
						r.Deliver(r.zxid+1, changes, nil)
						if events != nil {
							<-events
						}
					}
				})
			}
		}
	}
}

// BenchmarkDeepPath measures a change at the longest path that fits into a request, under one
// recursive watch of the root.
func BenchmarkDeepPath(b *testing.B) {
	r := NewRegistry()
	events := r.Add("/", Recursive, Options{}, nil).Events()
	changes := set(strings.Repeat("/a", 1<<19))
	for b.Loop() {
		r.Deliver(r.zxid+1, changes, nil)
		<-events
	}
}

// BenchmarkHerd measures one change that ends 100,000 Once watches of one znode.
func BenchmarkHerd(b *testing.B) {
	for _, open := range []bool{false, true} {
		b.Run(fmt.Sprintf("open=%v", open), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := NewRegistry()
				for range 100_000 {
					if s := r.Add("/a", Once, Options{}, nil); open {
						s.Events()
					}
				}
				b.StartTimer()
				r.Deliver(1, set("/a"), nil)
			}
		})
	}
}

// TestMatchingDoesNotCostByIdleWatches counts what Deliver allocates and looks up. Watches that do
// not match cost nothing, but each depth at which something is watched costs one lookup.
func TestMatchingDoesNotCostByIdleWatches(t *testing.T) {
	r := NewRegistry()
	for _, path := range idlePaths(10_000) {
		r.Add(path, Recursive, Options{}, nil)
		r.Add(path, Persistent, Options{}, nil)
	}
	if len(r.depths) != 5 || r.depths[4] != 10_000 || r.depths[0]+r.depths[1]+r.depths[2]+r.depths[3] != 0 {
		t.Errorf("depths %v", r.depths)
	}
	changes := []tree.Change{{Type: tree.Created, Path: "/services/000/instances/new/" + strings.Repeat("x/", 5000) + "x"}}
	if n := testing.AllocsPerRun(100, func() { r.Deliver(r.zxid+1, changes, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
