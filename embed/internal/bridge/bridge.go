package bridge

import (
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A Side is what is behind a node.
type Side struct {
	Engine *engine.Engine
	Config engine.Config // complete
	// Identify returns what a credential proves under the node's schemes; the error says why nothing.
	Identify func(scheme string, credential []byte) ([]tree.Identity, error)
}

// Cross returns what is behind an *embed.Node. Package embed sets it, which this one cannot import.
var Cross func(node any) Side
