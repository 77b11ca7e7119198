package admin

import (
	"context"
	"net/http"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// An order is the body of an operator's request. Each has a reason, for the log.
type order struct {
	Reason    string         `json:"reason"`
	Path      string         `json:"path,omitempty"`
	Contender string         `json:"contender,omitempty"`
	Session   string         `json:"session,omitempty"`
	Shard     int            `json:"shard,omitempty"`
	To        embed.MemberID `json:"to,omitempty"`
}

// order reads the body. Only some of its keys belong to a request; wants are those that do.
func (c *call) order(wants order) (o order, err error) {
	if err := c.object(&o); err != nil {
		return o, err
	}
	if o.Reason == "" {
		return o, badRequest("the body lacks a reason, for the log")
	}
	for _, k := range []struct {
		name        string
		has, wanted bool
	}{
		{"path", o.Path != "", wants.Path != ""},
		{"contender", o.Contender != "", wants.Contender != ""},
		{"session", o.Session != "", wants.Session != ""},
		{"shard", o.Shard != 0, wants.Shard != 0},
		{"to", o.To != 0, wants.To != 0},
	} {
		if k.has != k.wanted {
			return o, badRequest("the body must have %q: %v", k.name, k.wanted)
		}
	}
	c.path = o.Path + o.Contender // it has one of them at most
	if err := c.mayChange(c.path); err != nil {
		return o, err
	}
	return o, c.setReason(o.Reason)
}

// ordered answers an order that was carried out.
func (c *call) ordered(status int) error {
	c.done()
	return c.answer(status, map[string]string{"outcome": applied})
}

// revoke asks the holders of a lock to give it up.
func (c *call) revoke() error {
	o, err := c.order(order{Path: "wanted"})
	if err != nil {
		return err
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		if _, err := s.Sync(ctx, o.Path); err != nil { // else a holder may not be shown yet
			return err
		}
		holders, err := lock.Holders(ctx, s, o.Path)
		if err != nil {
			return err
		}
		holders = slices.DeleteFunc(holders, func(h lock.Contender) bool { return !contends(h) })
		if len(holders) == 0 {
			return &refusal{http.StatusNotFound, "nobody holds a lock on " + o.Path}
		}
		if !slices.ContainsFunc(holders, asked) {
			return &refusal{http.StatusConflict, "who leads an election cannot be asked to give it up"}
		}
		if err := lock.Revoke(ctx, s, o.Path); err != nil {
			if len(holders) > 1 { // some may have been asked
				c.w.Header().Set(outcomeHeader, unknown)
			}
			return err
		}
		return c.ordered(http.StatusOK)
	})
}

// contends reports whether a holder is an ephemeral of a client's, as far as it may be read. Others
// only have a name like a contender's.
func contends(h lock.Contender) bool {
	_, name := queue.Split(h.Path)
	return queue.Word(name) != "" && (h.Session != 0 || h.Token == lock.Token{})
}

// asked reports whether lock.Revoke asks a holder.
func asked(h lock.Contender) bool {
	_, name := queue.Split(h.Path)
	return queue.Word(name) != queue.Latch.Word
}

// evict deletes a contender.
func (c *call) evict() error {
	o, err := c.order(order{Contender: "wanted"})
	if err != nil {
		return err
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		if err := lock.Evict(ctx, s, o.Contender); err != nil {
			return err
		}
		return c.ordered(http.StatusOK)
	})
}

// endSession ends the session of somebody else.
func (c *call) endSession() error {
	o, err := c.order(order{Session: "wanted"})
	if err != nil {
		return err
	}
	id, err := parseSession(o.Session)
	if err != nil {
		return err
	}
	c.session = id
	if err := c.h.parts.Engine.EndSession(c.r.Context(), id); err != nil {
		return err
	}
	return c.ordered(http.StatusOK)
}

// transfer asks the leader of a shard to transfer its leadership. Status says when it has.
func (c *call) transfer() error {
	o, err := c.order(order{Shard: 1, To: 1})
	if err != nil {
		return err
	}
	shards := len(c.h.node.Status().Shards)
	if o.Shard < 1 || o.Shard > shards {
		return badRequest("there is no shard %d: want 1 to %d", o.Shard, shards)
	}
	if !slices.ContainsFunc(c.h.node.Members(), func(m embed.Member) bool { return m.ID == o.To && m.Role == embed.Voter }) {
		return badRequest("member %d does not vote", o.To)
	}
	if err := c.h.node.TransferLeadership(o.Shard, o.To); err != nil {
		return err
	}
	return c.ordered(http.StatusAccepted)
}
