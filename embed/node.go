package embed

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
)

// A Node is one running member: its replica of the tree and the sessions of this process. Its methods may be called by
// any number of goroutines.
//
// A node never ends its process. When its disk fails, when the ensemble refuses it, or when something it relies on
// breaks, it is Failed: from that instant nothing of it reaches the disk or the other members, Done is closed, Err says
// why, and everything else of the process goes on. Close it, mend the cause, and Start anew.
type Node inside.Node

// in returns what the node is made of.
func (n *Node) in() *inside.NodeParts { return (*inside.Node)(n).Parts() }

// Start opens the directory and starts the node. It does not wait for a quorum: Ready does. When it returns, the node has in
// memory what its directory knows to be committed, and Status says how far that reaches; others may have gone on. It returns an error, and has
// changed nothing on disk, if the Config is bad (every problem at once), the port or the directory is in use, the
// directory belongs to another member or ensemble, or its contents do not fit together.
func Start(cfg Config) (*Node, error) {
	c, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("config: Dir: %w", err)
	}
	events := newNotifier(cfg.Events)
	n := inside.NodeParts{Config: c, CloseEvents: events.close,
		Authenticate: authenticator{maps.Clone(cfg.Schemes), cfg.SuperDigest}.authenticate}
	if cfg.Inside != nil {
		c.Seams = engine.Seams(*cfg.Inside)
	}
	c.LeaderChanged = events.leaderChanged
	c.SessionExpired = events.sessionExpired
	if n.Engine, err = engine.Start(c); err != nil {
		events.close()
		return nil, fmt.Errorf("start: %w", err)
	}
	return (*Node)(inside.NewNode(n)), nil
}

// Ready waits until the node serves, on every shard: it has a quorum, the ensemble has taken it in, and it has applied what was
// committed when asked. If ctx ends first the error is ctx's, and its text says what was waited for: which shards have no leader,
// which members are not connected and why, who refuses whom and for what reason. A handler of /readyz may show it to its
// operators; it has addresses in it.
func (n *Node) Ready(ctx context.Context) error {
	return opError("ready", "", n.in().Engine.Ready(ctx))
}

// NewSession opens a session. Errors: ErrUnavailable or the ctx's error if it was not sent in time, ErrUnknownOutcome if
// no quorum answered in time, ErrInvalidPath (Root), ErrAuthFailed, ErrClosed, ErrFailed. A session that is opened after its
// caller lost patience is closed again.
func (n *Node) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	in := n.in()
	root, err := o.root()
	if err != nil {
		return nil, opError("new session", o.Root, err)
	}
	credentials := make([]inside.Credential, len(o.Auth))
	for i, a := range o.Auth {
		credentials[i] = inside.Credential(a)
	}
	who, err := in.Authenticate(credentials...)
	if err != nil {
		return nil, opError("new session", "", err)
	}
	s, err := in.Engine.OpenSession(ctx, or(o.Timeout, DefaultSessionTimeout), who...)
	if err != nil {
		return nil, opError("new session", "", err)
	}
	return (*Session)(inside.NewSession(inside.SessionParts{Session: s, Root: root, MaxData: in.Config.MaxDataSize})), nil
}

// Status is what a node knows of itself and its shards.
type Status struct {
	Member MemberID
	Shards []ShardStatus
}

// ShardStatus is what a node knows of one shard. A node that has failed or is closed knows of no leader; the rest is the last that
// it knew.
type ShardStatus struct {
	Shard   int      // from 1
	Leader  MemberID // zero: none known
	Term    uint64   // the newest known
	Applied uint64   // index in the Raft log
	Zxid    Zxid     // what reads show

	// TreeSize is about how many bytes of memory the znodes take: 240 each, with their paths, data
	// and ACLs. It is the same on all members at one Zxid. Config.MaxTreeSize bounds it.
	TreeSize int64

	// OverSoftQuota counts the transactions, since the start, that raised the use of a subtree to above a soft limit. The
	// subtrees are logged too, each at most once a minute, and a hundred of them.
	OverSoftQuota uint64
}

// Leading reports whether this node leads the shard. One that has failed or is closed leads nothing.
func (s Status) Leading(shard ShardStatus) bool {
	return shard.Leader != 0 && shard.Leader == s.Member
}

// Status returns what the node knows now. It works at any time, also after Close.
func (n *Node) Status() Status {
	out := Status{Member: n.in().Config.Member}
	for _, s := range n.in().Engine.Status() {
		out.Shards = append(out.Shards, ShardStatus{Shard: int(s.Shard), Leader: s.Leader.Member, Term: s.Leader.Term,
			Applied: s.Applied, Zxid: s.Zxid, TreeSize: s.TreeSize, OverSoftQuota: s.OverSoftQuota})
	}
	return out
}

// TransferLeadership asks a shard's leader, shards counting from 1, to hand the leadership to a member. It returns when the
// request is made; there is no promise that it happens, and Status says when it has. With several shards the members take the
// leaderships back that are their share, after some time. Errors: ErrUnavailable if no leader is known or another request is
// under way, ErrClosed, ErrFailed, and that of a shard or an id that there is not.
func (n *Node) TransferLeadership(shard int, to MemberID) error {
	return opError("transfer leadership", "", n.in().Engine.TransferLeadership(engine.ShardID(shard), to))
}

// Shutdown ends the sessions of this node with everything they hold, so that others need not wait for their timeouts,
// hands its leadership over, and closes it. From its beginning NewSession answers ErrClosed. It is bounded by ctx
// (Config.RequestTimeout if that has no deadline) and a Close, also without a quorum; then the error says how many sessions
// may stay until their timeouts.
func (n *Node) Shutdown(ctx context.Context) error {
	err := n.in().Engine.Shutdown(ctx)
	n.in().CloseEvents()
	return opError("shutdown", "", err)
}

// Close stops the node now. Holds and sessions end here at once; the ensemble waits for their timeouts, or for the next
// Start on this directory. It is idempotent and takes little more than twice Config.RequestTimeout at worst, or 20 s if that is
// more; the error says what it had to leave behind. If the disk hangs, the directory stays locked until it answers.
func (n *Node) Close() error {
	err := n.in().Engine.Close()
	n.in().CloseEvents()
	return opError("close", "", err)
}

// Done is closed when the node has failed or is closed.
func (n *Node) Done() <-chan struct{} { return n.in().Engine.Done() }

// Err says why the node failed; nil while it runs, and after the Close of one that had not.
func (n *Node) Err() error { return n.in().Engine.Err() }
