package watch

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// idleClients fills a registry with clients that share out the paths among them. It returns the
// bytes that a watch takes.
func idleClients(paths []string, clients int, mode Mode) (*Registry, []*Client, float64) {
	r := NewRegistry()
	all := make([]*Client, clients)
	before := testkit.Heap()
	for i := range all {
		all[i] = newClient(r)
	}
	for i, path := range paths {
		if _, err := all[i%clients].Arm(path, mode, nil); err != nil {
			panic(err)
		}
	}
	return r, all, float64(testkit.Heap()-before) / float64(len(paths))
}

// A watch at rest is small. A Persistent watch is in two tables. With one watch for each
// connection, the watch pays for its connection.
func TestClient_IdleWatchIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	paths := idlePaths(100_000)
	for _, c := range []struct {
		clients int
		mode    Mode
		most    float64
	}{{1, Data, 200}, {1, Children, 200}, {1, Recursive, 200}, {1, Persistent, 400}, {1000, Data, 200}, {100_000, Data, 900}} {
		r, all, size := idleClients(paths, c.clients, c.mode)
		t.Logf("%d clients, mode %d: %.0f bytes a watch", c.clients, c.mode, size)
		if size > c.most {
			t.Errorf("%d clients, mode %d: %.0f bytes a watch, want at most %.0f", c.clients, c.mode, size, c.most)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(all)
	}
}

// Many clients on one path keep it once.
func TestClient_PathIsShared(t *testing.T) {
	r := NewRegistry()
	for range 3 {
		arm(t, newClient(r), fmt.Sprint("/services/", 17), Data)
	}
	m := r.clients.marks[dataTable]["/services/17"]
	for next := m.next; next != nil; next = next.next {
		if unsafe.StringData(next.path) != unsafe.StringData(m.path) {
			t.Error("a client keeps its own")
		}
	}
}

// A watch that has fired or was removed leaves nothing, neither in the client nor in the registry.
func TestClient_UsedWatchesLeaveNothing(t *testing.T) {
	paths := idlePaths(100_000)
	before := testkit.Heap()
	r, all, _ := idleClients(paths, 1, Data)
	changes := make([]tree.Change, len(paths))
	for i, path := range paths {
		changes[i] = change(tree.DataChanged, path)
	}
	r.Deliver(1, changes, nil)
	changes = nil
	if _, err := all[0].Take(all[0].At(0)); err != ErrOverflow {
		t.Errorf("%d events at once: %v", len(paths), err)
	}
	if left := testkit.Heap() - before; left > 64<<10 {
		t.Errorf("%d bytes left", left)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(all)
	runtime.KeepAlive(paths)
}

// Watches of other paths, and of other kinds on the same paths, cost a change nothing.
func TestClient_MatchingDoesNotCostByIdleWatches(t *testing.T) {
	r := NewRegistry()
	for _, path := range idlePaths(10_000) {
		c := newClient(r)
		arm(t, c, path, modes...)
		arm(t, c, "/services", Data, Children) // above the change: not looked at
	}
	for range 10_000 {
		arm(t, newClient(r), "/services/000/instances", Data) // the parent: its children change, not its data
	}
	changes := []tree.Change{change(tree.Created, "/services/000/instances/new")}
	passes := r.clients.pass
	if n := testing.AllocsPerRun(100, func() { deliver(r, changes...) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if r.clients.pass == passes {
		t.Error("nothing was matched")
	}
	for path := range r.clients.depths.upTo(changes[0].Path) {
		if r.clients.marks[belowTable][path] != nil {
			t.Errorf("%s is looked through", path)
		}
	}
	if r.clients.marks[dataTable][changes[0].Path] != nil || r.clients.marks[childTable]["/services/000/instances"] != nil {
		t.Error("something matches")
	}
}

// BenchmarkClientDeliver measures one transaction with one change, by the number of other clients'
// watches that do not match it.
func BenchmarkClientDeliver(b *testing.B) {
	all := idlePaths(1_000_000)
	for _, mode := range []Mode{Data, Recursive} {
		for _, n := range []int{0, 1000, 1_000_000} {
			r, clients, _ := idleClients(all[:n], max(1, n/10), mode)
			for _, matching := range []int{0, 1, 100} {
				for range matching {
					c := newClientOf(r, 1<<62, nil)
					if _, err := c.Arm("/services/000/instances/new", Persistent, nil); err != nil {
						b.Fatal(err)
					}
					clients = append(clients, c)
				}
				b.Run(fmt.Sprintf("mode=%d/idle=%d/matching=%d", mode, n, matching), func(b *testing.B) {
					b.ReportAllocs()
					changes := []tree.Change{{Type: tree.Created, Path: "/services/000/instances/new"}}
					told := clients[len(clients)-matching:]
					for b.Loop() {
						r.Deliver(r.zxid+1, changes, nil)
						for _, c := range told {
							_, _ = c.Take(c.At(0))
						}
					}
				})
				for _, c := range clients[len(clients)-matching:] {
					c.End(nil)
				}
				clients = clients[:len(clients)-matching]
			}
			runtime.KeepAlive(clients)
		}
	}
}

// BenchmarkClientArm measures a read that arms, and the change that uses the watch up.
func BenchmarkClientArm(b *testing.B) {
	r := NewRegistry()
	c := newClient(r)
	changes := set("/a/b")
	b.ReportAllocs()
	for b.Loop() {
		place, _ := c.Arm("/a/b", Data, nil)
		_, _ = c.Take(place)
		r.Deliver(r.zxid+1, changes, nil)
	}
}

// BenchmarkClientReset measures the setWatches of a client that comes back with 10,000 watches.
func BenchmarkClientReset(b *testing.B) {
	r := NewRegistry()
	was := Reset{Data: idlePaths(10_000)}
	exists := func(string) (tree.Stat, bool, bool) { return tree.Stat{}, true, false }
	for b.Loop() {
		c := newClient(r)
		_, _ = c.Reset(&was, exists)
		c.End(nil)
	}
}
