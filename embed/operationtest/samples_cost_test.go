package operationtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// lonely starts a member that is alone, for a benchmark, and opens a session.
func lonely(b *testing.B) (*embed.Node, *embed.Session) {
	b.Helper()
	n, err := embed.Start(embed.Config{Dir: b.TempDir(), Logger: embedkit.Quiet})
	must(b, err)
	b.Cleanup(func() { _ = n.Close() })
	must(b, n.Ready(b.Context()))
	s, err := n.NewSession(b.Context(), embed.SessionOptions{})
	must(b, err)
	return n, s
}

// BenchmarkWrite is a write of one caller on a member that is alone, with all that is counted on its
// way.
func BenchmarkWrite(b *testing.B) {
	_, s := lonely(b)
	_, err := s.Create(b.Context(), "/a", nil, embed.Persistent)
	must(b, err)
	data := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Set(b.Context(), "/a", data, embed.AnyVersion); err != nil {
			b.Fatal(err)
		}
	}
}

// grow gives a member 100,000 sessions and a million znodes.
func grow(b *testing.B, n *embed.Node, s *embed.Session) {
	b.Helper()
	const sessions, parents, children = 100_000, 1000, 1000
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range sessions / 64 {
				if _, err := n.NewSession(b.Context(), embed.SessionOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for p := range parents {
		ops := []embed.Op{embed.OpCreate(fmt.Sprintf("/%04d", p), nil, embed.Persistent)}
		for c := range children {
			ops = append(ops, embed.OpCreate(fmt.Sprintf("/%04d/%04d", p, c), nil, embed.Persistent))
		}
		if _, err := s.Multi(b.Context(), ops...); err != nil {
			b.Fatal(err)
		}
	}
	all.Wait()
}

// BenchmarkSamples is a scrape of a member with many sessions and znodes. It is to take less than
// 10 ms.
func BenchmarkSamples(b *testing.B) {
	n, s := lonely(b)
	grow(b, n, s)
	b.ReportAllocs()
	for b.Loop() {
		for range n.Samples() {
		}
	}
}
