package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// callbacks are what the rooms below ask of the Engine that holds them.
type callbacks struct{ engine *Engine }

// Look implements outboxNode.
func (n callbacks) Look() { n.engine.keeper.look() }

// Proved implements outboxNode.
func (n callbacks) Proved(sent, drift time.Duration) { n.engine.keeper.moved(sent, drift) }

// Pulse implements outboxNode.
func (n callbacks) Pulse() time.Duration { return n.engine.keeper.pulse() }

// AppliedAtHome implements outboxNode.
func (n callbacks) AppliedAtHome() tree.Zxid { return n.engine.home().tree.Load().Visible() }

// Lacking implements outboxNode.
func (n callbacks) Lacking(id replication.ShardID, err error) error { return n.engine.lacking(id, err) }
