package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// bothWays runs a test with the tree on one shard and on four.
func bothWays(t *testing.T, test func(t *testing.T, shards int)) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			t.Parallel()
			test(t, shards)
		})
	}
}

// A bench is a single node, a desk with orders, and the parts of the example that run on them.
type bench struct {
	t    *testing.T
	ctx  context.Context
	node *embed.Node
	desk *desk
	log  *slog.Logger
}

func newBench(t *testing.T, shards int, orders []order) *bench {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	node, err := embed.Start(embed.Config{Dir: t.TempDir(), Shards: shards, Tick: 10 * time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	if err := node.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	d, err := newDesk(newLedger(), orders)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.server.close)
	d.letIn(len(orders))
	return &bench{t, ctx, node, d, log}
}

// A part is what one process of the example does, without the process.
type part struct {
	session *embed.Session
	brake   *brake
	leads   atomic.Bool
	stop    func() // as a crash: the session ends, nothing is tidied up
}

func (b *bench) start(process int) *part {
	b.t.Helper()
	// It outlasts whatever keeps the machine busy. Nobody waits for its end.
	s, err := b.node.NewSession(b.ctx, embed.SessionOptions{Timeout: embed.DefaultMaxSessionTimeout})
	if err == nil {
		err = layOut(b.ctx, s)
	}
	if err == nil {
		err = join(b.ctx, s, process)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	p := &part{session: s, brake: &brake{}}
	c := deskClient{newClient(b.desk.server.addr)}
	w := &worker{process: process, session: s, desk: c, brake: p.brake, log: b.log}
	d := &dispatcher{process: process, session: s, desk: c, leads: &p.leads, log: b.log}
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() { w.loop(ctx) })
	running.Go(func() { d.loop(ctx) })
	p.stop = sync.OnceFunc(func() {
		_ = s.Close()
		cancel()
		running.Wait()
		c.close()
	})
	b.t.Cleanup(p.stop)
	return p
}

// allDone waits until n orders are recorded and off the lists, and checks that each was booked
// once.
func (b *bench) allDone(p *part, n int) {
	b.t.Helper()
	for {
		changed, err := p.session.Watch(b.ctx, "/", embed.WatchRecursive)
		if err != nil {
			b.t.Fatal(err)
		}
		done, err := recorded(b.ctx, p.session)
		if err != nil {
			b.t.Fatal(err)
		}
		left := 0
		for process := 1; process <= processes; process++ {
			stat, _, err := p.session.Exists(b.ctx, todoOf(process))
			if err != nil {
				b.t.Fatal(err)
			}
			left += int(stat.NumChildren)
		}
		if done == n && left == 0 {
			break
		}
		select {
		case <-changed.Events():
		case <-b.ctx.Done():
			b.t.Fatalf("%d of %d orders are recorded, %d are on a list", done, n, left)
		}
		_ = changed.Close()
	}
	if c := b.desk.ledger.counts(); c.Settled != n || c.Twice != 0 {
		b.t.Fatalf("counts %+v", c)
	}
	if faults := b.desk.ledger.lockFaults(); len(faults) > 0 {
		b.t.Errorf("faults of the lock: %q", faults)
	}
}

func someOrders(n, accounts int) []order {
	var orders []order
	for i := range n {
		orders = append(orders, order{fmt.Sprint("o", i), fmt.Sprint("a/", i%accounts), cents(i - n/2)})
	}
	return orders
}

// A worker dies between booking at the ledger and recording in the tree. The next worker of the
// order must not book it again.
func TestWorker_DiesBeforeRecording(t *testing.T) { bothWays(t, testDiesBeforeRecording) }

func testDiesBeforeRecording(t *testing.T, shards int) {
	b := newBench(t, shards, someOrders(1, 1))
	first := b.start(1)
	h, err := first.brake.stop(b.ctx)
	if err != nil || h.Order.ID != "o0" {
		t.Fatal(h, err)
	}
	if c := b.desk.ledger.counts(); c.Settled != 1 || c.Repeats != 0 {
		t.Fatalf("before: %+v", c)
	}
	second := b.start(2)
	first.stop()
	b.allDone(second, 1)
	if c := b.desk.ledger.counts(); c.Repeats != 1 || c.By[1] != 1 || c.By[2] != 0 {
		t.Errorf("after: %+v", c)
	}
}

// A worker dies between recording and taking the order off its list. The next worker of the order
// only takes it off.
func TestWorker_DiesBeforeTakingOff(t *testing.T) { bothWays(t, testDiesBeforeTakingOff) }

func testDiesBeforeTakingOff(t *testing.T, shards int) {
	orders := someOrders(2, 1)
	b := newBench(t, shards, orders)
	first := b.start(1)
	b.allDone(first, 2)
	first.stop()
	// The list as it would be if the first process had ended before its last write.
	data, err := json.Marshal(orders[1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.node.NewSession(b.ctx, embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(b.ctx, todoOf(1)+"/"+key(1), data, embed.Persistent); err != nil {
		t.Fatal(err)
	}
	b.allDone(b.start(2), 2)
	if c := b.desk.ledger.counts(); c.Repeats != 0 {
		t.Errorf("the ledger was asked about an order that is recorded: %+v", c)
	}
}

// Dispatchers and workers come and go in the middle of the work. Every order is settled once.
func TestDispatcher_Replaced(t *testing.T) { bothWays(t, testReplaced) }

func testReplaced(t *testing.T, shards int) {
	n := 150
	if testkit.Night() {
		n = 600
	}
	b := newBench(t, shards, someOrders(n, 7))
	parts := []*part{b.start(1), b.start(2), b.start(3)}
	for round := 1; round <= 4; round++ {
		select {
		case <-b.desk.ledger.settles(n * round / 6):
		case <-b.ctx.Done():
			t.Fatalf("round %d: %+v", round, b.desk.ledger.counts())
		}
		for i, p := range parts {
			if p.leads.Load() {
				p.stop()
				parts[i] = b.start(i + 1)
				break
			}
		}
	}
	b.allDone(parts[0], n)
}

// A deposed dispatcher that does not know it must not distribute orders again.
func TestDispatcher_Deposed(t *testing.T) { bothWays(t, testDeposed) }

func testDeposed(t *testing.T, shards int) {
	orders := someOrders(4, 2)
	b := newBench(t, shards, orders)
	s, err := b.node.NewSession(b.ctx, embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := layOut(b.ctx, s); err != nil {
		t.Fatal(err)
	}
	d := &dispatcher{process: 1, session: s, log: b.log}
	next, version, err := d.next(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := pool{lists: map[int][]string{1: nil}}, pool{lists: map[int][]string{2: nil}}
	if err := d.share(b.ctx, theirs, orders, next, version); err != nil {
		t.Fatal(err)
	}
	if err := d.share(b.ctx, mine, orders, next, version); !errors.Is(err, embed.ErrBadVersion) {
		t.Errorf("distributed twice: %v", err)
	}
	if names, _, err := s.Children(b.ctx, todoOf(1)); err != nil || len(names) != 0 {
		t.Errorf("on the list of 1: %v, %v", names, err)
	}
}

// However few orders there are, the process that was killed has something to do when it is back.
func TestRunner_KeepsAnOrderForEachProcess(t *testing.T) {
	for n := killMin; n <= 10*killMin; n++ {
		r := &runner{orders: someOrders(n, 1), desk: &desk{}}
		r.letIn(inMost)
		if left := n - int(r.desk.in.Load()); left < processes {
			t.Fatalf("of %d orders %d are left", n, left)
		}
	}
}
