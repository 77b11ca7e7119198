package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// table returns the table of members as it is now. It is empty before the ensemble has one.
func (e *Engine) table() *session.MembersView { return e.home().Members() }

// self returns this member's id; zero while the node has yet to join.
func (e *Engine) self() MemberID { return MemberID(e.member.Load()) }

// Member returns the id of this member, or zero while the node has yet to join an ensemble.
func (e *Engine) Member() MemberID { return e.self() }

// memberLog returns a logger that names this member in each line. The id of a node that joins is
// known only later.
func (e *Engine) memberLog(to *slog.Logger) *slog.Logger {
	return slog.New(memberHandler{to.Handler(), e})
}

// A memberHandler adds the id of a node's member to each line, as soon as it has one.
type memberHandler struct {
	slog.Handler
	engine *Engine
}

func (h memberHandler) Handle(ctx context.Context, r slog.Record) error {
	if m := h.engine.self(); m != 0 {
		return h.Handler.WithAttrs([]slog.Attr{slog.Any("member", m)}).Handle(ctx, r)
	}
	return h.Handler.Handle(ctx, r)
}

func (h memberHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return memberHandler{h.Handler.WithAttrs(attrs), h.engine}
}

func (h memberHandler) WithGroup(name string) slog.Handler {
	return memberHandler{h.Handler.WithGroup(name), h.engine}
}

// A place is what does not change about a member.
type place struct {
	founders []MemberID // of its ensemble
	joined   bool       // it is none of them
	// Its lineage and those before it, as far as it knew at the start. It may not have applied them
	// yet: who joins may have to apply all that was before a recovery.
	lineage   session.Lineage
	ancestors []session.Lineage
}

// isAhead reports whether this member has yet to apply a recovery, if the home shard has a lineage so
// far. The lists of ancestors cannot tell: both may be as long as they get.
func (p *place) isAhead(applied session.Lineage) bool {
	return applied == (session.Lineage{}) || slices.Contains(p.ancestors, applied)
}

// founders returns who founded the ensemble, as far as this node knows. It waits for nobody. The
// list is the caller's.
func (e *Engine) founders() []MemberID {
	if p := e.place.Load(); p != nil {
		return slices.Clone(p.founders)
	}
	return e.cfg.memberIDs()
}

// memberIDs returns all members that some shard still has, this one included, sorted. Before the
// table of members is founded, they are the founders.
func (e *Engine) memberIDs() (ids []MemberID) {
	table := e.table()
	if table.Ensemble.Next == 0 {
		return e.founders()
	}
	for _, m := range table.List {
		if m.OutOf() < len(e.shards) {
			ids = append(ids, MemberID(m.ID))
		}
	}
	return ids
}

// voters returns the members that vote on a shard, sorted, as far as the table knows. Those that
// are to go do not count.
func (e *Engine) voters(id ShardID) (ids []MemberID) {
	table := e.table()
	if table.Ensemble.Next == 0 {
		return e.founders()
	}
	for _, m := range table.List {
		if m.Wish < session.Out && m.Votes(uint32(id)) {
			ids = append(ids, MemberID(m.ID))
		}
	}
	return ids
}

// peerIDs returns all members but this one.
func (e *Engine) peerIDs() (ids []uint64) {
	for _, m := range e.memberIDs() {
		if m != e.self() {
			ids = append(ids, uint64(m))
		}
	}
	return ids
}

// knows returns why nobody with this id may talk to this member, or nil. Who is out of some shards
// is let in: the others may need its vote. So is an id that the table does not have yet: elsewhere
// the table may have it already, and a leader that has just become a voter needs the vote of a member
// that lags.
func (e *Engine) knows(member uint64) *transport.Refusal {
	m := session.MemberID(member)
	table := e.table()
	rec, found := table.Find(m)
	switch {
	case found && rec.OutOf() < len(e.shards):
		return nil
	case found:
		return &transport.Refusal{Kind: transport.ErrRemoved, Text: fmt.Sprintf("member %d is out of the ensemble: %v", m, rec.Reason)}
	case table.Ensemble.Next > m:
		return &transport.Refusal{Kind: transport.ErrRemoved, Text: fmt.Sprintf("member %d is out of the ensemble, and forgotten", m)}
	}
	return nil
}

// isNews reports whether a member is one that the table does not have yet, and that is no founder.
func (e *Engine) isNews(m MemberID) bool {
	table := e.table()
	if table.Ensemble.Next > 0 {
		return session.MemberID(m) >= table.Ensemble.Next
	}
	return e.hasJoined() || !slices.Contains(e.founders(), m)
}

// hasJoined reports whether this member is no founder.
func (e *Engine) hasJoined() bool {
	p := e.place.Load()
	return p != nil && p.joined
}

// noteOwnPart records on which shards this member votes, for those who ask often.
func (e *Engine) noteOwnPart() {
	self := e.self()
	for _, r := range e.shards {
		now := e.isLearner(uint64(self), int(r.Shard)) || e.isNews(self) && e.hasJoined()
		if e.learner[r.Shard-1].Swap(now) == now {
			continue
		}
		part := session.Voter
		if now {
			part = session.Learner
		}
		e.log.Info("this member has another part", "shard", r.Shard, "part", part.String())
	}
}

// Learns reports whether this member does not vote on the home shard.
func (e *Engine) Learns() bool { return e.learner[command.HomeShard-1].Load() }

// isLearner reports whether a member does not vote on a shard, as far as the table knows.
func (e *Engine) isLearner(member uint64, shard int) bool {
	rec, found := e.table().Find(session.MemberID(member))
	return found && !rec.Votes(uint32(shard))
}

// present returns the members that are not to go. Before the table of members is founded, they are
// the founders.
func (e *Engine) present() (ids []session.MemberID) {
	table := e.table()
	if table.Ensemble.Next == 0 {
		ids = sessionIDs(e.founders())
		slices.Sort(ids)
	}
	for _, m := range table.List {
		if m.Wish < session.Out {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// noteMembers notes who has joined or is gone since the table had these members. It returns those
// that it has now. Both lists are sorted.
func (e *Engine) noteMembers(before []session.MemberID) []session.MemberID {
	now := e.present()
	for _, c := range []struct {
		kind     health.Kind
		all, old []session.MemberID
	}{{health.MemberJoined, now, before}, {health.MemberGone, before, now}} {
		for _, m := range c.all {
			if _, had := slices.BinarySearch(c.old, m); !had {
				e.recent.Note(health.Occurrence{Kind: c.kind, Member: MemberID(m)})
			}
		}
	}
	return now
}
