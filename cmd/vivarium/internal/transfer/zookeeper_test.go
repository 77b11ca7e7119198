package transfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// startZooKeeper starts servers that know the superuser of these tests.
func startZooKeeper(t *testing.T, n int) []string {
	t.Helper()
	zookeeper.Need(t)
	return zookeeper.Start(t, n, "tickTime=500\ninitLimit=100\nsyncLimit=100\n"+
		"DigestAuthenticationProvider.superDigest="+embed.Digest("super:pw")+"\n")
}

// Writers change a subtree as long as the test says.
type writers struct {
	all  sync.WaitGroup
	stop chan struct{}

	mu   sync.Mutex
	done int
	errs []error
}

// write starts writers below /a.
func write(t *testing.T, addrs []string) *writers {
	t.Helper()
	w := &writers{stop: make(chan struct{})}
	for i := range 4 {
		h := take(t, addrs[i%len(addrs)], super...)
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		w.all.Go(func() {
			for !testkit.Closed(w.stop) {
				_, err := h.do(change(rnd))
				w.count(err)
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *writers) count(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch client.CodeOf(err) {
	case wire.NoNode, wire.NodeExists, wire.NotEmpty, wire.NoChildrenForEphemerals:
	default:
		if err != nil {
			w.errs = append(w.errs, err)
		}
	}
	w.done++
}

// await waits until so many more requests are answered.
func (w *writers) await(t *testing.T, more int) {
	t.Helper()
	w.mu.Lock()
	until := w.done + more
	w.mu.Unlock()
	testkit.Until(t, "the writers", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.done >= until
	})
}

func (w *writers) end() {
	if !testkit.Closed(w.stop) {
		close(w.stop)
	}
	w.all.Wait()
}

// change returns a request that changes something below /a.
func change(rnd *rand.Rand) wire.Operation {
	path := "/a"
	for range 1 + rnd.IntN(4) {
		path += fmt.Sprintf("/%d", rnd.IntN(5))
	}
	switch n := rnd.IntN(20); {
	case n < 8:
		return creation(path, fmt.Sprint(rnd.Uint64()))
	case n < 12:
		return deletion(path)
	case n < 15:
		return setting(path, fmt.Sprint(rnd.Uint64()))
	case n < 17:
		return restriction(path, digestACL(fmt.Sprint("u:", rnd.IntN(9))))
	case n < 18:
		o := creation("/a/e", "")
		o.Flags = wire.FlagsEphemeralSequential
		return o
	case n < 19:
		o := creation(path+"-", "")
		o.Flags = wire.FlagsSequential
		return o
	}
	o := creation(path, "")
	o.Op, o.Flags = wire.OpCreateContainer, wire.FlagsContainer
	return o
}

// A copy from ZooKeeper under writes, with connections that break and sessions that expire on both
// sides, is equal when the writers have stopped. It never asks the source for a change.
func TestFromZooKeeper(t *testing.T) {
	for name, refuses := range map[string]wire.Op{"watched": 0, "walked": wire.OpAddWatch} {
		t.Run(name, func(t *testing.T) {
			addrs := startZooKeeper(t, 1)
			zk := take(t, addrs[0], super...)
			zk.create("/a", "root")
			for i := range 5 {
				zk.create(fmt.Sprintf("/a/%d", i), "")
			}
			w := write(t, addrs)
			w.await(t, 500)
			from, to := newRelay(t, addrs[0]), newRelay(t, start(t, gateway.Config{}))
			from.refuses = refuses
			c := follow(t, Config{From: Side{[]string{from.addr()}, "/a", super, nil},
				To:    Side{[]string{to.addr()}, "/b", super, nil},
				Every: 50 * time.Millisecond})
			c.says("walked: ")
			for range 3 {
				w.await(t, 300)
				from.cut()
				w.await(t, 300)
				to.cut()
				from.expire(t)
				w.await(t, 300)
				to.expire(t)
			}
			w.end()
			r := c.cutOver()
			if len(w.errs) > 0 {
				t.Errorf("the writers met %v", w.errs[0])
			}
			if !r.Equal() || r.Source.Znodes < 50 || r.Changed == 0 || r.Deleted == 0 {
				t.Errorf("%+v\n%s", r, c.said())
			}
			vivarium := take(t, to.to, super...)
			sameTrees(t, zk, "/a", vivarium, "/b")
			want := []wire.Op{wire.OpCloseSession, wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpSync,
				wire.OpPing, wire.OpGetChildren2, wire.OpAuth, wire.OpSetWatches2, wire.OpAddWatch}
			for _, op := range from.sent() {
				if !slices.Contains(want, op) {
					t.Errorf("the source was asked for op %d", op)
				}
			}
			t.Logf("%d requests of the writers; %d znodes, %d created, %d changed, %d deleted", w.done,
				r.Source.Znodes, r.Created, r.Changed, r.Deleted)
		})
	}
}

// The whole tree of an ensemble of ZooKeeper is copied while a member that the copy reads from lags
// behind or is changed for another one.
func TestFromZooKeeper_Whole(t *testing.T) {
	addrs := startZooKeeper(t, 3)
	zk := take(t, addrs[0], super...)
	zk.create("/a", "root")
	w := write(t, addrs[:1])
	vivarium := start(t, gateway.Config{})
	first, second := newRelay(t, addrs[1]), newRelay(t, addrs[2])
	c := follow(t, Config{From: Side{[]string{first.addr(), second.addr()}, "/", super, nil},
		To: Side{[]string{vivarium}, "/", super, nil}, RootStays: true})
	c.says("walked: ")
	w.await(t, 500)
	_ = first.Close() // what connects again finds the second server
	first.cut()
	w.await(t, 500)
	w.end()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	must(t, zk.zk.Ready(ctx))
	r := c.cutOver()
	if !r.Equal() || r.Source.Znodes < 50 {
		t.Errorf("%+v\n%s", r, c.said())
	}
	zk.must(wire.Operation{Op: wire.OpSync, Path: "/"})
	sameTrees(t, zk, "/", take(t, vivarium, super...), "/")
}
