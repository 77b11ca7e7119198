package gateway

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// An idle connection takes little memory, its session and its goroutine's stack included. -v shows
// how much.
func TestIdleConnectionsAreCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("short, as with the race detector, which takes more")
	}
	const n = 1000
	const most = 12 << 10 // bytes for each; the client's end in this process takes some of them
	g := start(t, Config{ConnectionsPerAddress: -1})
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	warm := connect(t, g)
	warm.must(create("/a", []byte("x"), 0))
	before, running := used(), runtime.NumGoroutine()
	conns := make([]net.Conn, 0, n)
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	hello := (&wire.ConnectRequest{Timeout: 60_000, Password: make([]byte, 16)}).AppendFrame(nil)
	read := wire.Request{Xid: 1, Operation: op(wire.OpGetData, "/a")}
	hello = read.AppendFrame(hello)
	for range n {
		c, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Skip(err) // there may be too few file descriptors
		}
		conns = append(conns, c)
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := wire.ReadFrame(c, nil, 1<<10); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := int(used()-before) / n
	t.Logf("an idle connection takes %d bytes", each)
	if more := runtime.NumGoroutine() - running; more > n+n/100 {
		t.Errorf("%d idle connections have %d goroutines", n, more)
	}
	if each > most {
		t.Errorf("an idle connection takes %d bytes, want %d at most", each, most)
	}
}

// BenchmarkGetData measures one client that waits for each answer.
func BenchmarkGetData(b *testing.B) {
	c := connect(b, start(b, Config{}))
	c.must(create("/a", make([]byte, 100), 0))
	q := raw(wire.Request{Xid: 1, Operation: op(wire.OpGetData, "/a")})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Write(q)
		if _, err := wire.ReadFrame(c, buf, 1<<10); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSetDataPipelined measures one client with 100 writes in flight.
func BenchmarkSetDataPipelined(b *testing.B) {
	c := connect(b, start(b, Config{}))
	c.must(create("/a", make([]byte, 100), 0))
	q := raw(wire.Request{Xid: 1, Operation: with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = make([]byte, 100) })})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	ahead := 0
	for b.Loop() {
		_, _ = c.Write(q)
		if ahead++; ahead <= 100 {
			continue
		}
		ahead--
		if _, err := wire.ReadFrame(c, buf, 1<<10); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSetDataOf64 measures 64 clients that wait for each answer.
func BenchmarkSetDataOf64(b *testing.B) {
	g := start(b, Config{ConnectionsPerAddress: -1})
	connect(b, g).must(create("/a", nil, 0))
	q := raw(wire.Request{Xid: 1, Operation: with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = make([]byte, 100) })})
	b.ReportAllocs()
	b.SetParallelism(32) // times two processors
	b.RunParallel(func(p *testing.PB) {
		c := connect(b, g)
		_ = c.SetDeadline(time.Time{})
		buf := make([]byte, 0, 1024)
		for p.Next() {
			_, _ = c.Write(q)
			if _, err := wire.ReadFrame(c, buf, 1<<10); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
