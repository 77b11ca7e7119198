package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"
)

// verdict prints what came of the run, and returns an error that says what is wrong.
func (s *show) verdict() error {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nprocess\tsettled\t")
	for number := 1; number <= processesMax && (number <= atFirst || s.scale); number++ {
		fmt.Fprintf(w, "%d\t%d\t\n", number, l.by[number])
	}
	_ = w.Flush() // an output that fails cannot show an error either
	repeats, lost, twice, wrong := 0, 0, 0, 0
	want := make(map[string]int)
	for _, o := range l.orders {
		want[o.Account] += o.Amount
		repeats += l.repeated[o.ID]
		switch n := l.booked[o.ID]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	for name, sum := range want {
		if a := l.accounts[name]; a == nil || a.balance != sum {
			wrong++
		}
	}
	fmt.Fprintf(s.out, "\nlocks handed over to another process: %d\n", l.handed)
	fmt.Fprintf(s.out, "orders found booked already: %d\n", repeats)
	fmt.Fprintf(s.out, "calls refused for a stale token: %d\n", l.stale)
	fmt.Fprintf(s.out, "balances equal to a plain run: %d of %d\n", len(want)-wrong, len(want))
	fmt.Fprintf(s.out, "%d settled, %d lost, %d twice, processes killed: %d, members that left: %d\n",
		len(l.booked), lost, twice, len(s.deaths), len(s.left))
	fmt.Fprintf(s.out, "%.2f s in all\n", time.Since(s.began).Seconds())
	var faults []error
	if lost+twice+wrong > 0 {
		faults = append(faults, errors.New("not every order is settled once"))
	}
	if len(s.deaths) != 1 || s.scale && len(s.left) != 2 {
		faults = append(faults, errors.New("nobody was killed, or too few have left"))
	}
	for _, d := range s.deaths {
		faults = append(faults, s.checkDeath(d))
	}
	if s.scale {
		faults = append(faults, checkMembers(l.reports, s.pool.Running()))
	}
	if err := errors.Join(faults...); err != nil {
		fmt.Fprintf(s.out, "\nverdict: WRONG\n%v\n", err)
		return err
	}
	fmt.Fprintln(s.out, "\nverdict: right")
	return nil
}

// checkDeath returns what is wrong about the time after a death.
func (s *show) checkDeath(d *death) error {
	switch early := d.at.Add(d.granted).Sub(d.proof) < sessionTimeout; {
	case s.ledger.repeated[d.held.Order.ID] == 0:
		return fmt.Errorf("nobody asked again about %s, which was booked and still queued", d.held.Order.ID)
	case d.granted > 0 && early:
		return fmt.Errorf("the dead holder's lock was granted after %v: its session lasts for %v", d.granted, sessionTimeout)
	case s.ledger.by[d.held.Process] == d.settled:
		return fmt.Errorf("process %d settled nothing after it came back", d.held.Process)
	}
	return nil
}

// checkMembers returns an error unless three members vote, each in a process that runs, without the
// founder.
func checkMembers(all map[int]Report, running []int) error {
	voting := 0
	for _, number := range running {
		if r := all[number]; slices.Contains(votersOf(r), r.Member) {
			voting++
		}
		if ids := votersOf(all[number]); len(ids) != voters {
			return fmt.Errorf("process %d knows the voters %v, want %d", number, ids, voters)
		}
	}
	if voting != voters || slices.Contains(running, founder) {
		return fmt.Errorf("%d voters run in the processes %v, want %d and not the founder", voting, running, voters)
	}
	return nil
}
