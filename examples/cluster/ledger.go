package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed/lock"
)

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
	mu struct {
		sync.Mutex
		accounts map[string]*account
		booked   map[string]int // by order id: how often it was booked
		repeated map[string]int // by order id: how often a holder heard that it is booked
		dead     map[int]bool   // processes
		faults   []string       // of the lock
		counts   counts
		goal     int // distinct orders
		reached  chan struct{}
		grants   []*grantWatch
	}
}

type account struct {
	balance cents
	token   lock.Token // the greatest seen
	process int        // the process with that token
	stays   stays
}

// counts is what has happened at a ledger.
type counts struct {
	Settled   int         // distinct orders booked
	Twice     int         // orders booked more than once
	Repeats   int         // times a holder heard that its order is already booked
	Stale     int         // calls refused for their token
	HandOvers int         // times an account's lock was in another process than the time before
	By        map[int]int // bookings per process
	Entered   map[int]int // locks acquired per process
}

// A grantWatch waits until a lock is granted to another process.
type grantWatch struct {
	account string
	process int
	granted chan grant // capacity 1
}

type grant struct {
	process int
	at      time.Time
}

func newLedger() *ledger {
	l := &ledger{}
	l.mu.accounts = make(map[string]*account)
	l.mu.booked = make(map[string]int)
	l.mu.repeated = make(map[string]int)
	l.mu.dead = make(map[int]bool)
	l.mu.counts.By = make(map[int]int)
	l.mu.counts.Entered = make(map[int]int)
	return l
}

// An entry is what a holder of an account's lock tells the ledger.
type entry struct {
	Process int        `json:"process"`
	Token   lock.Token `json:"token"`
	Order   order      `json:"order"`
}

// A leaving is the last thing that a holder tells the ledger. Lost says that the holder knows that
// its hold is lost.
type leaving struct {
	entry
	Lost bool `json:"lost"`
}

// enter raises the fence of an account to the holder's token and reports whether its order is
// already booked. An order without an id asks for nothing.
func (l *ledger) enter(e entry) (booked bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.dead[e.Process] {
		l.accountLocked(e).stays.begin(e)
	}
	a, err := l.fenceLocked(e)
	if err != nil {
		return false, err
	}
	c := &l.mu.counts
	if a.process != e.Process && a.process != 0 {
		c.HandOvers++
	}
	a.process = e.Process
	c.Entered[e.Process]++
	l.tellLocked(e.Order.Account, e.Process)
	if l.mu.booked[e.Order.ID] == 0 {
		return false, nil
	}
	c.Repeats++
	l.mu.repeated[e.Order.ID]++
	return true, nil
}

// book adds the order's amount to the balance of its account.
func (l *ledger) book(e entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, err := l.fenceLocked(e)
	if err != nil {
		return err
	}
	a.balance += e.Order.Amount
	l.mu.booked[e.Order.ID]++
	c := &l.mu.counts
	switch l.mu.booked[e.Order.ID] {
	case 1:
		c.Settled++
	case 2:
		c.Twice++
	}
	c.By[e.Process]++
	if l.mu.reached != nil && c.Settled >= l.mu.goal {
		close(l.mu.reached)
		l.mu.reached = nil
	}
	return nil
}

// leave ends the stay of a hold that is about to be released, or is already lost. If leave returns
// false, the holder must look at its hold again and call leave again.
func (l *ledger) leave(e leaving) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults, ended := l.accountLocked(e.entry).stays.end(e.Token, e.Lost)
	l.mu.faults = append(l.mu.faults, faults...)
	return ended
}

// died ends the stays of a process that was killed. The fence handles calls of the process that are
// still in flight.
func (l *ledger) died(process int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.dead[process] = true
	for _, a := range l.mu.accounts {
		for token, s := range a.stays.open {
			if s.process == process {
				a.stays.end(token, true)
			}
		}
	}
}

// restarts records that a process that died is about to run again.
func (l *ledger) restarts(process int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.dead, process)
}

// lockFaults returns the faults of the lock, including doubts of holders that never left.
func (l *ledger) lockFaults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults := slices.Clone(l.mu.faults)
	for _, a := range l.mu.accounts {
		for _, s := range a.stays.open {
			faults = append(faults, s.doubts...)
		}
	}
	return faults
}

func (l *ledger) accountLocked(e entry) *account {
	a := l.mu.accounts[e.Order.Account]
	if a == nil {
		a = &account{stays: newStays()}
		l.mu.accounts[e.Order.Account] = a
	}
	return a
}

func (l *ledger) fenceLocked(e entry) (*account, error) {
	a := l.accountLocked(e)
	if e.Token.Compare(a.token) < 0 {
		l.mu.counts.Stale++
		if !l.mu.dead[e.Process] {
			a.stays.of(e).doubt("process %d had a hold of %s and was refused: process %d has shown a greater token", e.Process, e.Order.Account, a.process)
		}
		return nil, fmt.Errorf("%w: %v, process %d has shown %v", errStale, e.Token, a.process, a.token)
	}
	a.token = e.Token
	return a, nil
}

func (l *ledger) tellLocked(account string, process int) {
	for i, w := range l.mu.grants {
		if w.account == account && w.process != process {
			w.granted <- grant{process, time.Now()}
			l.mu.grants = append(l.mu.grants[:i:i], l.mu.grants[i+1:]...)
			return
		}
	}
}

// settles returns a channel that is closed when n orders are booked. It serves one caller.
func (l *ledger) settles(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	reached := make(chan struct{})
	if l.mu.counts.Settled >= n {
		close(reached)
		return reached
	}
	l.mu.goal, l.mu.reached = n, reached
	return reached
}

// leaves returns a channel that receives when a lock that process holds is next seen in another
// process.
func (l *ledger) leaves(account string, process int) <-chan grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &grantWatch{account, process, make(chan grant, 1)}
	l.mu.grants = append(l.mu.grants, w)
	return w.granted
}

// counts returns what has happened so far.
func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.counts
	c.By, c.Entered = maps.Clone(c.By), maps.Clone(c.Entered)
	return c
}

// balances returns the balance of every account with a booking.
func (l *ledger) balances() map[string]cents {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]cents)
	for name, a := range l.mu.accounts {
		out[name] = a.balance
	}
	return out
}

// bookings returns how often each order was booked, and how often a holder heard instead that it is
// booked.
func (l *ledger) bookings() (booked, repeated map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.mu.booked), maps.Clone(l.mu.repeated)
}
