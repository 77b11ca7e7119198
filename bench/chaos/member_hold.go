//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// held is what a lock.Hold and an election.Leadership have in common.
type held interface {
	Token() lock.Token
	Context() context.Context
	Err() error
}

const (
	// questionEvery is the pause between two questions.
	questionEvery = 200 * time.Microsecond
	// accessEvery is how often what the hold protects is used. The parent is told as it happens, so that it also knows of
	// holders that are killed.
	accessEvery = 10 * time.Millisecond
)

// guardedBy is the znode that a lock or an election protects, in the same area.
func guardedBy(path string) string {
	return areaOf(path) + "/guarded-by" + strings.ReplaceAll(inArea(path), "/", "-")
}

// A holder uses one hold and tells what it sees.
type holder struct {
	m     *member
	s     *embed.Session
	q     *request
	r     *reply
	h     held
	guard func() embed.Op
	sent  []*embed.Pending // guarded writes, in the order of r.Guarded
}

// use asks the hold until it is lost or its time is over, calls work now and then, and notes the last question that was
// answered "still held". It does not let go while a write has no outcome: a holder that is cut off clings to what it has.
func (h *holder) use(work func()) {
	h.r.Token, h.r.At = h.h.Token(), now()
	h.q.say(*h.r, true)
	h.write()
	last := h.r.At
	for at := now(); (at-h.r.At < h.q.Length || h.waits()) && h.m.rest.Err() == nil; at = now() {
		err := h.h.Err()
		if err != nil {
			if h.h.Context().Err() == nil {
				h.r.Wrong = fmt.Sprintf("Err of the hold with token %v is %v and its Context goes on", h.h.Token(), err)
			}
			h.r.Data = err.Error()
			return
		}
		h.r.Until = at
		if at-last >= accessEvery {
			last = at
			h.q.say(*h.r, true)
			if at-h.r.At < h.q.Length {
				h.write()
				work()
			}
		}
		time.Sleep(questionEvery)
	}
}

// write sends a guarded write and does not wait for it: it may still be on its way when the hold is lost.
func (h *holder) write() {
	data := fmt.Sprintf("%s.%d", h.q.Data, len(h.sent))
	ended := h.h.Err() != nil
	h.sent = append(h.sent, h.s.Submit(context.Background(), h.guard(), embed.OpSet(guardedBy(h.q.Path), []byte(data), embed.AnyVersion)))
	h.r.Guarded = append(h.r.Guarded, guarded{Data: data, Ended: ended})
}

// waits reports whether the newest write has no outcome yet.
func (h *holder) waits() bool {
	select {
	case <-h.sent[len(h.sent)-1].Done():
		return false
	default:
		return true
	}
}

// settle waits for the outcomes of the guarded writes.
func (h *holder) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	for i, p := range h.sent {
		g := &h.r.Guarded[i]
		g.Outcome = unknown
		select {
		case <-p.Done():
			results, err := p.Result()
			if g.Outcome = outcomeOf(err); err == nil {
				g.Mzxid = results[1].Stat.Mzxid
			}
		case <-ctx.Done():
		}
	}
}

// untilRest bounds what waits for others.
func (m *member) untilRest(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(m.rest, cancel)
	return ctx, cancel
}

// section takes a lock, uses what it protects and releases it. What is written after that must be refused.
func (m *member) section(ctx context.Context, s *embed.Session, q *request, r *reply) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	h, err := lock.NewMutex(s, q.Path).Lock(ctx)
	if err != nil {
		return err
	}
	u := &holder{m: m, s: s, q: q, r: r, h: h, guard: func() embed.Op { return lock.Guard(h) }}
	u.use(func() {})
	_ = h.Release() // if it cannot be sent the node goes on trying
	u.write()
	u.settle()
	return nil
}

// lead campaigns, publishes a few values and resigns, as section does.
func (m *member) lead(ctx context.Context, s *embed.Session, q *request, r *reply) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	l, err := election.New(s, q.Path).Campaign(ctx, []byte(q.Data+".0"))
	if err != nil {
		return err
	}
	u := &holder{m: m, s: s, q: q, r: r, h: l, guard: func() embed.Op { return election.Guard(l) }}
	n := 0
	u.use(func() {
		if n++; n%5 == 0 {
			bound, cancel := context.WithTimeout(ctx, accessEvery)
			defer cancel()
			_ = l.Proclaim(bound, fmt.Appendf(nil, "%s.%d", q.Data, n))
		}
	})
	_ = l.Resign() // as Release
	u.write()
	u.settle()
	return nil
}

// observe reports what an observer sees: a token and a value each. It ends with the session, or when the member is to rest.
func (m *member) observe(ctx context.Context, s *embed.Session, q *request) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	for l, err := range election.New(s, q.Path).Observe(ctx) {
		if err != nil {
			return err
		}
		q.say(reply{Token: l.Token, Data: string(l.Value)}, true)
	}
	return nil
}
