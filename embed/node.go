package embed

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A Node is one running member: its replica of the tree, and the sessions of this process. Its
// methods may be called by any number of goroutines.
//
// A node never ends its process. It fails if its disk fails, if the ensemble refuses it, or if
// something that it relies on breaks. From that moment it writes nothing to the disk and sends
// nothing to the other members. Done is closed, Err says why, and the rest of the process goes on.
// Close the node, mend the cause, and Start a new one.
type Node inside.Node

// in returns what the node is made of.
func (n *Node) in() *inside.NodeParts { return (*inside.Node)(n).Parts() }

// Start opens the directory and starts the node. It does not wait for a quorum; Ready does. When
// Start returns, the node has in memory what its directory knows to be committed, and Status says
// how far that reaches. Other members may be ahead.
//
// Start fails, and has changed nothing on disk, if
//
//   - the Config is invalid; the error lists every problem,
//   - the port or the directory is in use,
//   - the directory belongs to another member or ensemble, or
//   - the contents of the directory do not fit together.
func Start(cfg Config) (*Node, error) { return start(cfg, nil) }

// start is Start, also for Supervise.
func start(cfg Config, by *supervisor) (*Node, error) {
	c, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("config: Dir: %w", err)
	}
	if cfg.Inside != nil {
		c.Seams = engine.Seams(*cfg.Inside)
	}
	var out outlets
	var end func(until time.Time)
	if by != nil {
		out, c.Directory = by.outlets, by.directory
		end = func(time.Time) { out.log.Flush(closeLeast) } // the others go on with the next node
	} else {
		out = newOutlets(cfg)
		end = out.close
	}
	c.Logger = out.log.Logger()
	n := inside.NodeParts{Config: c, EventsDropped: out.events.dropped.Read, LinesDropped: out.log.Lost.Read,
		Authenticate: authenticator{maps.Clone(cfg.Schemes), cfg.SuperDigest}.authenticate}
	c.LeaderChanged = out.events.leaderChanged
	c.SessionExpired = out.events.sessionExpired
	c.MembersChanged = out.events.membersChanged
	if out.audit != nil {
		c.Audit, n.Audited = out.audit.record, out.audit.counts
	}
	if n.Engine, err = engine.Start(c); err != nil {
		end(time.Now().Add(c.RequestTimeout))
		return nil, fmt.Errorf("start: %w", err)
	}
	n.CloseOutlets = func() { end(n.Engine.CloseBy()) }
	return (*Node)(inside.NewNode(n)), nil
}

// Ready waits until the node serves on every shard. Then it has a quorum, the ensemble has accepted
// it, and it has applied everything that was committed when Ready asked. If the ensemble begins with
// a backup, that is loaded; see Config.Seed.
//
// If ctx ends first, the error is ctx's. Its text says what is missing: which shards have no
// leader, which members are not connected and why, and who refuses whom and why. A handler of
// /readyz may show the text to operators; it contains addresses.
func (n *Node) Ready(ctx context.Context) error {
	return opError("ready", "", n.in().Engine.Ready(ctx))
}

// NewSession opens a session. If its caller stops waiting, a session that is opened later is closed
// again.
//
// Errors: ErrUnavailable or the ctx's error if the request was not sent in time, ErrUnknownOutcome
// if no quorum answered in time, ErrInvalidPath (Root), ErrAuthFailed, ErrClosed, ErrFailed.
func (n *Node) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	in := n.in()
	root, err := o.root()
	if err != nil {
		return nil, opError("new session", o.Root, err)
	}
	who, err := n.identities(o.Auth)
	if err != nil {
		return nil, opError("new session", "", err)
	}
	s, err := in.Engine.OpenSession(ctx, o.Timeout, who...)
	if err != nil {
		return nil, opError("new session", "", err)
	}
	return (*Session)(inside.NewSession(inside.SessionParts{Session: inside.OnMember(s), Root: root, MaxData: in.Config.MaxDataSize})), nil
}

// identities returns the identities that credentials prove.
func (n *Node) identities(auth []Auth) ([]tree.Identity, error) {
	credentials := make([]inside.Credential, len(auth))
	for i, a := range auth {
		credentials[i] = inside.Credential(a)
	}
	return n.in().Authenticate(credentials...)
}

// Status is what a node knows of itself and its shards.
type Status struct {
	Member MemberID // zero: it has yet to join
	// Joining says what a node waits for that has yet to join or to found its ensemble. Empty means
	// that it is a member, or that the node has failed or is closed.
	Joining string
	// Level is the feature level of the ensemble; see docs/upgrades.md. During a rise it is that of
	// the lowest shard.
	Level int
	// HeldDown are the members that keep the ensemble from the next level that this build reads.
	// Each has an older build or a Config.HoldLevel, or has not started yet.
	HeldDown []MemberID
	Shards   []ShardStatus
}

