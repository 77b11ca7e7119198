package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/examples/internal/processes"
)

// The members are this test's own binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == memberCommand {
		os.Exit(member(os.Stdin, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestCluster(t *testing.T) {
	play(t, options{orders: 300}, "writes are accepted again", "lock was granted to another", "is back",
		"300 settled, 0 lost, 0 twice, processes killed: 1", "verdict: right")
}

// Processes join, lose their directory and leave while orders are settled.
func TestCluster_Scale(t *testing.T) {
	play(t, options{orders: 300, scale: true}, "7 members, of which 3 vote", "SIGKILL and wiped",
		"300 settled, 0 lost, 0 twice, processes killed: 1, members that left: 2", "verdict: right")
}

func play(t *testing.T, o options, wants ...string) {
	t.Parallel()
	o.temp = t.TempDir()
	var out bytes.Buffer
	err := run(t.Context(), o, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Error(err)
	}
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	checkEmpty(t, o.temp)
}

// Ctrl-C in the middle leaves nothing behind.
func TestCluster_Interrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &tripwire{text: "the ensemble has 3 members", trip: cancel}
	if err := run(ctx, options{orders: 100, temp: temp}, out); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Fatalf("err %v", err)
	}
	checkEmpty(t, temp)
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A tripwire calls trip when a text is written to it.
type tripwire struct {
	sync.Mutex
	text string
	trip func()
}

func (w *tripwire) Write(b []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	if strings.Contains(string(b), w.text) {
		w.trip()
	}
	return len(b), nil
}

func plainLedger(n int) *ledger {
	return newLedger(makeOrders(n), func(Entry, bool) {}, func(Report) {})
}

// A holder that was paused and lost its lock books late. The next holder has already asked, and
// heard that the order is not booked.
func TestLedger_RefusesStaleTokens(t *testing.T) {
	l := plainLedger(1)
	e := Entry{Process: 1, Token: lock.Token{Zxid: 5}, Order: l.orders[0]}
	next := Entry{Process: 2, Token: lock.Token{Zxid: 6}, Order: l.orders[0]}
	for _, one := range []Entry{e, next} {
		if booked, err := l.enter(one); booked || err != nil {
			t.Fatal(booked, err)
		}
	}
	if err := l.book(e); !errors.Is(err, errStale) {
		t.Errorf("the late holder: %v", err)
	}
	if err := l.book(next); err != nil || l.stale != 1 || l.handed != 1 {
		t.Errorf("%v, stale %d, handed over %d", err, l.stale, l.handed)
	}
	if booked, err := l.enter(next); !booked || err != nil || l.repeated[e.Order.ID] != 1 {
		t.Errorf("%v, %v, %v", booked, err, l.repeated)
	}
}

// The verdict must be negative if anything is wrong in a run.
func TestVerdict(t *testing.T) {
	for want, spoil := range map[string]func(*show){
		"":                           func(*show) {},
		"not every order":            func(s *show) { s.ledger.accounts[s.ledger.orders[0].Account].balance++ },
		"nobody was killed":          func(s *show) { s.deaths = nil },
		"nobody asked again":         func(s *show) { clear(s.ledger.repeated) },
		"settled nothing after":      func(s *show) { s.deaths[0].settled = 1 },
		"was granted after":          func(s *show) { s.deaths[0].granted = time.Second },
		"too few have left":          func(s *show) { s.scale = true },
		"0 voters run in the proces": func(s *show) { s.scale, s.left = true, []int{1, 2} },
	} {
		l := plainLedger(1)
		now := time.Now()
		e := Entry{Process: 1, Order: l.orders[0]}
		d := &death{held: e, at: now, proof: now, granted: 2 * sessionTimeout}
		s := &show{ledger: l, pool: processes.NewPool(), out: &bytes.Buffer{}, deaths: []*death{d}}
		_, _ = l.enter(e)
		_ = l.book(e)
		_, _ = l.enter(e)
		spoil(s)
		err := s.verdict()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// A dispatcher ends between putting an order and writing that it did, and a worker between booking
// and removing the order from the queue. The order is settled once.
func TestService_EndsInBetween(t *testing.T) {
	l := plainLedger(3)
	l.letIn(3)
	addr, stop, err := l.serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	node, err := embed.Start(embed.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := node.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	desk, err := rpc.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer desk.Close()
	s := service{process: 1, from: node, ledger: ledgerClient{desk}}
	session, err := node.NewSession(t.Context(), embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.layOut(t.Context()); err != nil {
		t.Fatal(err)
	}
	queue := task.New(session, queuePath, task.Options{})
	data, _ := json.Marshal(l.orders[0])
	if _, err := queue.Put(t.Context(), data, task.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed, err := queue.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.settle(t.Context(), claimed), claimed.Retry(0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { _ = s.run(ctx) }()
	for {
		done, _ := l.settled(1)
		queue, _, err := session.Exists(ctx, queuePath+"/entries")
		next, _, getErr := session.Get(ctx, nextPath)
		if err := errors.Join(err, getErr); err != nil {
			t.Fatal(err)
		}
		if done == 3 && queue.NumChildren == 0 && string(next) == "3" {
			break
		}
		pause(ctx, lookPause)
	}
	for id, n := range l.booked {
		if n != 1 {
			t.Errorf("%s was booked %d times", id, n)
		}
	}
	if l.repeated[l.orders[0].ID] != 2 {
		t.Errorf("found booked: %v", l.repeated)
	}
}
