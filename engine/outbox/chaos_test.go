package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A chaos is an outbox on an unreliable ensemble. The ensemble loses, repeats and reorders
// proposals and changes its leader. This node's replica lags behind, or skips ahead by a snapshot.
// The test knows what was committed, so it compares every outcome that a caller was told with the
// truth.
type chaos struct {
	t      *testing.T
	rng    *rand.Rand
	log    *enginetest.Log
	clock  *enginetest.Clock
	outbox *Outbox
	local  *acceptor // this node's replica
	start  uint64

	transit   []transit
	committed []command.Command
	applied   int       // how many entries of committed local has applied
	truth     *acceptor // a replica that is up to date
	calls     []*chaosCall
	callers   [chaosCallers]*Owner
	// Callers that wait to be introduced to the shard.
	introducing []*Owner
	next        [chaosCallers]int // the number of each caller's next call
}

const chaosCallers = 6

// A transit is a proposal on its way. If kept is set, this node proposed it as the leader, and it
// cannot be lost without a change of leader.
type transit struct {
	*enginetest.Proposal
	kept bool
}

type chaosCall struct {
	path string
	call *Call
	told error // what Wait returned, if it returned without the outcome
	gone bool  // Wait has returned
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{t: t, rng: rand.New(rand.NewPCG(seed, 7)), log: &enginetest.Log{}, clock: enginetest.NewClock()}
	for i := range c.callers {
		c.callers[i] = NewOwner(1, false)
	}
	c.truth = &acceptor{table: session.NewTable(), outbox: New(command.HomeShard, c.log, c.clock.Clock(), session.Origin{}, command.Rules{}, &stubNode{})}
	c.restart()
	t.Cleanup(func() { c.outbox.Close(ErrClosed) })
	return c
}

// restart begins another incarnation of the node. Proposals of the one before may still arrive.
func (c *chaos) restart() {
	if c.outbox != nil {
		c.outbox.Close(ErrClosed)
	}
	c.start++
	o := enginetest.Origin()
	o.Start = c.start
	c.outbox = New(command.HomeShard, c.log, c.clock.Clock(), o, command.Rules{}, &stubNode{})
	c.introducing = nil
	for _, s := range c.callers {
		s.shards[0].known.Store(false)
	}
	c.local = &acceptor{table: session.NewTable(), outbox: c.outbox}
	c.applied = 0 // its log is applied again from the beginning
	go c.outbox.Loop()
}

func (c *chaos) step() {
	switch n := c.rng.IntN(1000); {
	case n < 300:
		c.call()
	case n < 370:
		c.stopWaiting()
	case n < 600:
		c.commitOne()
	case n < 640:
		c.lose()
	case n < 670:
		c.duplicate()
	case n < 850:
		c.applyOne()
	case n < 880:
		c.elect()
	case n < 890:
		c.log.Refuse([]error{nil, enginetest.ErrRefused}[c.rng.IntN(2)])
	case n < 893:
		c.install()
	case n < 896:
		c.restart()
	case n < 905:
		c.outbox.Beat()
	case n < 920:
		c.introduce()
	default:
		enginetest.Pass(time.Duration(c.rng.IntN(100)) * time.Millisecond)
	}
	synctest.Wait()
	leads := c.log.Leader(command.HomeShard).Member == enginetest.Member
	for _, p := range c.log.Drain() {
		c.transit = append(c.transit, transit{p, leads})
	}
}

// call has a caller submit its next call. Now and then, a second one is submitted while the first
// is being proposed.
func (c *chaos) call() {
	if c.rng.IntN(4) == 0 {
		c.log.OnNextPropose(c.submit)
	}
	c.submit()
	c.log.OnNextPropose(nil)
}

// submit sends a caller's next call. Some calls go ahead of the calls of others, and some are as
// large as many.
func (c *chaos) submit() {
	caller := c.rng.IntN(chaosCallers)
	path := fmt.Sprintf("/%d/%d", caller, c.next[caller])
	c.next[caller]++
	op := tree.Op{Kind: tree.KindDelete, Path: path}
	if c.rng.IntN(10) == 0 {
		op.Data = make([]byte, command.BatchBytesMax/3)
	}
	call := NewCall(c.callers[caller], &command.Request{Kind: command.RequestTxn, Ops: []tree.Op{op}})
	if c.rng.IntN(10) == 0 && c.callers[caller].Known(command.HomeShard) {
		c.outbox.QueueRelease(call)
		c.outbox.Pump()
	} else {
		if introduce, _ := c.outbox.Submit(call); introduce {
			c.introducing = append(c.introducing, call.owner)
		}
	}
	c.calls = append(c.calls, &chaosCall{path: path, call: call})
}

// introduce lets the introduction of one caller succeed or fail.
func (c *chaos) introduce() {
	if len(c.introducing) == 0 {
		return
	}
	i := c.rng.IntN(len(c.introducing))
	s := c.introducing[i]
	c.introducing = slices.Delete(c.introducing, i, i+1)
	if c.rng.IntN(4) == 0 {
		c.outbox.NotIntroduced(s, enginetest.ErrRefused)
	} else {
		c.outbox.Introduced(s)
	}
}