// ShardStatus is what a node knows of one shard. A node that has failed or is closed knows no
// leader; the other fields keep their last values.
type ShardStatus struct {
	Shard   int      // from 1
	Leader  MemberID // zero: none known
	Term    uint64   // the newest known
	Applied uint64   // index in the Raft log
	Zxid    Zxid     // what reads show

	// TreeSize is about how many bytes of memory the znodes use: 240 for each, plus their paths,
	// data and ACLs. It is the same on all members at one Zxid. Config.MaxTreeSize bounds it.
	TreeSize int64

	// OverSoftQuota counts the transactions since Start that raised the usage of a subtree above a
	// soft limit. The log names the subtrees, each at most once a minute at first, and later
	// once an hour, and at most a hundred of them at a time.
	OverSoftQuota uint64
}

// Leading reports whether this node leads the shard. A node that has failed or is closed leads
// nothing.
func (s Status) Leading(shard ShardStatus) bool {
	return shard.Leader != 0 && shard.Leader == s.Member
}

// Status returns what the node knows now. It works at any time, also after Close. A node that has
// failed or is closed knows no leaders and waits for nothing; what else it knew, it still says.
// Health and Err say that it is over, and why.
func (n *Node) Status() Status {
	out := Status{Member: n.in().Engine.Member(), Joining: n.in().Engine.Joining(), Level: int(n.in().Engine.Levels.Level()), HeldDown: n.in().Engine.Levels.HeldDown()}
	for _, s := range n.in().Engine.Status() {
		out.Shards = append(out.Shards, ShardStatus{Shard: int(s.Shard), Leader: s.Leader.Member, Term: s.Leader.Term,
			Applied: s.Applied, Zxid: s.Zxid, TreeSize: s.TreeSize, OverSoftQuota: s.OverSoftQuota})
	}
	return out
}

// TransferLeadership asks the leader of a shard to transfer its leadership to a member. Shards
// count from 1. It returns once the request is made. The transfer may not happen: Status says when
// it has. With several shards, the members later transfer leaderships again, so that each leads its
// share.
//
// Errors: ErrUnavailable if no leader is known or another request is under way, ErrClosed,
// ErrFailed, and an error for a shard or a member that does not exist.
func (n *Node) TransferLeadership(shard int, to MemberID) error {
	return opError("transfer leadership", "", n.in().Engine.TransferLeadership(engine.ShardID(shard), to))
}

// RaiseLevel raises the feature level of the ensemble by one, without waiting for the members left
// behind. It is for a member that is gone for good and keeps the level down; Status names it.
// Without members it does what the ensemble does by itself. It returns when this node has the level
// on all shards.
//
// A member that was left behind can come back only with a build that reads the level. Its directory
// is not lost.
//
// Errors: ErrLevel if another member keeps the level down, or if this build reads no higher one; an
// error for a member that is up or does not exist; ErrUnavailable without a leader, ErrClosed and
// ErrFailed, after which nothing is raised; ErrUnknownOutcome if ctx or the node ended when it was
// proposed.
func (n *Node) RaiseLevel(ctx context.Context, leaveBehind ...MemberID) error {
	return opError("raise level", "", n.in().Engine.Levels.Raise(ctx, leaveBehind))
}

// Shutdown closes the sessions of this node with everything that they hold, so that nobody has to
// wait for their timeouts. It also waits for sessions that others are closing. Then it transfers the
// leaderships that the node has, and closes the node. Once Shutdown has begun, NewSession fails with
// ErrClosed.
//
// Shutdown is bounded by ctx, or by Config.RequestTimeout if ctx has no deadline, plus the time of
// a Close. Without a quorum the bound is the same, and the error says how many sessions may stay
// until their timeouts.
//
// With Config.Ephemeral, Shutdown also does what Leave does, and closes the node whether the member
// can leave or not. If it cannot, the error is that of Leave:
//
//   - ErrUnsafe: those who would vote then are no quorum. The only voter waits within ctx for a
//     learner that answers to take its place, and returns ErrUnsafe if none can.
//   - ErrUnavailable: no quorum has agreed in time.
//   - ErrUnknownOutcome: the wish may be recorded. Before it says so, Shutdown waits a longest
//     election more, because the others may need the vote.
//
// Then the node is a member still, and the others may need it for their quorum: do not delete its
// directory. Start on it brings the member back. If that is impossible, RemoveMember takes out the
// member from another node that has a quorum.
func (n *Node) Shutdown(ctx context.Context) error {
	err := n.in().Engine.Shutdown(ctx)
	n.in().CloseOutlets()
	return opError("shutdown", "", err)
}

// Close stops the node now. Its sessions and their holds end here at once. The ensemble waits for
// the timeouts of the sessions, or for the next Start on this directory.
//
// Close is idempotent. At worst it takes little more than twice Config.RequestTimeout, or 20 s if
// that is more. If it has to leave something behind, the error says so. If the disk hangs, the
// directory stays locked until that has ended. If the Logger hangs, Close waits a second for it.
func (n *Node) Close() error {
	err := n.in().Engine.Close()
	n.in().CloseOutlets()
	return opError("close", "", err)
}

// Done returns a channel that is closed when the node has failed or is closed.
func (n *Node) Done() <-chan struct{} { return n.in().Engine.Done() }

// Err returns why the node failed. It returns nil while the node runs, and after the Close of a
// node that had not failed.
func (n *Node) Err() error { return n.in().Engine.Err() }
