//go:build unix

package operationtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/metrics"
)

// cpuTime returns the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// cpuOfWrites returns the processor time of a write, of many callers for a while.
func cpuOfWrites(b *testing.B, s *embed.Session, while time.Duration) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), while)
	defer cancel()
	var all sync.WaitGroup
	var writes atomic.Int64
	used := cpuTime(b)
	for i := range 64 {
		all.Go(func() {
			path, data := fmt.Sprintf("/%04d", i), make([]byte, 64)
			for ctx.Err() == nil {
				if _, err := s.Set(ctx, path, data, embed.AnyVersion); err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
				writes.Add(1)
			}
		})
	}
	all.Wait()
	return (cpuTime(b) - used) / time.Duration(writes.Load())
}

// BenchmarkScrape_CPU is the processor time of a page for Prometheus, of a member with many sessions
// and znodes and its gateway. It includes what the member does by itself meanwhile. It does not
// include the wait for a processor that others use. So cpu-ms/scrape divided by 10 is how many
// percent of a core a scrape every second costs: 10 ms in each second are 1 %. cpu-us/write is that
// of a write beside it.
//
// One operation is a hundred scrapes. Run it with -benchtime 100x: garbage is collected seldom, and
// the mean is to have its share of that.
func BenchmarkScrape_CPU(b *testing.B) {
	const scrapes = 100
	n, s := lonely(b)
	grow(b, n, s)
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0"})
	must(b, err)
	defer g.Close()
	write := cpuOfWrites(b, s, 5*time.Second)
	var batches []float64 // cpu-ms of a scrape, in each operation
	for b.Loop() {
		used := cpuTime(b)
		for range scrapes {
			must(b, metrics.Write(io.Discard, n, g))
		}
		batches = append(batches, (cpuTime(b)-used).Seconds()*1e3/scrapes)
	}
	var sum float64
	for _, ms := range batches {
		sum += ms
	}
	slices.Sort(batches)
	b.ReportMetric(sum/float64(len(batches)), "cpu-ms/scrape")
	b.ReportMetric(batches[len(batches)/10], "p10-cpu-ms/scrape")
	b.ReportMetric(batches[len(batches)*9/10], "p90-cpu-ms/scrape")
	b.ReportMetric(write.Seconds()*1e6, "cpu-us/write")
}
