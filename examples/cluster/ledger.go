package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/rpc"
	"sync"

	"github.com/vivarium-go/vivarium/embed/lock"
)

// An order adds an amount of cents, which may be negative, to the balance of an account.
type order struct {
	ID      string
	Account string
	Amount  int
}

// makeOrders returns the same orders each time, over 40 accounts.
func makeOrders(n int) (all []order) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		id, account := fmt.Sprintf("order-%04d", i+1), fmt.Sprintf("A%02d", rng.IntN(40))
		all = append(all, order{id, account, rng.IntN(90_000) - 30_000})
	}
	return all
}

// errStale says that a token is smaller than one that the ledger has seen for the account.
var errStale = errors.New("the token is stale")

// A ledger keeps balances. It is the resource that the locks protect, and it does not help them. It
// books whatever it is told, as often as it is told, and has no rule but the fence. So an order
// that is settled twice shows.
//
// The fence works like this. Every call carries the token of its caller's hold on the account. The
// ledger refuses a token that is smaller than the greatest it has seen. The call enter raises the
// fence. Once a holder has entered and heard that an order is not booked, no booking of an earlier
// holder can arrive any more, however it was delayed.
type ledger struct {
	orders []order // all that will come in
	// saw is told of each entry and booking that was not refused, before its caller has the answer.
	saw func(e Entry, books bool)
	// reported is told of each report.
	reported func(Report)

	mu       sync.Mutex
	in       int // how many have come in
	accounts map[string]*account
	booked   map[string]int // by order: how often it was booked
	repeated map[string]int // by order: how often a holder heard that it is booked
	by       map[int]int    // bookings by process
	handed   int            // times an account's lock was in another process than the time before
	stale    int            // calls refused for their token
	reports  map[int]Report // the newest, by process
}

type account struct {
	balance int
	token   lock.Token // the greatest seen
	process int        // the process with that token
}

func newLedger(orders []order, saw func(e Entry, books bool), reported func(Report)) *ledger {
	return &ledger{orders: orders, saw: saw, reported: reported,
		accounts: make(map[string]*account), booked: make(map[string]int), repeated: make(map[string]int),
		by: make(map[int]int), reports: make(map[int]Report)}
}

// An Entry is what a holder of an account's lock tells the ledger.
type Entry struct {
	Process int
	Token   lock.Token
	Order   order
}

// enter raises the fence of an account to the holder's token and reports whether its order is
// already booked.
func (l *ledger) enter(e Entry) (booked bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, err := l.fenceLocked(e)
	if err != nil {
		return false, err
	}
	if a.process != e.Process && a.process != 0 {
		l.handed++
	}
	a.process = e.Process
	booked = l.booked[e.Order.ID] > 0
	if booked {
		l.repeated[e.Order.ID]++
	}
	return booked, nil
}

// book adds the order's amount to the balance of its account.
func (l *ledger) book(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, err := l.fenceLocked(e)
	if err != nil {
		return err
	}
	a.balance += e.Order.Amount
	l.booked[e.Order.ID]++
	l.by[e.Process]++
	return nil
}

func (l *ledger) fenceLocked(e Entry) (*account, error) {
	a := l.accounts[e.Order.Account]
	if a == nil {
		a = &account{}
		l.accounts[e.Order.Account] = a
	}
	if e.Token.Compare(a.token) < 0 {
		l.stale++
		return nil, errStale
	}
	a.token = e.Token
	return a, nil
}

// settled returns how many orders are booked, and how many of them by a process.
func (l *ledger) settled(process int) (all, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.booked), l.by[process]
}

// letIn lets the first n orders come in.
func (l *ledger) letIn(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in = min(n, len(l.orders))
}

// seen returns the newest report of each process.
func (l *ledger) seen() map[int]Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.reports)
}

// A Desk is what members call of the ledger.
type Desk struct{ l *ledger }

// Enter calls enter.
func (d Desk) Enter(e Entry, booked *bool) (err error) {
	if *booked, err = d.l.enter(e); err == nil {
		d.l.saw(e, false)
	}
	return err
}

// Book calls book.
func (d Desk) Book(e Entry, _ *bool) error {
	err := d.l.book(e)
	if err == nil {
		d.l.saw(e, true)
	}
	return err
}

// Orders returns the orders that have come in, beginning with one.
func (d Desk) Orders(from int, all *[]order) error {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	*all = d.l.orders[min(max(from, 0), d.l.in):d.l.in]
	return nil
}

// Report takes a report.
func (d Desk) Report(r Report, _ *bool) error {
	d.l.reported(r)
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	d.l.reports[r.Process] = r
	return nil
}

// serve answers members on a loopback port until end is called.
func (l *ledger) serve() (addr string, end func(), err error) {
	s := rpc.NewServer()
	if err := s.Register(Desk{l}); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.ServeConn(conn)
		}
	}()
	return listener.Addr().String(), func() { _ = listener.Close() }, nil
}

// A ledgerClient is the ledger as a member sees it.
type ledgerClient struct{ *rpc.Client }

// ask calls a method of Desk. After an error the ledger may have been asked.
func (c ledgerClient) ask(ctx context.Context, method string, q, answer any) error {
	call := c.Go("Desk."+method, q, answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c ledgerClient) enter(ctx context.Context, e Entry) (bool, error) {
	booked := new(bool)
	err := c.ask(ctx, "Enter", e, booked)
	return err == nil && *booked, err
}

func (c ledgerClient) orders(ctx context.Context, from int) ([]order, error) {
	all := new([]order)
	err := c.ask(ctx, "Orders", from, all)
	if err != nil {
		return nil, err
	}
	return *all, nil
}
