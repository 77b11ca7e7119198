package queue

import (
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/meter"
)

// counted returns a create whose claim the metrics count as of a kind.
func counted(op embed.Op, k engine.ClaimKind) embed.Op { return embed.Op(inside.Op(op).For(k)) }

// OfTask returns the create of a claim on a task. The metrics count such claims.
func OfTask(op embed.Op) embed.Op { return counted(op, engine.ClaimTask) }

// Queued counts the callers on the session's node that wait for a mutex without a contender of
// their own, behind one that a caller before them has.
func Queued(s *embed.Session) *meter.Gauge {
	return (*inside.Session)(s).Parts().Session.Queued()
}
