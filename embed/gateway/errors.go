package gateway

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// answers are the errors that a client is told of by their codes, those first that are met most. The connection ends with all others:
// they leave open whether the request was applied, or say that it cannot be asked here; a client takes both from a lost connection.
var answers = []struct {
	err  error
	code wire.Code
}{
	{tree.ErrNoNode, wire.NoNode},
	{tree.ErrNodeExists, wire.NodeExists},
	{tree.ErrBadVersion, wire.BadVersion},
	{tree.ErrNoAuth, wire.NoAuth},
	{tree.ErrNotEmpty, wire.NotEmpty},
	{tree.ErrNoChildrenForEphemerals, wire.NoChildrenForEphemerals},
	{tree.ErrInvalidACL, wire.InvalidACL},
	{tree.ErrQuotaExceeded, wire.QuotaExceeded},
	{tree.ErrInvalidPath, wire.BadArguments},
	{tree.ErrInvalidMode, wire.BadArguments},
	{tree.ErrInvalidTTL, wire.BadArguments},
	{engine.ErrTooLarge, wire.BadArguments},   // ZooKeeper has no limit but the frame's, and no code
	{engine.ErrCrossShard, wire.BadArguments}, // ZooKeeper has no shards
	{errMarshalling, wire.MarshallingError},
	{errNoWatcher, wire.NoWatcher},
	{errReconfigDisabled, wire.ReconfigDisabled},
}

var (
	errMarshalling = errors.New("no such request") // decoded, and yet what ZooKeeper takes for bytes that are none
	errNoWatcher   = errors.New("no such watch")

	errReconfigDisabled = errors.New("members are fixed")
)

// codeOf returns the code that tells of an error, and false if the connection has to end instead.
func codeOf(err error) (wire.Code, bool) {
	if err == nil {
		return wire.OK, true
	}
	for i := range answers {
		if errors.Is(err, answers[i].err) {
			return answers[i].code, true
		}
	}
	return 0, false
}
