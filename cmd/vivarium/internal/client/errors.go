package client

import (
	"errors"
	"strconv"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// ErrBusy says that more requests are under way than the client takes.
var ErrBusy = errors.New("too many requests under way")

// An Error is the code that a request was answered with, or what the client says in place of an answer: ConnectionLoss, SessionExpired,
// AuthFailed and OperationTimeout.
type Error struct {
	Code  wire.Code
	Path  string // as the caller named it; "" if the request has none
	Cause error  // what happened, where the code is the client's own; may be nil
}

// Error says it in ZooKeeper's words, which scripts know.
func (e *Error) Error() string {
	text := "KeeperErrorCode = " + name(e.Code)
	if e.Path != "" {
		text += " for " + e.Path
	}
	return text
}

// Unwrap returns the Cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of an error that is or wraps an Error, otherwise wire.OK.
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
