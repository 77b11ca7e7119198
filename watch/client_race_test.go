package watch

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// D1: connections read and arm while transactions are delivered. What each connection is sent is in
// ZooKeeper's order. It gets an event of the first change after a read: once, after the read's
// answer. It gets no event of a change that the read has shown.
func TestClient_ArmingRace(t *testing.T) {
	const transactions, clients = 3000, 4
	for _, on := range []*Shards{{Registries: []*Registry{NewRegistry()}}, twoShards()} {
		visible := make([]atomic.Uint64, len(on.Registries))
		path := "/a"
		if len(visible) > 1 {
			path = "/"
		}
		var over atomic.Bool
		var delivering, reading sync.WaitGroup
		for i, r := range on.Registries {
			delivering.Go(func() {
				for z := tree.Zxid(1); z <= transactions; z++ {
					r.Deliver(z, set(path), publish(func() { visible[i].Store(uint64(z)) }))
					runtime.Gosched()
				}
			})
		}
		for range clients {
			reading.Go(func() {
				c := NewClient(on, 0, nil)
				defer c.End(nil)
				for !over.Load() {
					shown := make([]uint64, len(visible))
					place, err := c.Arm(path, Data, func() bool {
						for i := range visible {
							shown[i] = visible[i].Load()
						}
						return true
					})
					if err != nil {
						t.Error(err)
						return
					}
					early, _ := c.Take(place)
					if len(early) > 0 {
						t.Errorf("%v before the answer that shows %v: its watch had fired before", early, shown)
						return
					}
					e, ok := awaitOne(c, &over)
					if !ok {
						return
					}
					next := false
					for _, z := range shown {
						next = next || uint64(e.Zxid) == z+1
					}
					if !next {
						t.Errorf("shown %v, told %v", shown, e)
						return
					}
				}
			})
		}
		delivering.Wait()
		over.Store(true)
		for i, r := range on.Registries { // end every wait with an event
			r.Deliver(transactions+1, set(path), publish(func() { visible[i].Store(transactions + 1) }))
		}
		reading.Wait()
		for _, r := range on.Registries {
			if err := r.check(); err != nil || r.clients.n != 0 {
				t.Errorf("%d marks are left: %v", r.clients.n, err)
			}
		}
	}
}

// awaitOne returns the next event of a client that has one watch; false if all is over.
func awaitOne(c *Client, over *atomic.Bool) (Event, bool) {
	for {
		events, err := c.Take(c.At(0))
		if len(events) == 1 && err == nil {
			return events[0], true
		}
		if len(events) > 1 || err != nil || over.Load() {
			return Event{}, false
		}
		runtime.Gosched()
	}
}

// 6.4.1, D3: a client that has read a state was sent before that the events of all changes up to
// it.
func TestClient_EventsBeforeWhatIsRead(t *testing.T) {
	const transactions = 5000
	r := NewRegistry()
	c := newClient(r)
	arm(t, c, "/a", Persistent)
	var visible atomic.Uint64
	var reading sync.WaitGroup
	reading.Go(func() {
		for sent := 0; sent < transactions; {
			shown := visible.Load()
			events, err := c.Take(c.At(tree.Zxid(shown)))
			if sent += len(events); sent < int(shown) || err != nil {
				t.Errorf("shown %d, sent %d, %v", shown, sent, err)
				return
			}
			runtime.Gosched()
		}
	})
	for z := tree.Zxid(1); z <= transactions; z++ {
		r.Deliver(z, set("/a"), publish(func() { visible.Store(uint64(z)) }))
	}
	reading.Wait()
}

// TestClient_EverythingAtOnce is for the race detector. It asserts only that nothing is left.
func TestClient_EverythingAtOnce(t *testing.T) {
	on := twoShards()
	why := errors.New("why")
	stop := make(chan struct{})
	var delivering, others sync.WaitGroup
	for _, r := range on.Registries {
		delivering.Go(func() {
			for z := tree.Zxid(1); ; z++ {
				select {
				case <-stop:
					return
				default:
				}
				r.Deliver(z, []tree.Change{change(tree.Created, "/a/b"), change(tree.DataChanged, "/c"), change(tree.Deleted, "/c"), change(tree.DataChanged, "/")}, nil)
				if z%16 == 0 {
					r.Install(z, func(path string, _ Mode) (EventType, []tree.ACL, bool) { return NodeDeleted, nil, path == "/c" }, nil)
				}
			}
		})
	}
	for i := range 40 {
		c := NewClient(on, 50+i, func([]tree.ACL) bool { return true })
		for j, path := range []string{"/", "/a", "/a/b", "/c"} {
			others.Go(func() {
				for k := range 50 {
					_, _ = c.Arm(path, modes[(j+k)%len(modes)], func() bool { return true })
					c.Has(path, modes...)
					if k%3 == 0 {
						c.Remove(path, modes[k%len(modes)])
					}
				}
			})
		}
		others.Go(func() {
			for range 50 {
				_, _ = c.Take(c.At(0))
				_, _ = c.Reset(&Reset{Data: []string{"/", "/c"}, Children: []string{"/a"}}, stats{"/": {}, "/c": {}}.look)
				c.Counts()
				c.Paths()
				on.Registries[0].Watched()
			}
			c.End(why)
		})
		others.Go(func() {
			if i%2 == 0 {
				c.End(nil)
			}
			_ = c.Err()
		})
	}
	others.Wait()
	close(stop)
	delivering.Wait()
	for _, r := range on.Registries {
		if err := r.check(); err != nil || r.clients.n != 0 {
			t.Errorf("%d marks are left: %v", r.clients.n, err)
		}
	}
}
