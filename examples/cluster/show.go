package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/examples/internal/processes"
)

const (
	atFirst      = 3                // processes
	processesMax = 7                // with -scale
	founder      = 1                // the process that founds the ensemble
	voters       = 3                // embed.DefaultVoters
	killAt       = 2. / 5           // settled when the leader is killed
	runLimit     = 5 * time.Minute  // a longer run is given up
	paceTime     = 20 * time.Second // in which all orders come in; twice as long with -scale
)

// options are what the flags say.
type options struct {
	scale  bool
	orders int
	temp   string // for the members' directories; empty means the directory for temporary files
}

// A show is one run.
type show struct {
	options
	pool   *processes.Pool
	dir    string   // of the members
	addrs  []string // of the members, by process - 1
	desk   string   // address of the ledger
	ledger *ledger
	out    io.Writer
	began  time.Time

	mu     sync.Mutex
	part   float64 // of the orders may come in
	victim int     // the process to be killed at its next booking
	deaths []*death
	left   []int // processes
}

// A death is the SIGKILL of a process that holds a lock and has booked its order, but not removed
// it from the queue.
type death struct {
	held    Entry
	at      time.Time
	proof   time.Time     // later than this the process began a write that was acknowledged
	wrote   time.Duration // until a write was acknowledged that was begun after it
	granted time.Duration // until another process held the dead holder's lock
	settled int           // by the process, when it was back
}

// run starts the processes, lets the orders in, and returns an error unless all came out right.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.temp, "cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &show{options: o, out: out, began: time.Now(), dir: dir, pool: processes.NewPool()}
	s.ledger = newLedger(makeOrders(o.orders), s.saw, s.reported)
	var stop func()
	if s.desk, stop, err = s.ledger.serve(); err != nil {
		return err
	}
	defer stop()
	if s.addrs, err = processes.FreeAddrs(processesMax); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	defer func() { err = errors.Join(err, s.pool.EndAll()) }()
	play := s.killLeader
	if o.scale {
		play = s.scaleAll
	}
	if err := play(ctx); err != nil {
		return fmt.Errorf("the run was given up: %w", err)
	}
	s.allow(1)
	err = s.until(ctx, "the last order is out of the queue", func(all map[int]Report) bool {
		done, _ := s.ledger.settled(0)
		queued := 0
		for _, r := range all {
			queued = max(queued, r.Queued)
		}
		return done == o.orders && queued == 0
	})
	return errors.Join(err, s.verdict())
}

// allow lets a part of the orders come in.
func (s *show) allow(part float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = part
}

func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// letInLoop lets the orders in, evenly over a time, but no more than the part that the changes of
// the ensemble allow so far. So there is work during each of them, however slow the machine is.
func (s *show) letInLoop(ctx context.Context, over time.Duration) {
	for began := time.Now(); ctx.Err() == nil; pause(ctx, lookPause) {
		s.mu.Lock()
		most := s.part
		s.mu.Unlock()
		s.ledger.letIn(int(float64(s.orders) * min(most, float64(time.Since(began))/float64(over))))
	}
}

// until waits until ok holds for a report of each process that is meant to run, each begun since.
func (s *show) until(ctx context.Context, what string, ok func(map[int]Report) bool) error {
	for began := time.Now(); ; pause(ctx, lookPause) {
		all, fresh := s.ledger.seen(), make(map[int]Report)
		for _, number := range s.pool.Running() {
			if r := all[number]; r.Began.After(began) {
				fresh[number] = r
			}
		}
		if len(fresh) == len(s.pool.Running()) && ok(fresh) {
			return nil
		}
		select {
		case err := <-s.pool.Failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting until %s; last seen: %+v", context.Cause(ctx), what, all)
		default:
		}
	}
}

// settled waits until the ensemble has as many members as processes run, of which as many vote as
// can.
func (s *show) settled(ctx context.Context) error {
	n := len(s.pool.Running())
	return s.until(ctx, fmt.Sprintf("there are %d members", n), func(all map[int]Report) bool {
		for _, r := range all {
			if len(r.Members) != n || len(votersOf(r)) != min(voters, n) {
				return false
			}
		}
		return true
	})
}