// stopWaiting has a caller give up one of its calls.
func (c *chaos) stopWaiting() {
	if len(c.calls) == 0 {
		return
	}
	call := c.calls[len(c.calls)-1-c.rng.IntN(min(20, len(c.calls)))]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if !call.gone {
		call.gone, call.told = true, c.outbox.Wait(ctx, call.call, 0)
	}
}

// commitOne commits one of the proposals on their way, more often an old one than a new one.
func (c *chaos) commitOne() {
	if len(c.transit) == 0 {
		return
	}
	i := c.rng.IntN(1 + c.rng.IntN(len(c.transit)))
	cmd := enginetest.Decode(c.t, c.transit[i].Cmd)
	c.transit = append(c.transit[:i], c.transit[i+1:]...)
	c.committed = append(c.committed, cmd)
	c.truth.apply(cmd)
}

func (c *chaos) lose() {
	if len(c.transit) == 0 {
		return
	}
	if i := c.rng.IntN(len(c.transit)); !c.transit[i].kept {
		c.drop(i)
	}
}

func (c *chaos) drop(i int) {
	if c.rng.IntN(2) == 0 {
		c.transit[i].Lost.Store(true)
	}
	c.transit = append(c.transit[:i], c.transit[i+1:]...)
}

func (c *chaos) duplicate() {
	if len(c.transit) > 0 {
		copied := c.transit[c.rng.IntN(len(c.transit))]
		c.transit = append(c.transit, transit{&enginetest.Proposal{Cmd: copied.Cmd}, copied.kept})
	}
}

func (c *chaos) elect() {
	for i := len(c.transit) - 1; i >= 0; i-- {
		c.transit[i].kept = false
		if c.rng.IntN(4) == 0 {
			c.drop(i)
		}
	}
	c.log.Elect([]replication.MemberID{0, enginetest.Member, enginetest.Other}[c.rng.IntN(3)])
	c.outbox.LeaderChanged()
}

func (c *chaos) applyOne() {
	if c.applied < len(c.committed) {
		c.local.apply(c.committed[c.applied])
		c.applied++
	}
}

// install takes this node's replica to the newest state by a snapshot.
func (c *chaos) install() {
	c.local.table = session.NewTable()
	c.applied = len(c.committed)
	o, ok := c.truth.table.Origin(enginetest.Member)
	if !ok {
		return
	}
	c.local.table.LoadOrigin(o)
	if o.Start == c.start {
		c.outbox.SkipTo(o.LastSeq)()
	}
}

// deliverAll makes the ensemble reliable until every call has its outcome.
func (c *chaos) deliverAll() {
	c.log.Refuse(nil)
	c.log.Elect(enginetest.Other)
	c.outbox.LeaderChanged()
	for len(c.introducing) > 0 {
		c.introduce()
	}
	for range 2000 {
		synctest.Wait()
		for _, p := range c.log.Drain() {
			c.transit = append(c.transit, transit{p, false})
		}
		for len(c.transit) > 0 {
			c.commitOne()
		}
		for c.applied < len(c.committed) {
			c.applyOne()
		}
		if c.pending() == 0 {
			return
		}
		enginetest.Pass(10 * time.Millisecond)
	}
	c.t.Fatalf("%d calls never got an outcome", c.pending())
}

func (c *chaos) pending() (n int) {
	for _, call := range c.calls {
		select {
		case <-call.call.Done:
		default:
			n++
		}
	}
	return n
}

// check compares what callers were told with what was committed.
func (c *chaos) check() {
	times := make(map[string]int)
	last := make(map[int]int)
	for _, path := range c.truth.applied {
		times[path]++
		var caller, i int
		fmt.Sscanf(path, "/%d/%d", &caller, &i)
		if before, ok := last[caller]; ok && i <= before {
			c.t.Errorf("caller %d: call %d was applied after call %d", caller, i, before)
		}
		last[caller] = i
	}
	for _, call := range c.calls {
		c.checkOutcome(call.path, call.call.Err, times[call.path])
		if call.gone {
			c.checkOutcome(call.path, call.told, times[call.path])
		}
	}
}

func (c *chaos) checkOutcome(path string, told error, times int) {
	want := 0 // certainly not applied
	switch {
	case told == nil:
		want = 1
	case errors.Is(told, ErrUnknownOutcome):
		want = min(times, 1)
	}
	if times != want {
		c.t.Errorf("call %s: its caller was told %v, and it was applied %d times", path, told, times)
	}
}

// The log loses, repeats and refuses proposals, and leaders come and go. Every caller is told the
// truth. (dragonboat#264: a proposal that was lost on its way to the leader ended by a timeout,
// which says nothing.)
func TestOutcomesAreTrueOnAnUnreliableLog(t *testing.T) {
	applied := 0
	for _, seed := range enginetest.Seeds(t, 60) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed)
				for range 1000 {
					c.step()
				}
				c.deliverAll()
				c.check()
				applied += len(c.truth.applied) // a single seed may lose everything
			})
		})
	}
	if applied == 0 {
		t.Error("nothing was applied")
	}
}
