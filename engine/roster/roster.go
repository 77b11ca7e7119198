package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// Errors of nodes that are no members.
var (
	// ErrJoining says that this node has yet to join an ensemble, or to found one with others.
	ErrJoining = errors.New("this node has yet to join the ensemble")
	// ErrRemoved says that this member is out of the ensemble for good.
	ErrRemoved = errors.New("this member is out of the ensemble")
	// ErrSuperseded says that a forced recovery has gone on without this member.
	ErrSuperseded = errors.New("a forced recovery has ended this member's lineage")
)

// MemberID names a member of the ensemble.
type MemberID = replication.MemberID

// ShardID names a shard, from 1.
type ShardID = replication.ShardID

// A Roster is what one node knows of who is in its ensemble. Its methods wait for nobody, and the
// lists that they return are the caller's.
type Roster struct {
	Identity *datadir.IdentityFile
	Log      *slog.Logger

	configured map[MemberID]string // the founders by Config.Members, and where they are
	shards     []*replica.Replica  // set by Load
	book       *book

	// Who this node is. Set by Become.
	self  atomic.Uint64
	place atomic.Pointer[place] // nil before
	// learner says for each shard that this member does not vote there, as far as it knows.
	learner [replication.MaxShards]atomic.Bool
}

// New returns the roster of a node, whose replicas it gets with Load.
func New(identity *datadir.IdentityFile, configured map[MemberID]string, log *slog.Logger) *Roster {
	r := &Roster{Identity: identity, configured: configured}
	r.Log = slog.New(memberHandler{log.Handler(), r})
	r.book = newBook(configured, func(m MemberID) string {
		rec, _ := r.Table().Find(session.MemberID(m))
		return rec.Address
	})
	return r
}

// Load gives the replicas of all shards, whose table of members counts.
func (r *Roster) Load(shards []*replica.Replica) { r.shards = shards }

// Claim says which member this node is, by its directory. The log names it from then on.
func (r *Roster) Claim(m MemberID) { r.self.Store(uint64(m)) }

// Become says who this node is for good.
func (r *Roster) Become(me replication.Identity) {
	p := &place{founders: me.Founders, joined: me.Joined, lineage: me.Lineage}
	for _, l := range me.Ancestors {
		p.ancestors = append(p.ancestors, l)
	}
	r.place.Store(p)
	r.Claim(me.Member)
}

// Self returns this member's id; zero while the node has yet to join.
func (r *Roster) Self() MemberID { return MemberID(r.self.Load()) }

func (r *Roster) home() *replica.Replica { return r.shards[command.HomeShard-1] }

// Table returns the table of members as it is now. It is empty before the ensemble has one.
func (r *Roster) Table() *session.MembersView { return r.home().Members() }

// A memberHandler adds the id of a node's member to each line, as soon as it has one.
type memberHandler struct {
	slog.Handler
	roster *Roster
}

func (h memberHandler) Handle(ctx context.Context, rec slog.Record) error {
	if m := h.roster.Self(); m != 0 {
		return h.Handler.WithAttrs([]slog.Attr{slog.Any("member", m)}).Handle(ctx, rec)
	}
	return h.Handler.Handle(ctx, rec)
}

func (h memberHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return memberHandler{h.Handler.WithAttrs(attrs), h.roster}
}

