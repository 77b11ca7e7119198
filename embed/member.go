package embed

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/lines"
	"github.com/vivarium-go/vivarium/session"
)

// A Role is what a member is in the ensemble.
type Role string

// The roles. A member goes from Learner to Voter to Out, and never back.
const (
	Learner Role = "learner" // has all data and serves; does not vote
	Voter   Role = "voter"
	Out     Role = "out" // takes no part any more
)

// Member is what a node knows of a member of its ensemble.
type Member struct {
	ID      MemberID
	Name    string // Config.Name, or else the address; empty for founders that have said neither
	Zone    string // Config.Zone
	Address string // where the others reach it, as it said last
	Client  string // where clients reach its gateway, if one announces that: gateway.Config.Advertise
	// Role is what the member is on the first shard, which has the sessions. On further shards it
	// may be one step behind for a moment.
	Role     Role
	Observer bool // it never votes
	// Leaving says why the member is to go, or has gone: "left", "removed", "replaced", "silent",
	// "never came" or "lost". Empty means that it stays.
	Leaving string
	Since   time.Time // when it joined, or when Leaving was decided; zero for founders
	// Answers says that its replica answered lately, and Behind how many log entries it lacks. Only
	// the node that leads the first shard knows both; on others they are zero.
	Answers bool
	Behind  uint64
}

// Members returns the members of the ensemble as this node knows them, sorted by id. Without a
// quorum the list may be old. It works at any time.
func (n *Node) Members() []Member { return membersOf(n.in().Engine.Members()) }

func membersOf(known []engine.Member) (list []Member) {
	for _, m := range known {
		d := Member{ID: MemberID(m.ID), Name: m.Name, Zone: m.Zone, Address: m.Address, Client: m.Client, Role: roleOf(m), Observer: m.Observer,
			Answers: m.Answers, Behind: m.Behind}
		if m.Reason != 0 {
			d.Leaving = m.Reason.String()
		}
		if m.Since != 0 {
			d.Since = time.UnixMilli(m.Since)
		}
		list = append(list, d)
	}
	return list
}

// AskMembers asks an ensemble for its members, from a process that is none of them. It asks at the
// addresses in cfg.Join and cfg.Members, with cfg.TLS, and goes on to the leader, which knows who
// answers. Nothing else of cfg counts.
//
// Errors: ErrUnavailable if no leader answers in time. Then the list is what some member knows, and
// Answers and Behind are zero; without a member that answers it is empty.
func AskMembers(ctx context.Context, cfg Config) ([]Member, error) {
	c, log, err := cfg.visit()
	defer log.Flush(closeLeast)
	if err != nil {
		return nil, opError("ask members", "", err)
	}
	list, err := c.Members(ctx)
	return membersOf(list), opError("ask members", "", err)
}

// AskRemoval does what Node.RemoveMember does, from a process that is no member. It asks as
// AskMembers does. If the members are not of cfg.Ensemble, it changes nothing and says so. Its other
// errors are those of RemoveMember.
//
// Whoever can join an ensemble can remove members from it. With TLS that takes a member's
// certificate. Without TLS it takes the way to a member's port.
func AskRemoval(ctx context.Context, cfg Config, id MemberID) error {
	c, log, err := cfg.visit()
	defer log.Flush(closeLeast)
	if err == nil {
		err = c.Remove(ctx, id)
	}
	return opError("ask removal", "", err)
}

// visit completes and checks what AskMembers, AskRemoval and AskBackup need, and returns their log.
func (c Config) visit() (engine.Visit, *lines.Queue, error) {
	p, log := &problems{}, newLines(c)
	v := engine.Visit{Seeds: slices.Concat(c.Join, slices.Sorted(maps.Values(c.Members))), Ensemble: c.Ensemble,
		Tick: or(c.Tick, DefaultTick), Levels: engine.Levels, Logger: log.Logger()}
	if len(v.Seeds) == 0 {
		p.add("Join and Members are empty: name a member that can be asked")
	}
	if c.TLS != nil {
		v.TLS = c.TLS.certificates("", p)
		v.PlainToo = c.TLS.Migrate
	}
	return v, log, errors.Join(p.list...)
}

func roleOf(m engine.Member) Role {
	switch {
	case m.OutOf() > 0:
		return Out
	case m.Votes(1):
		return Voter
	case m.Wish == session.Out && len(m.Places) == 0:
		return Out
	}
	return Learner
}

// RemoveMember takes a member out of the ensemble for good, wherever it runs or does not run. When
// it returns nil, the member takes no part any more. Its directory is never let in again: to come
// back, the process needs an empty one. Nobody's session ends sooner for it than by its timeout.
//
// Errors: ErrUnsafe if the voters that store an entry now would be no quorum without it, or if several
// shards could not take it out without its vote, and nothing was changed; ErrUnavailable without a
// quorum; ErrClosed, ErrFailed; an error for a member that does not exist. After ErrUnknownOutcome the
// removal may be recorded, and then goes on, as Members shows: ctx or the node ended after it was
// proposed, or a leader refused it when the answer to an earlier question was lost.
func (n *Node) RemoveMember(ctx context.Context, id MemberID) error {
	return opError("remove member", "", n.in().Engine.Petitioner.Remove(ctx, id))
}

// Leave takes this member out of the ensemble for good, and closes the node: it closes the
// sessions, transfers the leaderships, and waits until no shard has the member any more. With
// Config.Ephemeral, Shutdown does the same. A later Start on the directory joins as a new member.
//
// Once the wish is recorded, the ensemble carries it out. From the first shard that it is out of, the
// node serves nobody, and its vote counts until it is out of all. If ctx ends before that, Leave waits
// three longest elections more, because the others may need the vote. Then it closes the node and
// returns ctx's error. If the node ends before the member is out, the error says so.
// Without a deadline in ctx, Config.RequestTimeout bounds it.
//
// Errors with which nothing was changed, and the node goes on: ErrUnsafe if the voters that store an
// entry now would be no quorum without it, ErrUnavailable without a quorum. The only voter waits
// within ctx for a learner that answers, until that can vote in its place. After ErrUnknownOutcome
// the node goes on too, and the wish may be recorded later. Call Leave again: until then the node
// stays for its sessions, and once it has none, it fails with ErrRemoved.
func (n *Node) Leave(ctx context.Context) error {
	err := n.in().Engine.Leave(ctx)
	if isOver(n.Done()) {
		n.in().CloseOutlets()
	}
	return opError("leave", "", err)
}

func isOver(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
