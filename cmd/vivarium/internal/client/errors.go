package client

import (
	"errors"
	"strconv"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// ErrBusy means that too many requests are in flight.
var ErrBusy = errors.New("too many requests in flight")

// An Error is the code with which a server answered a request. If there is no answer, the client
// sets the code: ConnectionLoss, SessionExpired, AuthFailed or OperationTimeout.
type Error struct {
	Code  wire.Code
	Path  string // as the caller named it; "" if the request has none
	Cause error  // what happened, if the client set the code; may be nil
}

// Error returns ZooKeeper's words, which scripts look for.
func (e *Error) Error() string {
	text := "KeeperErrorCode = " + name(e.Code)
	if e.Path != "" {
		text += " for " + e.Path
	}
	return text
}

// Unwrap returns the Cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of an error that is or wraps an Error. For any other error it is wire.OK.
func CodeOf(err error) wire.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return wire.OK
}

var names = map[wire.Code]string{
	wire.SystemError:                  "SystemError",
	wire.RuntimeInconsistency:         "RuntimeInconsistency",
	wire.DataInconsistency:            "DataInconsistency",
	wire.ConnectionLoss:               "ConnectionLoss",
	wire.MarshallingError:             "MarshallingError",
	wire.Unimplemented:                "Unimplemented",
	wire.OperationTimeout:             "OperationTimeout",
	wire.BadArguments:                 "BadArguments",
	wire.NewConfigNoQuorum:            "NewConfigNoQuorum",
	wire.ReconfigInProgress:           "ReconfigInProgress",
	wire.APIError:                     "APIError",
	wire.NoNode:                       "NoNode",
	wire.NoAuth:                       "NoAuth",
	wire.BadVersion:                   "BadVersion",
	wire.NoChildrenForEphemerals:      "NoChildrenForEphemerals",
	wire.NodeExists:                   "NodeExists",
	wire.NotEmpty:                     "Directory not empty",
	wire.SessionExpired:               "Session expired",
	wire.InvalidCallback:              "Invalid callback",
	wire.InvalidACL:                   "InvalidACL",
	wire.AuthFailed:                   "AuthFailed",
	wire.SessionMoved:                 "Session moved",
	wire.NotReadOnly:                  "Not a read-only call",
	wire.EphemeralOnLocalSession:      "Ephemeral node on local session",
	wire.NoWatcher:                    "No such watcher",
	wire.ReconfigDisabled:             "Reconfig is disabled",
	wire.SessionClosedRequireSASLAuth: "Session closed because client failed to authenticate",
	wire.QuotaExceeded:                "Quota has exceeded",
	wire.ThrottledOp:                  "Op throttled due to high load",
}

func name(code wire.Code) string {
	if n, ok := names[code]; ok {
		return n
	}
	return "Unknown error " + strconv.Itoa(int(code))
}
