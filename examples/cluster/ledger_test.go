package main

import (
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func entryOf(process int, token uint64, o order) entry {
	return entry{Process: process, Token: lock.Token{Zxid: embed.Zxid(token)}, Order: o}
}

func TestLedger_BooksWhatItIsTold(t *testing.T) {
	l := newLedger()
	o := order{"a", "acc", -250}
	for range 3 {
		if err := l.book(entryOf(1, 5, o)); err != nil {
			t.Fatal(err)
		}
	}
	c := l.counts()
	if c.Settled != 1 || c.Twice != 1 || c.By[1] != 3 || l.balances()["acc"] != -750 {
		t.Errorf("counts %+v, balances %v", c, l.balances())
	}
	if booked, _ := l.bookings(); booked["a"] != 3 {
		t.Errorf("booked %v", booked)
	}
}

func TestLedger_TellsWhatIsBooked(t *testing.T) {
	l := newLedger()
	o := order{"a", "acc", 100}
	if booked, err := l.enter(entryOf(1, 5, o)); booked || err != nil {
		t.Fatal(booked, err)
	}
	if err := l.book(entryOf(1, 5, o)); err != nil {
		t.Fatal(err)
	}
	if booked, err := l.enter(entryOf(2, 6, o)); !booked || err != nil {
		t.Fatal(booked, err)
	}
	if c := l.counts(); c.Repeats != 1 || c.HandOvers != 1 || c.Twice != 0 {
		t.Errorf("counts %+v", c)
	}
}

// A holder that was paused and lost its lock books late. The next holder has already asked, and
// heard that the order is not booked.
func TestLedger_RefusesStaleTokens(t *testing.T) {
	l := newLedger()
	o := order{"a", "acc", 100}
	if _, err := l.enter(entryOf(1, 5, o)); err != nil {
		t.Fatal(err)
	}
	if booked, err := l.enter(entryOf(2, 6, o)); booked || err != nil {
		t.Fatal(booked, err)
	}
	if err := l.book(entryOf(1, 5, o)); !errors.Is(err, errStale) {
		t.Errorf("late booking: %v", err)
	}
	if _, err := l.enter(entryOf(1, 5, o)); !errors.Is(err, errStale) {
		t.Errorf("late question: %v", err)
	}
	if err := l.book(entryOf(1, 5, order{"b", "other", 1})); err != nil {
		t.Errorf("another account: %v", err)
	}
	if err := l.book(entryOf(2, 6, o)); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if c := l.counts(); c.Stale != 2 || c.Settled != 2 || c.Twice != 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestLedger_Signals(t *testing.T) {
	l := newLedger()
	two, left := l.settles(2), l.leaves("acc", 1)
	for i, id := range []string{"a", "a", "b"} {
		select {
		case <-two:
			t.Fatal("two are settled after", i, "bookings")
		default:
		}
		if err := l.book(entryOf(1, 5, order{id, "acc", 1})); err != nil {
			t.Fatal(err)
		}
	}
	<-two
	<-l.settles(1) // already closed
	for _, process := range []int{1, 3} {
		if _, err := l.enter(entryOf(process, 6, order{Account: "acc"})); err != nil {
			t.Fatal(err)
		}
	}
	if g := <-left; g.process != 3 {
		t.Errorf("granted to %d", g.process)
	}
}

// The verdict must be negative if anything is wrong in a run.
func TestReport_Faults(t *testing.T) {
	a, b := order{"a", "x", 100}, order{"b", "y", -30}
	killed := func(edit func(*outage)) report {
		o := &outage{id: 1, writes: 1, granted: sessionTimeout, back: true, settled: 1, held: held{Order: b}}
		edit(o)
		return report{killWanted: true, outage: o}
	}
	for name, c := range map[string]struct {
		booked []order
		report report
		right  bool
	}{
		"all is right":  {booked: []order{a, b}, right: true},
		"lost":          {booked: []order{a}},
		"twice":         {booked: []order{a, b, b}},
		"foreign":       {booked: []order{a, b, {"c", "z", 0}}},
		"wrong amount":  {booked: []order{a, {"b", "y", -31}}},
		"wrong account": {booked: []order{a, {"b", "x", -30}}},
		"nobody killed": {booked: []order{a, b}, report: report{killWanted: true}},
		"killed":        {booked: []order{a, b}, report: killed(func(*outage) {}), right: true},
		"no writes":     {booked: []order{a, b}, report: killed(func(o *outage) { o.writes = 0 })},
		"never granted": {booked: []order{a, b}, report: killed(func(o *outage) { o.granted = 0 })},
		"granted early": {booked: []order{a, b}, report: killed(func(o *outage) { o.proof = o.proof.Add(time.Millisecond) })},
		"granted late":  {booked: []order{a, b}, report: killed(func(o *outage) { o.granted = grantedMax + 1 })},
		"not back":      {booked: []order{a, b}, report: killed(func(o *outage) { o.back = false })},
		"back and idle": {booked: []order{a, b}, report: killed(func(o *outage) { o.settled = 2 })},
		"asked nobody":  {booked: []order{a, b}, report: killed(func(o *outage) { o.held.Order = a })},
		"not in order":  {booked: []order{a, b}, report: report{faults: []string{"process 1 did not end in order"}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for _, o := range c.booked {
				if err := l.book(entryOf(1, 5, o)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.enter(entryOf(1, 5, b)); err != nil { // another holder asks again
				t.Fatal(err)
			}
			r := c.report
			r.orders, r.recorded, r.grantedMax = []order{a, b}, 2, grantedMax
			r.fill(l, 0, nil)
			if right := len(r.faults) == 0; right != c.right {
				t.Errorf("faults %q", r.faults)
			}
			r.print(t.Output())
		})
	}
}

// departs is how a holder leaves that still has its hold, however often it looks.
func departs(l *ledger, e entry) {
	for range 2 {
		if l.leave(leaving{e, false}) {
			return
		}
	}
	panic("asked for ever")
}

// What the ledger sees of a lock, and which of it is a fault.
func TestLedger_Lock(t *testing.T) {
	o := order{"a", "acc", 100}
	for name, c := range map[string]struct {
		do     func(l *ledger)
		faults int
	}{
		"one after the other": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			departs(l, entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
			departs(l, entryOf(2, 2, o))
		}, 0},
		"two at once": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
			departs(l, entryOf(2, 2, o))
			departs(l, entryOf(1, 1, o))
		}, 1},
		"two at once in one process": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(1, 2, o))
			departs(l, entryOf(1, 1, o))
		}, 1},
		"two accounts": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(2, 2, order{"b", "other", 1}))
			departs(l, entryOf(1, 1, o))
		}, 0},
		"the first has lost its hold and knows it": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
			l.book(entryOf(1, 1, o))
			l.leave(leaving{entryOf(1, 1, o), true})
		}, 0},
		"the first has lost its hold while it said that it has it": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
			l.leave(leaving{entryOf(1, 1, o), false})
			l.leave(leaving{entryOf(1, 1, o), true})
		}, 0},
		"the first never says": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
		}, 1},
		"the first is killed": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.died(1)
			l.enter(entryOf(1, 1, o)) // was in flight
			l.enter(entryOf(2, 2, o))
			l.book(entryOf(1, 1, o))
			departs(l, entryOf(2, 2, o))
		}, 0},
		"the first is killed and comes back": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			l.died(1)
			l.restarts(1)
			l.enter(entryOf(1, 2, o))
			l.enter(entryOf(2, 3, o))
			departs(l, entryOf(1, 2, o))
		}, 1},
		"a stale hold": {func(l *ledger) {
			l.enter(entryOf(2, 2, o))
			departs(l, entryOf(2, 2, o))
			l.enter(entryOf(1, 1, o))
			departs(l, entryOf(1, 1, o))
		}, 1},
		"a stale hold that was lost on the way": {func(l *ledger) {
			l.enter(entryOf(2, 2, o))
			l.enter(entryOf(1, 1, o))
			l.leave(leaving{entryOf(1, 1, o), true})
			l.leave(leaving{entryOf(2, 2, o), true})
		}, 0},
		"a call that was delayed": {func(l *ledger) {
			l.enter(entryOf(1, 1, o))
			departs(l, entryOf(1, 1, o))
			l.enter(entryOf(2, 2, o))
			l.enter(entryOf(1, 1, o))
			l.book(entryOf(1, 1, o))
			departs(l, entryOf(2, 2, o))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			c.do(l)
			if got := l.lockFaults(); len(got) != c.faults {
				t.Errorf("faults %q, want %d", got, c.faults)
			}
		})
	}
}
