package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
)

// A Membership says who takes part in a shard.
type Membership struct {
	// Change is the index of the newest change in the log. The next change must name it.
	Change   uint64
	Voters   []MemberID // sorted, as all lists
	Learners []MemberID // have the log and the state, and do not vote
	Removed  []MemberID // may never come back
}

// A ChangeKind is a kind of change of a shard's members.
type ChangeKind uint8

// The changes. A member goes through them in this order; none can be undone.
const (
	// AddLearner lets a member take part that does not vote.
	AddLearner ChangeKind = 1 + iota
	// Promote lets a learner vote.
	Promote
	// Remove ends the part of a voter or of a learner.
	Remove
)

// A Change is a change of a shard's members.
type Change struct {
	Kind   ChangeKind
	Member MemberID
	// After is the Change of the Membership that the change builds on. If another change comes first,
	// this one does nothing.
	After uint64
}

// Errors of Membership and Change.
var (
	// ErrNotLeader says that this member does not lead the shard.
	ErrNotLeader = errors.New("this member does not lead the shard")
	// ErrSelf says that a leader was to remove itself. It would step down as soon as it has applied
	// its removal. If the others have not heard by then that the removal is committed, a last other
	// voter could never be elected.
	ErrSelf = errors.New("a leader cannot remove itself")
)

const (
	// membershipTime bounds a read of the membership.
	membershipTime = 5 * time.Second
	// membershipGrace is how much longer a read may take before it is left behind.
	membershipGrace = 100 * time.Millisecond
)

// Membership returns the members of a shard, no older than the call. It takes as long as a Barrier,
// and at most five seconds. Calls take turns. Errors: ErrBusy if an earlier call still waits for the
// shard's machine, which may install a state or stand still; ErrNoLeader, ErrClosed, ErrFailed, and
// ctx's.
func (h *Host) Membership(ctx context.Context, id ShardID) (Membership, error) {
	s, err := h.running(id)
	if err != nil {
		return Membership{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, membershipTime)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return Membership{}, ErrBusy
	case <-h.done:
		return Membership{}, ErrClosed
	}
	members, err := h.askMembership(ctx, s)
	if err != nil {
		return Membership{}, fmt.Errorf("members of shard %d: %w", id, err)
	}
	m := Membership{Change: members.ConfigChangeID, Voters: ids(members.Nodes), Learners: ids(members.NonVotings), Removed: ids(members.Removed)}
	h.setLearners(s, m)
	return m, nil
}

// askMembership asks dragonboat for the members of a shard, whose reading the caller has taken. It
// holds no lock while it waits: Close needs the host's, and what is asked may need Close to end.
func (h *Host) askMembership(ctx context.Context, s *shard) (*dragonboat.Membership, error) {
	type answer struct {
		found *dragonboat.Membership
		err   error
	}
	answered := make(chan answer, 1)
	begun := &begunContext{Context: ctx, begun: make(chan struct{})}
	err := h.call(func() error {
		if isClosed(h.cfg.Disk.Failed()) {
			return ErrFailed
		}
		// ctx does not bound the call. After its barrier it waits for the shard's machine, and as long
		// as that takes. So it gets a goroutine, which may be left behind, and which Close does not
		// wait for: from its barrier on it no longer touches the NodeHost.
		go func() {
			defer func() { <-s.reading }()
			var a answer
			a.err = guard(func() (err error) {
				a.found, err = h.nh.SyncGetShardMembership(begun, uint64(s.id))
				return err
			})
			begun.Done() // also if it never came that far
			answered <- a
		}()
		<-begun.begun
		return nil
	})
	if err != nil {
		<-s.reading
		return nil, err
	}
	left := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(membershipGrace, func() { close(left) }) })()
	select {
	case a := <-answered:
		return a.found, translate(a.err)
	case <-left:
		return nil, ctx.Err()
	case <-h.done:
		return nil, ErrClosed
	}
}

// begunContext is a context that tells when a call first asks for its end. dragonboat does so when
// it waits for a barrier that it has sent.
type begunContext struct {
	context.Context
	once  sync.Once
	begun chan struct{} // closed then
}

// Done is that of the context below.
func (c *begunContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.begun) })
	return c.Context.Done()
}

func ids[V any](of map[uint64]V) (list []MemberID) {
	for _, m := range slices.Sorted(maps.Keys(of)) {
		list = append(list, MemberID(m))
	}
	return list
}

// changeTime is how long dragonboat remembers a change in order to report its result, which nobody
// reads. Until then, or until the change is applied or dropped, it takes no other change.
const changeTime = time.Second

// Change proposes a change of a shard's members, if this member leads the shard. It does not wait.
// The change may be lost, and it does nothing if it does not fit: only Membership tells the
// outcome. Errors mean that it was not proposed: ErrNotLeader, ErrSelf, ErrBusy if the result of an
// earlier change is open, ErrClosed, ErrFailed.
func (h *Host) Change(id ShardID, c Change) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	return h.call(func() error {
		switch {
		case isClosed(h.cfg.Disk.Failed()):
			return ErrFailed
		case s.leader().Member != h.cfg.Member:
			return ErrNotLeader
		case c.Kind == Remove && c.Member == h.cfg.Member:
			return ErrSelf
		}
		target := UUID(h.cfg.Digest, c.Member)
		var err error
		switch c.Kind {
		case AddLearner:
			_, err = h.nh.RequestAddNonVoting(uint64(id), uint64(c.Member), target, c.After, changeTime)
		case Promote:
			_, err = h.nh.RequestAddReplica(uint64(id), uint64(c.Member), target, c.After, changeTime)
		case Remove:
			_, err = h.nh.RequestDeleteReplica(uint64(id), uint64(c.Member), c.After, changeTime)
		default:
			err = fmt.Errorf("change of kind %d", c.Kind)
		}
		return translate(err)
	})
}
