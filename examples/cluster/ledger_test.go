package main

import (
	"errors"
	"testing"

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

// A holder that was paused and has lost its lock books late: the next holder has asked already, and was told no.
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
	<-l.settles(1) // already
	for _, process := range []int{1, 3} {
		if _, err := l.enter(entryOf(process, 6, order{Account: "acc"})); err != nil {
			t.Fatal(err)
		}
	}
	if g := <-left; g.process != 3 {
		t.Errorf("granted to %d", g.process)
	}
}

// The verdict must be against a run in which anything is wrong.
func TestReport_Faults(t *testing.T) {
	a, b := order{"a", "x", 100}, order{"b", "y", -30}
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
		"never granted": {booked: []order{a, b}, report: report{killWanted: true, outage: &outage{id: 1, writes: 1, back: true}}},
		"not back":      {booked: []order{a, b}, report: report{killWanted: true, outage: &outage{id: 1, writes: 1, granted: 1}}},
		"back and idle": {booked: []order{a, b}, report: report{killWanted: true, outage: &outage{id: 1, writes: 1, granted: 1, back: true, settled: 2}}},
		"granted early": {booked: []order{a, b}, report: report{killWanted: true, outage: &outage{id: 1, tooEarly: true}}},
		"asked nobody":  {booked: []order{a, b}, report: report{killWanted: true, outage: &outage{id: 1, writes: 1, granted: 1, back: true, held: held{Order: a}}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for _, o := range c.booked {
				if err := l.book(entryOf(1, 5, o)); err != nil {
					t.Fatal(err)
				}
			}
			r := c.report
			r.orders, r.recorded = []order{a, b}, 2
			r.fill(l, 0, nil)
			if right := len(r.faults) == 0; right != c.right {
				t.Errorf("faults %q", r.faults)
			}
			r.print(t.Output())
		})
	}
}