func votersOf(r Report) (ids []embed.MemberID) {
	for _, m := range r.Members {
		if m.Role == embed.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (s *show) memberDir(number int) string {
	return filepath.Join(s.dir, fmt.Sprint("member-", number))
}

// start starts a process. Its member joins the ensemble, or goes on if its directory has one.
func (s *show) start(number int) error {
	dir := s.memberDir(number)
	return s.pool.Start(number, memberCommand, dir+".log", memberConfig{
		Process: number, Dir: dir, Ensemble: filepath.Base(s.dir), Ledger: s.desk, Founds: number == founder,
		Join: s.addrs, Advertise: s.addrs[number-1], Name: fmt.Sprint("process-", number),
	})
}

// grow starts processes up to a number.
func (s *show) grow(ctx context.Context, first, last int) error {
	for number := first; number <= last; number++ {
		if err := s.start(number); err != nil {
			return err
		}
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.say("the ensemble has %d members, of which %d vote", last, min(voters, last))
	return nil
}

// saw kills the victim when it has booked, before it knows. It also notes who is next at the lock.
func (s *show) saw(e Entry, books bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if books && e.Process == s.victim {
		s.victim = 0
		s.pool.Kill(e.Process)
		s.deaths = append(s.deaths, &death{held: e, at: time.Now(), proof: s.ledger.seen()[e.Process].Began})
	}
	for _, d := range s.deaths {
		if !books && d.granted == 0 && e.Process != d.held.Process && e.Order.Account == d.held.Order.Account {
			d.granted = time.Since(d.at)
		}
	}
}

// reported notes when a write was accepted that was begun after a death.
func (s *show) reported(r Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.deaths {
		if d.wrote == 0 && r.Began.After(d.at) {
			d.wrote = r.Wrote.Sub(d.at)
		}
	}
}

// kill kills the process that choose names while it holds a lock. It chooses again and again,
// because leaders change.
func (s *show) kill(ctx context.Context, choose func(map[int]Report) int) (*death, error) {
	var d *death
	n := len(s.deaths)
	err := s.until(ctx, "a process is caught holding a lock", func(all map[int]Report) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.deaths) > n {
			d = s.deaths[n]
			return true
		}
		s.victim = choose(all)
		return false
	})
	return d, err
}

// killLeader founds an ensemble of three, kills the process that leads, and starts it again.
func (s *show) killLeader(ctx context.Context) error {
	if err := s.grow(ctx, 1, atFirst); err != nil {
		return err
	}
	go s.letInLoop(ctx, paceTime)
	s.allow(0.8)
	err := s.until(ctx, "there is work to interrupt", func(map[int]Report) bool {
		done, _ := s.ledger.settled(0)
		return float64(done) >= killAt*float64(s.orders)
	})
	if err != nil {
		return err
	}
	d, err := s.kill(ctx, func(all map[int]Report) int {
		for number, r := range all {
			if r.Leads {
				return number
			}
		}
		return 0
	})
	if err != nil {
		return err
	}
	s.say("process %d leads and holds the lock of %s, %s is booked and still queued: SIGKILL",
		d.held.Process, d.held.Order.Account, d.held.Order.ID)
	err = s.until(ctx, "the dead holder's lock is granted to another", func(map[int]Report) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return d.wrote > 0 && d.granted > 0
	})
	if err != nil {
		return err
	}
	s.say("writes are accepted again since %.2f s after the kill", d.wrote.Seconds())
	s.say("the dead holder's lock was granted to another process %.2f s after the kill", d.granted.Seconds())
	return s.bringBack(ctx, d)
}

// bringBack starts a process again that was killed.
func (s *show) bringBack(ctx context.Context, d *death) error {
	_, d.settled = s.ledger.settled(d.held.Process)
	if err := s.start(d.held.Process); err != nil {
		return err
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.say("process %d is back", d.held.Process)
	return nil
}

// scaleAll lets processes join, die and leave while orders come in.
func (s *show) scaleAll(ctx context.Context) error {
	if err := errors.Join(s.start(founder), s.settled(ctx)); err != nil {
		return err
	}
	s.say("process %d has founded the ensemble and votes alone", founder)
	go s.letInLoop(ctx, 2*paceTime)
	for i, change := range []func(context.Context) error{
		func(ctx context.Context) error { return s.grow(ctx, 2, atFirst) },
		func(ctx context.Context) error { return s.grow(ctx, atFirst+1, processesMax) },
		s.killAndWipe,
		func(ctx context.Context) error { return s.leave(ctx, s.voter(s.ledger.seen())) },
		func(ctx context.Context) error { return s.leave(ctx, founder) },
	} {
		s.allow(float64(i+2) / 7)
		before, _ := s.ledger.settled(0)
		began := time.Now()
		if err := change(ctx); err != nil {
			return err
		}
		now, _ := s.ledger.settled(0)
		s.say("  it took %.2f s, in which %d orders were settled", time.Since(began).Seconds(), now-before)
	}
	return nil
}

// voter returns a process that votes, is not the founder, and was not killed.
func (s *show) voter(all map[int]Report) int {
	for _, number := range s.pool.Running() {
		killed := slices.ContainsFunc(s.deaths, func(d *death) bool { return d.held.Process == number })
		if r := all[number]; number != founder && !killed && slices.Contains(votersOf(r), r.Member) {
			return number
		}
	}
	return 0
}

// killAndWipe kills a voter that holds a lock, deletes its directory, and starts it again. It comes
// back as a new member, and the ensemble replaces the old one by a learner.
func (s *show) killAndWipe(ctx context.Context) error {
	d, err := s.kill(ctx, s.voter)
	if err != nil {
		return err
	}
	s.say("process %d votes and holds the lock of %s, %s is booked and still queued: SIGKILL and wiped",
		d.held.Process, d.held.Order.Account, d.held.Order.ID)
	if err := os.RemoveAll(s.memberDir(d.held.Process)); err != nil {
		return err
	}
	return s.bringBack(ctx, d)
}

// leave makes a process leave the ensemble, and waits until a learner votes in its place.
func (s *show) leave(ctx context.Context, number int) error {
	s.say("process %d leaves", number)
	if err := s.pool.End(number, "leave\n"); err != nil {
		return err
	}
	s.left = append(s.left, number)
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.say("process %d is out, and %d of %d vote", number, voters, len(s.pool.Running()))
	return nil
}
