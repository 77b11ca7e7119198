package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// The plan of a run with -scale. Each change of the ensemble has its part of the orders, which come
// in while it happens.
const (
	founder    = 1 // the process, and the member that it is at first
	voters     = 3 // embed.DefaultVoters
	stages     = 7 // five changes, of which the first takes two parts, and the time after them
	scaleLimit = 5 * time.Minute
	paceTime   = 60 * time.Second // in which all orders come in, if no change is slow
	pacePause  = 100 * time.Millisecond
	catchTries = 20
)

// changes are what happened to the ensemble in a run with -scale.
type changes struct {
	killed  int    // the process that was killed; zero if none was
	left    int    // how many have left
	lostID  string // the order that the killed process had booked and not recorded
	members []embed.Member
	running map[embed.MemberID]int // processes at the end, by member
}

func (c *changes) String() string {
	killed := "no voter killed"
	if c.killed != 0 {
		killed = "one voter killed and wiped"
	}
	return fmt.Sprintf("%s, members that left: %d", killed, c.left)
}

// scaleAll lets the orders in while processes join, die and leave. It waits until the last order is
// recorded.
func (r *runner) scaleAll(ctx context.Context, rep *report) error {
	c := &changes{}
	rep.changes = c
	if err := r.settled(ctx, "process 1 did not found an ensemble", 1, founder); err != nil {
		return err
	}
	r.say("process 1 has founded the ensemble and votes alone")
	var running sync.WaitGroup
	defer running.Wait()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { r.scaleProgressLoop(inner) })

	for i, change := range []func(context.Context, *changes) error{
		func(ctx context.Context, _ *changes) error { return r.grow(ctx, 2, processes) },
		func(ctx context.Context, _ *changes) error { return r.grow(ctx, processes+1, processesMax) },
		r.killAndWipe,
		r.leaveAny,
		func(ctx context.Context, c *changes) error { return r.leave(ctx, c, founder) },
	} {
		if err := r.stage(ctx, i+2, func() error { return change(ctx, c) }); err != nil {
			return err
		}
	}
	r.desk.letIn(len(r.orders))
	return r.ensemble.until(ctx, func(all map[int]status) bool {
		rep.look(r.ensemble, all)
		c.members, c.running = nil, make(map[embed.MemberID]int)
		for id, st := range all {
			c.members, c.running[st.Member] = st.Members, id
		}
		return rep.recorded >= len(r.orders)
	})
}

// stage makes one change while its part of the orders comes in. One for each worker comes in at
// once, so that everybody has work.
func (r *runner) stage(ctx context.Context, number int, change func() error) error {
	var pace sync.WaitGroup
	defer pace.Wait()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	n := len(r.orders)
	r.desk.letIn(min(n*number/stages, int(r.desk.in.Load())+workersPer*processesMax))
	pace.Go(func() { r.paceLoop(inner, n*number/stages) })
	before := r.ledger.counts().Settled
	begun := time.Now()
	if err := change(); err != nil {
		return err
	}
	r.say("  it took %s, in which %d orders were settled", seconds(time.Since(begun)), r.ledger.counts().Settled-before)
	return nil
}

// paceLoop lets orders come in, up to a number of them in all.
func (r *runner) paceLoop(ctx context.Context, most int) {
	each := max(1, len(r.orders)*int(pacePause)/int(paceTime))
	for in := int(r.desk.in.Load()); in < most && ctx.Err() == nil; pause(ctx, pacePause) {
		in = min(in+each, most)
		r.desk.letIn(in)
	}
}

// grow starts processes, which join, and waits until they take orders.
func (r *runner) grow(ctx context.Context, first, last int) error {
	r.say("processes %d to %d start and join", first, last)
	for id := first; id <= last; id++ {
		if err := r.ensemble.restart(ctx, id); err != nil {
			return err
		}
	}
	var all []int
	for id := 1; id <= last; id++ {
		all = append(all, id)
	}
	if err := r.settled(ctx, fmt.Sprintf("the ensemble did not grow to %d", last), last, all...); err != nil {
		return err
	}
	r.say("the ensemble has %d members, of which %d vote", last, min(voters, last))
	return nil
}

// settled waits until the processes take orders, and every process that runs knows the same
// members: as many as there are processes, and as many voters as that allows.
func (r *runner) settled(ctx context.Context, otherwise string, members int, processes ...int) error {
	var last map[int]status
	err := r.ensemble.until(ctx, func(all map[int]status) bool {
		last = all
		for _, id := range processes {
			if !all[id].Works {
				return false
			}
		}
		for _, st := range all {
			if len(st.Members) != members || len(votersOf(st.Members)) != min(voters, members) {
				return false
			}
		}
		return len(all) == len(r.ensemble.processes()) && !slices.Contains(r.ensemble.leaders(all), 0)
	})
	if err != nil {
		return fmt.Errorf("%s: %w; last seen: %s", otherwise, err, r.roles(last))
	}
	return nil
}

