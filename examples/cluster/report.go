package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// grantedMax limits how long it takes until another process holds a dead holder's lock. It is twice
// the expected most, because the machine may be busy with other things. Expected are the session's
// timeout, a second, and the longest election: it is the leader that dies.
const grantedMax = 2 * (sessionTimeout + time.Second + 24*embed.DefaultTick)

// A report compares the ledger with the file of orders, and what the ledger saw of the locks with
// what locks promise.
type report struct {
	orders     []order
	killWanted bool
	outage     *outage  // nil if no leader was killed
	changes    *changes // with -scale
	grantedMax time.Duration
	recorded   int    // orders that are marked as done in the tree
	shards     string // who led each shard at the end, and how many transactions it had

	// Set by fill.
	took   time.Duration
	counts counts
	equal  int // accounts whose balance is right
	all    int // accounts
	lost   int // orders of the file that were not booked
	twice  int // orders that were booked more than once
	faults []string
}

// fill looks at the ledger. err is why the run was given up, if it was.
func (r *report) fill(l *ledger, took time.Duration, err error) {
	r.took, r.counts = took, l.counts()
	if err != nil {
		r.fault("the run was given up: %v", err)
	}
	booked, repeated := l.bookings()
	r.compareBookings(booked)
	r.compareBalances(l.balances())
	if r.recorded != len(r.orders) {
		r.fault("%d orders are recorded as done in the tree, not %d", r.recorded, len(r.orders))
	}
	r.checkOutage(repeated)
	r.checkChanges(repeated)
	r.faults = append(r.faults, l.lockFaults()...)
}

func (r *report) compareBookings(booked map[string]int) {
	for _, o := range r.orders {
		switch n := booked[o.ID]; {
		case n == 0:
			r.lost++
		case n > 1:
			r.twice++
		}
		delete(booked, o.ID)
	}
	if r.lost > 0 {
		r.fault("%d orders are lost", r.lost)
	}
	if r.twice > 0 {
		r.fault("%d orders are booked twice", r.twice)
	}
	if len(booked) > 0 {
		r.fault("%d booked orders are not in the file", len(booked))
	}
}

func (r *report) compareBalances(got map[string]cents) {
	want := balances(r.orders)
	r.all = len(want)
	for name, sum := range want {
		if got[name] == sum {
			r.equal++
		} else {
			r.fault("the balance of %s is %v, a plain run comes to %v", name, got[name], sum)
		}
	}
	for name, sum := range got {
		if _, ok := want[name]; !ok && sum != 0 {
			r.fault("the account %s has a balance of %v and no orders", name, sum)
		}
	}
}

func (r *report) checkOutage(repeated map[string]int) {
	o := r.outage
	switch {
	case !r.killWanted:
	case o == nil:
		r.fault("no leader was killed")
	case o.writes == 0:
		r.fault("no write was accepted after the kill")
	case o.granted == 0:
		r.fault("the dead holder's lock was granted to nobody")
	case o.at.Add(o.granted).Sub(o.proof) < sessionTimeout:
		r.fault("the dead holder's lock was granted %s after the kill: its session lasts for %s", seconds(o.granted), seconds(sessionTimeout))
	case o.granted > r.grantedMax:
		r.fault("the dead holder's lock was granted only %s after the kill: its session lasts for %s", seconds(o.granted), seconds(sessionTimeout))
	case !o.back:
		r.fault("process %d did not come back", o.id)
	case r.counts.By[o.id] == o.settled:
		r.fault("process %d settled nothing after it came back", o.id)
	case repeated[o.held.Order.ID] == 0:
		r.fault("nobody asked again about order %s, which was booked and not recorded", o.held.Order.ID)
	}
}

func (r *report) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// print writes the table and the verdict.
func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "process\tsettled\tlocks acquired\t")
	for id := 1; id <= processesMax && (id <= processes || r.changes != nil); id++ {
		fmt.Fprintf(w, "%d\t%d\t%d\t\n", id, r.counts.By[id], r.counts.Entered[id])
	}
	_ = w.Flush() // an output that fails cannot show an error either
	fmt.Fprintf(out, "\nlocks handed over to another process: %d\n", r.counts.HandOvers)
	fmt.Fprintf(out, "orders found booked already: %d\n", r.counts.Repeats)
	fmt.Fprintf(out, "calls refused for a stale token: %d\n", r.counts.Stale)
	fmt.Fprintf(out, "\nbalances equal to a plain run: %d of %d\n", r.equal, r.all)
	fmt.Fprintf(out, "shards: %s\n", r.shards)
	killed := "no leader killed"
	if r.outage != nil {
		killed = "one leader killed"
	}
	if r.changes != nil {
		killed = r.changes.String()
	}
	fmt.Fprintf(out, "%d settled, %d lost, %d twice, %s\n", r.counts.Settled, r.lost, r.twice, killed)
	if o := r.outage; o != nil {
		fmt.Fprintf(out, "writes accepted again after %s\n", seconds(o.writes))
		fmt.Fprintf(out, "dead holder's lock granted to another after %s\n", seconds(o.granted))
		if o.back {
			fmt.Fprintf(out, "process %d settled %d more after it came back\n", o.id, r.counts.By[o.id]-o.settled)
		}
	}
	fmt.Fprintf(out, "%s in all\n", seconds(r.took))
	if len(r.faults) == 0 {
		fmt.Fprintln(out, "\nverdict: right")
		return
	}
	fmt.Fprintln(out, "\nverdict: WRONG")
	slices.Sort(r.faults)
	for _, f := range r.faults {
		fmt.Fprintln(out, "  -", f)
	}
}

// look notes what the processes say at the end: how many orders are recorded, who leads each shard,
// and how many transactions the shard has had.
func (r *report) look(e *ensemble, all map[int]status) {
	var each []string
	for i, id := range e.leaders(all) {
		var zxid embed.Zxid
		for _, st := range all {
			r.recorded = max(r.recorded, st.Done)
			if i < len(st.Shards) {
				zxid = max(zxid, st.Shards[i].Zxid)
			}
		}
		each = append(each, fmt.Sprintf("%d led by %s at zxid %d", i+1, orNone(id), zxid))
	}
	r.shards = strings.Join(each, ", ")
}
