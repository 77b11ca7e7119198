package gateway

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// codes maps errors to the codes that tell clients of them, the most frequent first. All other
// errors end the connection. They leave open whether the request was applied, or say that this
// member cannot serve it. A client infers both from a lost connection.
var codes = []struct {
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
	{engine.ErrTooLarge, wire.BadArguments},   // ZooKeeper has no such limit, and no code for it
	{engine.ErrCrossShard, wire.BadArguments}, // ZooKeeper has no shards
	{errMarshalling, wire.MarshallingError},
	{errNoWatcher, wire.NoWatcher},
	{errReadOnly, wire.NotReadOnly},
	{errWatches, wire.BadArguments}, // as ErrTooLarge; older clients know no code for a quota
	{errNames, wire.QuotaExceeded},
	{errReconfigDisabled, wire.ReconfigDisabled},
	{errServers, wire.BadArguments},
	{engine.ErrObserver, wire.BadArguments},
	{engine.ErrNotMember, wire.BadArguments},
	{engine.ErrConfigChanged, wire.BadVersion},
	{engine.ErrReconfiguring, wire.ReconfigInProgress},
	{engine.ErrUnsafe, wire.NewConfigNoQuorum},
}

var (
	// errMarshalling is about a request that the gateway can decode and ZooKeeper cannot.
	errMarshalling = errors.New("malformed request")
	errNoWatcher   = errors.New("no such watch")
	errWatches     = errors.New("the connection has as many watches as it may: see gateway.Config.Watches")
	errNames       = errors.New("more names than a client can be shown at once")
	errReadOnly    = errors.New("this member has no leader and only reads")

	errReconfigDisabled = errors.New("reconfig is turned off: set gateway.Config.Reconfig")
)

// codeOf returns the code for an error, or false if the connection has to end instead.
func codeOf(err error) (wire.Code, bool) {
	if err == nil {
		return wire.OK, true
	}
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code, true
		}
	}
	return 0, false
}
