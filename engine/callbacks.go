package engine

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// callbacks are what the rooms below ask of the Engine that holds them.
type callbacks struct{ engine *Engine }

// CheckDeadlines implements outbox.Node.
func (n callbacks) CheckDeadlines() { n.engine.keeper.CheckDeadlines() }

// Proved implements outbox.Node.
func (n callbacks) Proved(sent, drift time.Duration) { n.engine.keeper.Proved(sent, drift) }

// BeatInterval implements outbox.Node.
func (n callbacks) BeatInterval() time.Duration { return n.engine.keeper.BeatInterval() }

// AppliedAtHome implements outbox.Node.
func (n callbacks) AppliedAtHome() tree.Zxid { return n.engine.home().Tree().Visible() }

// Explain implements outbox.Node.
func (n callbacks) Explain(id replication.ShardID, err error) error { return n.engine.lacking(id, err) }

// Propose implements outbox.Raft.
func (n callbacks) Propose(id replication.ShardID, cmd []byte) (outbox.Proposal, error) {
	p, err := n.engine.host.Load().Propose(id, cmd)
	if err != nil {
		return nil, err // not p: a nil *Proposal is no nil Proposal
	}
	return p, nil
}

// Leader implements outbox.Raft.
func (n callbacks) Leader(id replication.ShardID) replication.Leader { return n.engine.Leader(id) }

// Committed implements replica.Raft.
func (n callbacks) Committed(id replication.ShardID) uint64 {
	return n.engine.host.Load().Committed(id)
}

// Transfer implements replica.Raft: the others take over one after the other, for one of them may be down; one that lags too does the same.
func (n callbacks) Transfer(id replication.ShardID, nth int) {
	others := n.engine.others()
	if len(others) == 0 {
		return
	}
	next := others[nth%len(others)]
	err := n.engine.TransferLeadership(id, next)
	n.engine.log.Warn("applying lags behind what is committed, the leadership is handed over", "shard", id, "to", next, "cause", err)
}

// Fail implements replica.Node.
func (n callbacks) Fail(cause error) { n.engine.fail(cause) }

// Gone implements replica.Node.
func (n callbacks) Gone(changes []tree.Change) { n.engine.keeper.Gone(changes) }

// Ended implements replica.Node.
func (n callbacks) Ended(at replication.ShardID, why error, ids ...tree.SessionID) {
	n.engine.keeper.Ended(at, why, ids...)
}

// Expired implements replica.Node.
func (n callbacks) Expired(id tree.SessionID) {
	if n.engine.cfg.SessionExpired != nil {
		n.engine.cfg.SessionExpired(id)
	}
}

// Left implements replica.Node.
func (n callbacks) Left(id tree.SessionID) { n.engine.keeper.Left(id) }

// Adopt implements replica.Node.
func (n callbacks) Adopt(table *session.Table) { n.engine.keeper.Adopt(table) }

// Reconcile implements replica.Node.
func (n callbacks) Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool) {
	n.engine.keeper.Reconcile(at, old, next, table, registered)
}

// Route implements keeperNode.
func (n callbacks) Route(ops []tree.Op) (replication.ShardID, error) {
	m, err := n.engine.route(ops)
	return m.Shard, err
}

// ShardsOf implements keeperNode.
func (n callbacks) ShardsOf(id tree.SessionID) []uint32 { return n.engine.home().ShardsOf(id) }

// Tell implements keeperNode.
func (n callbacks) Tell(level slog.Level, message string, args ...any) {
	n.engine.news.tell(level, message, args...)
}
