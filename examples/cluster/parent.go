package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The plan of a run. The orders come in over time, as fractions of all of them, so that every
// process has work when it matters.
const (
	killAt    = 0.4 // settled when the leader is killed
	inAtFirst = 0.6 // come in at the beginning
	// in when a worker of the leader is to be caught at work; processes with little to do get them
	inAtKill = 0.8
	inAgain  = 0.1  // more after each failed attempt
	inMost   = 0.95 // the most before the killed process is back

	// orders; with fewer, the work ends before a process can be killed in the middle of it
	killMin    = 30
	workTarget = 20 * time.Second       // options.target, except in a test that is in a hurry
	workMax    = 500 * time.Millisecond // of one order
	limitBase  = 60 * time.Second       // a run is given up after this time,
	// plus this time for each order, because all may be of one account, on a slow disk
	limitPer = 100 * time.Millisecond
	// problems that are reported one by one; more are only counted
	problemsMax = 1000
)

// errVerdict says that the run ended and the report lists faults.
var errVerdict = errors.New("the report lists faults")

var errTooLong = errors.New("it took too long")

type options struct {
	input  string
	shards int
	keep   bool
	scale  bool          // processes come and go
	target time.Duration // how long the business of all orders takes, if nobody waits for a lock

	temp     string // where the run makes its directory; empty: where the system wants it
	patience int    // multiplies the limits of time; zero means one
}

