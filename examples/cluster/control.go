package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A status is what a member reports about itself.
type status struct {
	Member     embed.MemberID      `json:"member"`
	Members    []embed.Member      `json:"members"`
	Shards     []embed.ShardStatus `json:"shards"`
	Works      bool                `json:"works"` // it has joined the pool
	Dispatches bool                `json:"dispatches"`
	Done       int                 `json:"done"` // orders recorded, as its replica shows
}

var errNoSession = errors.New("the member has no session at the moment")

// routes returns the control: what the parent may ask a member.
func (c *child) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /status", answer(c.status))
	mux.HandleFunc("POST /probe", answer(c.probe))
	mux.HandleFunc("POST /contend", answer(c.contend))
	mux.HandleFunc("POST /stop", answer(func(ctx context.Context, _ bool) (held, error) { return c.brake.stop(ctx) }))
	mux.HandleFunc("POST /release", answer(func(context.Context, bool) (bool, error) { c.brake.release(); return true, nil }))
	mux.HandleFunc("POST /leave", answer(func(context.Context, bool) (bool, error) { c.leaves.Store(true); c.end(); return true, nil }))
	return mux
}

func (c *child) status(ctx context.Context, _ bool) (status, error) {
	node := c.node.Status()
	st := status{Member: node.Member, Members: c.node.Members(), Shards: node.Shards, Dispatches: c.dispatches.Load()}
	s := c.session.Load()
	if s == nil {
		return st, nil
	}
	st.Works = true
	var err error
	st.Done, err = recorded(ctx, s)
	return st, err
}

// probe writes in every branch, and so on every shard that has work. It answers when the writes are
// acknowledged.
func (c *child) probe(ctx context.Context, _ bool) (bool, error) {
	s := c.session.Load()
	if s == nil {
		return false, errNoSession
	}
	for b := range branches {
		if _, err := s.Set(ctx, branchPath(b), nil, embed.AnyVersion); err != nil {
			return false, err
		}
	}
	return true, nil
}

// contend queues for the lock of an account, reports to the ledger that it acquired the lock, and
// releases it.
func (c *child) contend(ctx context.Context, account string) (bool, error) {
	s := c.session.Load()
	if s == nil {
		return false, errNoSession
	}
	hold, err := lock.NewMutex(s, lockPath(account)).Lock(ctx)
	if err != nil {
		return false, err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	e := entry{Process: c.process(), Token: hold.Token(), Order: order{Account: account}}
	defer c.desk.leave(ctx, e, hold)
	return c.desk.enter(hold.Context(), e)
}