func (h memberHandler) WithGroup(name string) slog.Handler {
	return memberHandler{h.Handler.WithGroup(name), h.roster}
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

// Founders returns who founded the ensemble, as far as this node knows. It waits for nobody. The
// list is the caller's.
func (r *Roster) Founders() []MemberID {
	if p := r.place.Load(); p != nil {
		return slices.Clone(p.founders)
	}
	return slices.Sorted(maps.Keys(r.configured))
}

// MemberIDs returns all members that some shard still has, this one included, sorted. Before the
// table of members is founded, they are the founders.
func (r *Roster) MemberIDs() (ids []MemberID) {
	table := r.Table()
	if table.Ensemble.Next == 0 {
		return r.Founders()
	}
	for _, m := range table.List {
		if m.OutOf() < len(r.shards) {
			ids = append(ids, MemberID(m.ID))
		}
	}
	return ids
}

// Voters returns the members that vote on a shard, sorted, as far as the table knows. Those that
// are to go do not count.
func (r *Roster) Voters(id ShardID) (ids []MemberID) {
	table := r.Table()
	if table.Ensemble.Next == 0 {
		return r.Founders()
	}
	for _, m := range table.List {
		if m.Wish < session.Out && m.Votes(uint32(id)) {
			ids = append(ids, MemberID(m.ID))
		}
	}
	return ids
}

// PeerIDs returns all members but this one.
func (r *Roster) PeerIDs() (ids []uint64) {
	for _, m := range r.MemberIDs() {
		if m != r.Self() {
			ids = append(ids, uint64(m))
		}
	}
	return ids
}

// Knows returns why nobody with this id may talk to this member, or nil. Who is out of some shards
// is let in: the others may need its vote. So is an id that the table does not have yet: elsewhere
// the table may have it already, and a leader that has just become a voter needs the vote of a member
// that lags.
func (r *Roster) Knows(member uint64) *transport.Refusal {
	m := session.MemberID(member)
	table := r.Table()
	rec, found := table.Find(m)
	switch {
	case found && rec.OutOf() < len(r.shards):
		return nil
	case found:
		return &transport.Refusal{Kind: transport.ErrRemoved, Text: fmt.Sprintf("member %d is out of the ensemble: %v", m, rec.Reason)}
	case table.Ensemble.Next > m:
		return &transport.Refusal{Kind: transport.ErrRemoved, Text: fmt.Sprintf("member %d is out of the ensemble, and forgotten", m)}
	}
	return nil
}

// IsNews reports whether a member is one that the table does not have yet, and that is no founder.
func (r *Roster) IsNews(m MemberID) bool {
	table := r.Table()
	if table.Ensemble.Next > 0 {
		return session.MemberID(m) >= table.Ensemble.Next
	}
	return r.HasJoined() || !slices.Contains(r.Founders(), m)
}

// HasJoined reports whether this member is no founder.
func (r *Roster) HasJoined() bool {
	p := r.place.Load()
	return p != nil && p.joined
}

// NoteOwnPart records on which shards this member votes, for those who ask often.
func (r *Roster) NoteOwnPart() {
	self := r.Self()
	for i := range r.shards {
		shard := ShardID(i + 1)
		now := r.IsLearner(uint64(self), int(shard)) || r.IsNews(self) && r.HasJoined()
		if r.learner[i].Swap(now) == now {
			continue
		}
		part := session.Voter
		if now {
			part = session.Learner
		}
		r.Log.Info("this member has another part", "shard", shard, "part", part.String())
	}
}

// Learns reports whether this member does not vote on a shard.
func (r *Roster) Learns(shard ShardID) bool { return r.learner[shard-1].Load() }

// IsLearner reports whether a member does not vote on a shard, as far as the table knows.
func (r *Roster) IsLearner(member uint64, shard int) bool {
	rec, found := r.Table().Find(session.MemberID(member))
	return found && !rec.Votes(uint32(shard))
}

// Present returns the members that are not to go. Before the table of members is founded, they are
// the founders.
func (r *Roster) Present() (ids []session.MemberID) {
	table := r.Table()
	if table.Ensemble.Next == 0 {
		ids = SessionIDs(r.Founders())
		slices.Sort(ids)
	}
	for _, m := range table.List {
		if m.Wish < session.Out {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Goes reports whether a member is to be out.
func (r *Roster) Goes(m MemberID) bool {
	rec, _ := r.Table().Find(session.MemberID(m))
	return rec.Wish == session.Out
}

// Others returns the voters of a shard but this one, in the order of their ids.
func (r *Roster) Others(id ShardID) []MemberID {
	return slices.DeleteFunc(r.Voters(id), func(m MemberID) bool { return m == r.Self() })
}

// Other returns another voter of a shard. Successive values of nth go through all of them. It
// returns zero if there is none.
func (r *Roster) Other(id ShardID, nth int) MemberID {
	if all := r.Others(id); len(all) > 0 {
		return all[nth%len(all)]
	}
	return 0
}

// Lineage returns the ensemble's lineage; zero if this node does not know it. The identity file has
// it before the home shard is loaded.
func (r *Roster) Lineage() session.Lineage {
	l := r.home().Lineage()
	if p := r.place.Load(); p != nil && slices.Contains(p.ancestors, l) {
		return p.lineage
	}
	if l != (session.Lineage{}) {
		return l
	}
	return r.Identity.Now().Lineage
}

// Ancestors returns the lineages that forced recoveries of this ensemble have ended.
func (r *Roster) Ancestors() []session.Lineage {
	now := r.Table().Ensemble
	if p := r.place.Load(); p != nil && p.isAhead(now.Lineage) {
		return p.ancestors
	}
	return now.Ancestors
}

// DirectoryOf returns the directory under which the ensemble knows a member, or this node alone.
func (r *Roster) DirectoryOf(m MemberID) ([16]byte, bool) {
	if o, ok := r.home().Origin(session.MemberID(m)); ok && o.Start > 0 {
		return o.Directory, true
	}
	if rec, ok := r.Table().Find(session.MemberID(m)); ok && rec.Directory != ([16]byte{}) {
		return rec.Directory, true
	}
	known, ok := r.Identity.Now().Peers[m]
	return known, ok
}

// ReasonOut returns why this member is to be out by its table, or else what it says if that is not
// known here.
func (r *Roster) ReasonOut(unknown string) string {
	if rec, ok := r.Table().Find(session.MemberID(r.Self())); ok && rec.Wish == session.Out {
		return rec.Reason.String()
	}
	return unknown
}

// Removed is why a node fails whose member is out.
func (r *Roster) Removed(how string) error {
	return fmt.Errorf("%w: member %d (%s): %s", ErrRemoved, r.Self(), r.ReasonOut(ToldByOthers), how)
}

// ToldByOthers is why a member is out if its own table does not say.
const ToldByOthers = "told by others"

// RecordOut records in the identity file that this member is out for good.
func (r *Roster) RecordOut(reason string) {
	_ = r.Identity.Amend(func(id *replication.Identity) bool { id.Out = reason; return true })
}

// SessionIDs returns ids in the type of package session.
func SessionIDs(ids []MemberID) []session.MemberID {
	list := make([]session.MemberID, len(ids))
	for i, m := range ids {
		list[i] = session.MemberID(m)
	}
	return list
}

// Met records where a member says it is reached, after a handshake with it.
func (r *Roster) Met(m MemberID, address string) { r.book.met(m, address) }

// NextAddress returns where to dial a member next; empty if nothing is known. It goes through all that is
// known, the newest first.
func (r *Roster) NextAddress(m MemberID) string { return r.book.address(m) }

// Address returns the address of a member that is most likely right.
func (r *Roster) Address(m MemberID) string { return r.book.newest(m) }