// run is the parent. It reads the orders, has them settled, and reports. The error is errVerdict if
// the report says why.
func run(ctx context.Context, o options, out io.Writer) error {
	orders, err := load(o.input, out)
	if err != nil {
		return err
	}
	if len(orders) == 0 {
		fmt.Fprintln(out, "there are no orders: nothing to do")
		return nil
	}
	dir, err := os.MkdirTemp(o.temp, "vivarium-cluster-")
	if err != nil {
		return err
	}
	r := &runner{orders: orders, ledger: newLedger(), begun: time.Now(), out: out}
	err = r.run(ctx, dir, workTime(orders, o.target), o)
	if o.keep {
		fmt.Fprintln(out, "kept", dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// load reads the input and reports the lines that are not orders.
func load(name string, out io.Writer) ([]order, error) {
	in, err := openInput(name)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	defer in.Close()
	shown := name
	if name == "" {
		shown = "orders.csv"
	}
	orders, problems, err := readOrders(in)
	if err != nil {
		return nil, fmt.Errorf("input %s: %w", shown, err)
	}
	for i, p := range problems {
		if i == problemsMax {
			fmt.Fprintf(out, "%s: %d more lines skipped\n", shown, len(problems)-i)
			break
		}
		fmt.Fprintf(out, "%s:%d: skipped: %s\n", shown, p.line, p.text)
	}
	if len(orders) == 0 && len(problems) > 0 {
		return nil, fmt.Errorf("input %s: none of its lines is an order", shown)
	}
	return orders, nil
}

// A runner is one run of the parent.
type runner struct {
	// Immutable after run.
	orders   []order
	ledger   *ledger
	desk     *desk
	ensemble *ensemble
	begun    time.Time

	output sync.Mutex // held while a line is written
	out    io.Writer
}

// run starts everything, has the orders settled, stops everything, and gives the verdict.
func (r *runner) run(outer context.Context, dir string, work time.Duration, o options) (err error) {
	limit, first, settle := limitBase, processes, r.settleAll
	if o.scale {
		limit, first, settle = scaleLimit, 1, r.scaleAll
	}
	limit += time.Duration(len(r.orders)) * limitPer
	patience := time.Duration(max(1, o.patience))
	ctx, cancel := context.WithTimeoutCause(outer, limit*patience, errTooLong)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if r.desk, err = newDesk(r.ledger, r.orders); err != nil {
		return err
	}
	defer r.desk.server.close()
	r.say("orders: %d, accounts: %d, processes: %d with %d workers each, shards: %d, business of an order: %v",
		len(r.orders), len(balances(r.orders)), first, workersPer, o.shards, work.Round(time.Millisecond))
	common := memberConfig{
		// Members of another run that gets one of these ports must not talk to these.
		Ensemble: "cluster-" + strconv.Itoa(os.Getpid()) + "-" + r.begun.Format("150405.000"),
		Shards:   o.shards,
		Desk:     r.desk.server.addr,
		Work:     work,
	}
	if r.ensemble, err = startEnsemble(dir, common, o.scale, fail); err != nil {
		return err
	}
	defer r.ensemble.stop() // a second stop does nothing
	rep := &report{orders: r.orders, grantedMax: grantedMax * patience}
	runErr := settle(ctx, rep)
	took := time.Since(r.begun)
	for _, err := range r.ensemble.stop() {
		rep.fault("%v", err)
	}
	if outer.Err() != nil {
		return fmt.Errorf("given up: %w", context.Cause(outer))
	}
	rep.fill(r.ledger, took, runErr)
	r.output.Lock()
	defer r.output.Unlock()
	rep.print(r.out)
	if len(rep.faults) > 0 {
		return errVerdict
	}
	return nil
}

// settleAll lets the orders in, kills the leader midway, and waits until the last order is
// recorded.
func (r *runner) settleAll(ctx context.Context, rep *report) error {
	err := r.ensemble.until(ctx, func(all map[int]status) bool {
		led := !slices.Contains(r.ensemble.leaders(all), 0)
		return led && all[1].Works && all[2].Works && all[3].Works
	})
	if err != nil {
		return fmt.Errorf("the processes did not become ready: %w", err)
	}
	r.say("all processes are ready")
	var running sync.WaitGroup
	defer running.Wait()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { r.progressLoop(inner) })

	n := len(r.orders)
	if n < killMin {
		r.say("with fewer than %d orders the work is over too soon to kill a leader: nobody is killed", killMin)
		r.desk.letIn(n)
	} else {
		r.letIn(inAtFirst)
		select {
		case <-r.ledger.settles(int(killAt * float64(n))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		rep.killWanted = true
		if rep.outage, err = r.killLeader(ctx); err != nil {
			return err
		}
		r.desk.letIn(n)
	}
	return r.ensemble.until(ctx, func(all map[int]status) bool {
		rep.look(r.ensemble, all)
		return rep.recorded >= n
	})
}

// letIn lets a part of the orders come in, but keeps back one for each process. A process that
// comes back to an empty list gets one of those.
func (r *runner) letIn(part float64) {
	n := len(r.orders)
	r.desk.letIn(min(int(part*float64(n)), n-processes))
}

// workTime returns how long the business of one order should take so that the run has a good
// length. It is long enough to be watched, even when one account has most of the orders and they
// must wait for one another.
func workTime(orders []order, target time.Duration) time.Duration {
	perAccount := make(map[string]int)
	longest := 0
	for _, o := range orders {
		perAccount[o.Account]++
		longest = max(longest, perAccount[o.Account])
	}
	turns := max(float64(len(orders))/(processes*workersPer), float64(longest))
	return min(time.Duration(float64(target)/turns), workMax)
}

// progressLoop writes a line each second.
func (r *runner) progressLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.progress(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) progress(ctx context.Context) {
	all := r.ensemble.statuses(ctx)
	c := r.ledger.counts()
	var leading []string
	for _, id := range r.ensemble.leaders(all) {
		leading = append(leading, orNone(id))
	}
	dispatcher := 0
	var by []string
	for id := 1; id <= processes; id++ {
		mark := ""
		if r.ensemble.process(id) == nil {
			mark = " (dead)"
		}
		if all[id].Dispatches {
			dispatcher = id
		}
		by = append(by, fmt.Sprintf("process %d: %d%s", id, c.By[id], mark))
	}
	r.say("settled %d of %d (%s)  leading: %s  dispatcher: %s  hand-overs: %d",
		c.Settled, len(r.orders), strings.Join(by, ", "), strings.Join(leading, " "), orNone(dispatcher), c.HandOvers)
}

func orNone(id int) string {
	if id == 0 {
		return "none"
	}
	return strconv.Itoa(id)
}

func (r *runner) say(format string, args ...any) {
	r.output.Lock()
	defer r.output.Unlock()
	fmt.Fprintf(r.out, "%5.1f s  %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}
