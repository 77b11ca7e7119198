package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"
)

// An acceptor is the part of a machine that a pipeline lives by: it accepts batches in their place and answers them.
type acceptor struct {
	pipe    *pipeline
	table   *session.Table
	applied []string // the paths of the requests, in order
	answer  error    // of every request
}

func (a *acceptor) apply(c command.Command) session.Verdict {
	own := c.Origin.Member == a.pipe.register.Member && c.Origin.Start == a.pipe.register.Start
	if c.Kind == command.KindRegister {
		if _, err := a.table.Register(c.Origin); err == nil && own {
			a.pipe.done(a.pipe.head(0))
		}
		return session.Accepted
	}
	v := a.table.Accept(c.Origin.Member, c.Origin.Start, c.Origin.LastSeq)
	switch {
	case v == session.Gap && own:
		a.pipe.refused()
	case v == session.Accepted:
		var b *batch
		if own {
			b = a.pipe.head(c.Origin.LastSeq)
		}
		for i, r := range c.Requests {
			a.applied = append(a.applied, pathOf(r))
			a.pipe.complete(b, i, nil, 0, a.answer)
		}
		a.pipe.done(b)
	}
	return v
}

func pathOf(r command.Request) string {
	if r.Kind == command.RequestRelease {
		return r.Path
	}
	return r.Ops[0].Path
}

// A pipeRig is a pipeline on a log that the test holds, in a bubble.
type pipeRig struct {
	*pipeline
	*acceptor
	t     *testing.T
	log   *fakeLog
	clock *fakeClock
}

// withPipeline runs fn in a bubble with a registered pipeline; another member leads.
func withPipeline(t *testing.T, fn func(t *testing.T, r *pipeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newPipeRig(t)
		r.lead(otherMember)
		r.applyAll()
		fn(t, r)
	})
}

func newPipeRig(t *testing.T) *pipeRig {
	r := &pipeRig{t: t, log: &fakeLog{}, clock: newFakeClock()}
	r.pipeline = newPipeline(command.HomeShard, r.log, r.clock.clock(), testOrigin())
	r.acceptor = &acceptor{pipe: r.pipeline, table: session.NewTable()}
	go r.loop()
	t.Cleanup(func() { r.pipeline.close(ErrClosed) })
	return r
}

// lead changes the leader and tells the pipeline.
func (r *pipeRig) lead(m replication.MemberID) {
	r.log.elect(m)
	r.leaderChanged()
	synctest.Wait()
}

// apply delivers proposals in order.
func (r *pipeRig) apply(ps ...*fakeProposal) {
	for _, p := range ps {
		r.acceptor.apply(mustDecode(r.t, p.cmd))
	}
	synctest.Wait()
}

// applyAll delivers what is proposed until nothing more is.
func (r *pipeRig) applyAll() {
	synctest.Wait()
	for {
		ps := r.log.take()
		if len(ps) == 0 {
			return
		}
		r.apply(ps...)
	}
}

func txnWaiter(s *Session, path string) *waiter {
	return newWaiter(s, &command.Request{Kind: command.RequestTxn, Session: 1, Ops: []tree.Op{{Kind: tree.KindDelete, Path: path}}})
}

func endWaiter(path string) *waiter {
	return newWaiter(nil, &command.Request{Kind: command.RequestRelease, Session: 1, Path: path, Czxid: 1})
}

// send submits a request that must be taken.
func (r *pipeRig) send(path string) *waiter {
	r.t.Helper()
	w := txnWaiter(nil, path)
	if err := r.submit(w); err != nil {
		r.t.Fatalf("submit %s: %v", path, err)
	}
	return w
}

func (r *pipeRig) sendMany(n int, prefix string) []*waiter {
	var ws []*waiter
	for i := range n {
		ws = append(ws, r.send(fmt.Sprintf("/%s%d", prefix, i)))
	}
	return ws
}

// want checks what was proposed since the last look: for each batch its seq and the paths in it.
func (r *pipeRig) want(batches ...string) []*fakeProposal {
	r.t.Helper()
	synctest.Wait()
	ps := r.log.take()
	var got []string
	for _, p := range ps {
		got = append(got, describe(mustDecode(r.t, p.cmd)))
	}
	if !slices.Equal(got, batches) {
		r.t.Fatalf("proposed %q, want %q", got, batches)
	}
	return ps
}

// describe is a batch as these tests write it: "2: /a /b".
func describe(c command.Command) string {
	if c.Kind == command.KindRegister {
		return "register"
	}
	s := fmt.Sprintf("%d:", c.Origin.LastSeq)
	for _, q := range c.Requests {
		s += " " + pathOf(q)
	}
	return s
}

func outcome(w *waiter) error {
	select {
	case <-w.done:
		return w.err
	default:
		return errors.New("waiting")
	}
}

func (r *pipeRig) wantOutcome(w *waiter, want error) {
	r.t.Helper()
	synctest.Wait()
	if got := outcome(w); !errors.Is(got, want) {
		r.t.Fatalf("outcome %v, want %v", got, want)
	}
}
