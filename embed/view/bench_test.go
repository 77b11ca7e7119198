package view_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/view"
)

const benchLen = 100_000

func benchSession(b *testing.B) *embed.Session {
	s := one(b, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
	fill(b, s, benchLen)
	return s
}

// BenchmarkGet reads one of 100,000 entries, and beside it what the session has.
func BenchmarkGet(b *testing.B) {
	s := benchSession(b)
	v, err := view.Open(bounded(b), s, "/many", view.Options[string]{})
	must(b, err)
	paths := make([]string, 1<<12)
	for i := range paths {
		paths[i] = many(i * 7919 % benchLen)
	}
	b.Run("of=view", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := v.Get(paths[i%len(paths)]); !ok {
				b.Fatal("missing")
			}
		}
	})
	b.Run("of=session", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _, err := s.Get(b.Context(), paths[i%len(paths)])
			must(b, err)
		}
	})
}

// BenchmarkOpen opens a view of 100,000 znodes, and says what an entry keeps in memory.
func BenchmarkOpen(b *testing.B) {
	s := benchSession(b)
	var kept float64
	for b.Loop() {
		b.StopTimer()
		before := heap()
		b.StartTimer()
		v, err := view.Open(bounded(b), s, "/many", view.Options[string]{})
		must(b, err)
		b.StopTimer()
		kept = float64(heap()-before) / benchLen
		must(b, v.Close())
		b.StartTimer()
	}
	b.ReportMetric(kept, "B/entry")
}

// BenchmarkOpen_Narrow opens views that show one znode, with 100,000 below it that they leave out.
func BenchmarkOpen_Narrow(b *testing.B) {
	ens := one(b, 1)
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	_, err := s.Create(b.Context(), "/narrow", nil, embed.Persistent)
	must(b, err)
	fill(b, ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Root: "/narrow"}), benchLen)
	keep := func(path string) bool { return path == "/narrow/many" }
	for name, o := range map[string]view.Options[string]{"Depth": {Depth: 1}, "Keep": {Keep: keep}} {
		b.Run("by="+name, func(b *testing.B) {
			for b.Loop() {
				v, err := view.Open(b.Context(), s, "/narrow", o)
				must(b, err)
				must(b, v.Close())
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkChange changes entries of a view of 100,000, one or many in a transaction, and waits
// until the view shows them. Without a view it waits for the writes only.
func BenchmarkChange(b *testing.B) {
	s := benchSession(b)
	for _, with := range []bool{false, true} {
		for _, n := range []int{1, 1000} {
			b.Run(fmt.Sprintf("view=%v/changes=%d", with, n), func(b *testing.B) {
				ctx := bounded(b)
				var v *view.View[string]
				if with {
					var err error
					v, err = view.Open(ctx, s, "/many", view.Options[string]{})
					must(b, err)
					defer v.Close()
				}
				ops := make([]embed.Op, n)
				for i := range ops {
					ops[i] = embed.OpSet(many(i*7919%benchLen), []byte("x"), embed.AnyVersion)
				}
				b.ReportAllocs()
				for b.Loop() {
					r, err := s.Multi(ctx, ops...)
					must(b, err)
					if with {
						must(b, v.Await(ctx, r[0].Stat.Mzxid))
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/change")
			})
		}
	}
}
