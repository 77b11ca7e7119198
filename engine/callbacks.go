package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// callbacks are what the rooms below ask of the Engine that holds them.
type callbacks struct{ engine *Engine }

// CheckDeadlines implements outbox.Node.
func (n callbacks) CheckDeadlines() { n.engine.keeper.look() }

// Proved implements outbox.Node.
func (n callbacks) Proved(sent, drift time.Duration) { n.engine.keeper.moved(sent, drift) }

// BeatInterval implements outbox.Node.
func (n callbacks) BeatInterval() time.Duration { return n.engine.keeper.pulse() }

// AppliedAtHome implements outbox.Node.
func (n callbacks) AppliedAtHome() tree.Zxid { return n.engine.home().tree.Load().Visible() }

// Explain implements outbox.Node.
func (n callbacks) Explain(id replication.ShardID, err error) error { return n.engine.lacking(id, err) }
