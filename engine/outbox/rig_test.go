package outbox

import (
	"errors"
	"fmt"
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

// An acceptor is the part of a replica that an outbox needs: it accepts batches in their place and
// completes their calls.
type acceptor struct {
	outbox  *Outbox
	table   *session.Table
	applied []string // the paths of the requests, in order
	outcome error    // for every call
}

func (a *acceptor) apply(c command.Command) session.Verdict {
	own := c.Origin.Member == a.outbox.Origin.Member && c.Origin.Start == a.outbox.Origin.Start
	if c.Kind == command.KindRegister {
		if _, err := a.table.Register(c.Origin); err == nil && own {
			a.outbox.BatchApplied(a.outbox.Oldest(RegisterSeq))
		}
		return session.Accepted
	}
	v := a.table.Accept(c.Origin.Member, c.Origin.Start, c.Seq)
	switch {
	case v == session.Gap && own:
		a.outbox.GapFound()
	case v == session.Accepted:
		var b *Batch
		if own {
			b = a.outbox.Oldest(c.Seq)
		}
		for i, r := range c.Requests {
			a.applied = append(a.applied, pathOf(r))
			a.outbox.Complete(b, i, nil, 0, a.outcome)
		}
		a.outbox.BatchApplied(b)
	}
	return v
}

func pathOf(r command.Request) string {
	if r.Kind == command.RequestRelease {
		return r.Path
	}
	return r.Ops[0].Path
}

// A stubNode is a Node that does nothing, unless a test says otherwise.
type stubNode struct {
	checkDeadlines func()
	proved         func(sent time.Duration)
	beatInterval   time.Duration
	appliedAtHome  func() tree.Zxid
}

func (n *stubNode) CheckDeadlines() {
	if n.checkDeadlines != nil {
		n.checkDeadlines()
	}
}

func (n *stubNode) Proved(sent, _ time.Duration) {
	if n.proved != nil {
		n.proved(sent)
	}
}

func (n *stubNode) AppliedAtHome() tree.Zxid {
	if n.appliedAtHome != nil {
		return n.appliedAtHome()
	}
	return 0
}

func (n *stubNode) BeatInterval() time.Duration                    { return n.beatInterval }
func (n *stubNode) Explain(_ replication.ShardID, err error) error { return err }

// A rig is an outbox in a bubble, on a log that the test controls.
type rig struct {
	*Outbox
	*acceptor
	t     *testing.T
	node  *stubNode
	log   *enginetest.Log
	clock *enginetest.Clock
}

// withOutbox runs fn in a bubble with a registered outbox. Another member leads.
func withOutbox(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, command.HomeShard)
		r.lead(enginetest.Other)
		r.applyAll()
		fn(t, r)
	})
}

func newRig(t *testing.T, shard replication.ShardID) *rig {
	r := &rig{t: t, node: &stubNode{}, log: &enginetest.Log{}, clock: enginetest.NewClock()}
	r.Outbox = New(shard, r.log, r.clock.Clock(), enginetest.Origin(), command.Rules{}, r.node)
	r.acceptor = &acceptor{outbox: r.Outbox, table: session.NewTable()}
	go r.Loop()
	t.Cleanup(func() { r.Outbox.Close(ErrClosed) })
	return r
}

// lead changes the leader and tells the outbox.
func (r *rig) lead(m replication.MemberID) {
	r.log.Elect(m)
	r.LeaderChanged()
	synctest.Wait()
}

// apply delivers proposals in order.
func (r *rig) apply(ps ...*enginetest.Proposal) {
	for _, p := range ps {
		r.acceptor.apply(enginetest.Decode(r.t, p.Cmd))
	}
	synctest.Wait()
}

// applyAll delivers proposals until none is left.
func (r *rig) applyAll() {
	synctest.Wait()
	for {
		ps := r.log.Drain()
		if len(ps) == 0 {
			return
		}
		r.apply(ps...)
	}
}

// knownOwner returns a session that the shard knows.
func knownOwner(remote bool) *Owner {
	s := NewOwner(1, remote)
	s.SetKnown(command.HomeShard)
	return s
}

func txnCall(s *Owner, path string) *Call {
	return NewCall(s, &command.Request{Kind: command.RequestTxn, Session: 1, Ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
}

func endCall(path string) *Call { return releaseCall(nil, path) }

func releaseCall(s *Owner, path string) *Call {
	return NewCall(s, &command.Request{Kind: command.RequestRelease, Session: 1, Path: path, Czxid: 1})
}

// send submits a call that must be accepted.
func (r *rig) send(path string) *Call {
	r.t.Helper()
	return r.sendOf(nil, path)
}

func (r *rig) sendOf(s *Owner, path string) *Call {
	r.t.Helper()
	c := txnCall(s, path)
	if _, err := r.Submit(c); err != nil {
		r.t.Fatalf("submit %s: %v", path, err)
	}
	return c
}

func (r *rig) sendMany(n int, prefix string) []*Call {
	var calls []*Call
	for i := range n {
		calls = append(calls, r.send(fmt.Sprintf("/%s%d", prefix, i)))
	}
	return calls
}

// want compares what was proposed since the last Drain. Each batch is written as in describe.
func (r *rig) want(batches ...string) []*enginetest.Proposal {
	r.t.Helper()
	synctest.Wait()
	ps := r.log.Drain()
	var got []string
	for _, p := range ps {
		got = append(got, describe(enginetest.Decode(r.t, p.Cmd)))
	}
	if !slices.Equal(got, batches) {
		r.t.Fatalf("proposed %q, want %q", got, batches)
	}
	return ps
}

// describe writes a batch as its seq and its paths: "2: /a /b".
func describe(c command.Command) string {
	if c.Kind == command.KindRegister {
		return "register"
	}
	s := fmt.Sprintf("%d:", c.Seq)
	for _, q := range c.Requests {
		s += " " + pathOf(q)
	}
	return s
}

func outcomeOf(c *Call) error {
	select {
	case <-c.Done:
		return c.Err
	default:
		return errors.New("waiting")
	}
}

func (r *rig) wantOutcome(c *Call, want error) {
	r.t.Helper()
	synctest.Wait()
	if got := outcomeOf(c); !errors.Is(got, want) {
		r.t.Fatalf("outcome %v, want %v", got, want)
	}
}

// errTestEnd is the reason when a test ends a call or an outbox.
var errTestEnd = errors.New("ended by the test")