func votersOf(members []embed.Member) (ids []embed.MemberID) {
	for _, m := range members {
		if m.Role == embed.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// voter returns a process that votes and is not one of these.
func (r *runner) voter(all map[int]status, not ...int) (int, bool) {
	for id := processesMax; id > 0; id-- {
		st, runs := all[id]
		if runs && !slices.Contains(not, id) && slices.Contains(votersOf(st.Members), st.Member) {
			return id, true
		}
	}
	return 0, false
}

// killAndWipe kills a voter that holds a lock, deletes its directory, and starts it again. It comes
// back as a new member, and the ensemble replaces the old one by a learner.
func (r *runner) killAndWipe(ctx context.Context, c *changes) error {
	all := r.ensemble.statuses(ctx)
	id, ok := r.voter(all, founder)
	if !ok {
		return errors.New("no process votes except the founder")
	}
	h, err := r.catch(ctx, id)
	if err != nil {
		return fmt.Errorf("process %d was not caught holding a lock: %w", id, err)
	}
	c.killed, c.lostID = id, h.Order.ID
	r.ensemble.kill(id)
	r.ledger.died(id)
	r.say("process %d votes and holds the lock of %s, %s is booked and not recorded: SIGKILL and wiped",
		id, h.Order.Account, h.Order.ID)
	cfg := r.ensemble.config(id)
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return err
	}
	r.ledger.restarts(id)
	if err := r.ensemble.restart(ctx, id); err != nil {
		return err
	}
	if err := r.settled(ctx, fmt.Sprintf("process %d did not come back, or was not replaced", id), processesMax, id); err != nil {
		return err
	}
	now := r.ensemble.statuses(ctx)[id]
	r.say("process %d is back as member %d, and member %d is replaced", id, now.Member, all[id].Member)
	return nil
}

// catch stops a worker of a process that has booked an order and not recorded it. Each try lets
// more orders in, because the process may have none.
func (r *runner) catch(ctx context.Context, id int) (h held, err error) {
	for range catchTries {
		bound, cancel := context.WithTimeout(ctx, stopWait)
		err = r.ensemble.process(id).control.ask(bound, "/stop", true, &h)
		cancel()
		if err == nil || ctx.Err() != nil {
			return h, err
		}
		r.desk.letIn(min(len(r.orders), int(r.desk.in.Load())+processesMax))
	}
	return h, err
}

// leaveAny makes a voter leave that is neither the founder nor the one that was killed.
func (r *runner) leaveAny(ctx context.Context, c *changes) error {
	id, ok := r.voter(r.ensemble.statuses(ctx), founder, c.killed)
	if !ok {
		return errors.New("no process votes except the founder and the one that was killed")
	}
	return r.leave(ctx, c, id)
}

// leave makes a process leave the ensemble, and waits until a learner votes in its place.
func (r *runner) leave(ctx context.Context, c *changes, id int) error {
	before := r.ensemble.statuses(ctx)[id]
	r.say("process %d leaves", id)
	p := r.ensemble.retire(id)
	if err := p.leave(ctx); err != nil {
		return err
	}
	c.left++
	rest := len(r.ensemble.processes())
	if err := r.settled(ctx, fmt.Sprintf("process %d did not get out, or nobody took its place", id), rest); err != nil {
		return err
	}
	r.say("member %d is out, and %d of %d vote", before.Member, voters, rest)
	return nil
}

// leave asks the process to leave the ensemble and end. It returns when the process has ended.
func (p *process) leave(ctx context.Context) error {
	if err := p.control.ask(ctx, "/leave", true, new(bool)); err != nil {
		p.kill()
		return fmt.Errorf("process %d does not answer: %w", p.id, err)
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.kill()
		return context.Cause(ctx)
	}
	p.bury()
	if p.exitErr != nil {
		return fmt.Errorf("process %d did not leave (%w): %s", p.id, p.exitErr, p.lastWords())
	}
	return nil
}

// scaleProgressLoop writes a line each second.
func (r *runner) scaleProgressLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c := r.ledger.counts()
			r.say("settled %d of %d  %s  hand-overs: %d", c.Settled, len(r.orders), r.roles(r.ensemble.statuses(ctx)), c.HandOvers)
		case <-ctx.Done():
			return
		}
	}
}

// roles says which processes vote, learn, lead, and dispatch.
func (r *runner) roles(all map[int]status) string {
	var voting, learning, joining, leading []string
	dispatcher := 0
	for id := 1; id <= processesMax; id++ {
		st, runs := all[id]
		at := slices.IndexFunc(st.Members, func(m embed.Member) bool { return m.ID == st.Member })
		switch {
		case !runs:
			continue
		case at < 0:
			joining = append(joining, orNone(id))
		case st.Members[at].Role == embed.Voter:
			voting = append(voting, orNone(id))
		default:
			learning = append(learning, orNone(id))
		}
		if st.Dispatches {
			dispatcher = id
		}
	}
	for _, id := range r.ensemble.leaders(all) {
		leading = append(leading, orNone(id))
	}
	return fmt.Sprintf("voting: %s  learning: %s  joining: %s  leading: %s  dispatcher: %s",
		orNobody(voting), orNobody(learning), orNobody(joining), strings.Join(leading, " "), orNone(dispatcher))
}

func orNobody(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, " ")
}

// checkChanges looks for three voters, each a process that runs, and none of them the founder.
func (r *report) checkChanges(repeated map[string]int) {
	c := r.changes
	if c == nil {
		return
	}
	ids := votersOf(c.members)
	if len(ids) != voters {
		r.fault("%d members vote at the end, not %d", len(ids), voters)
	}
	for _, id := range ids {
		if c.running[id] == 0 {
			r.fault("member %d votes at the end and does not run", id)
		}
		if id == founder {
			r.fault("the founder votes at the end")
		}
	}
	for _, m := range c.members {
		if c.running[m.ID] == 0 {
			r.fault("member %d (%s) is still listed at the end and does not run", m.ID, m.Name)
		}
	}
	if c.killed == 0 || c.left != 2 {
		r.fault("%v; want one voter killed and two members that left", c)
	}
	if c.lostID != "" && repeated[c.lostID] == 0 {
		r.fault("nobody asked again about order %s, which was booked and not recorded", c.lostID)
	}
}
