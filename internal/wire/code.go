package wire

// Code is the error in a reply.
type Code int32

// The codes that a server sends.
const (
	OK                           Code = 0
	RuntimeInconsistency         Code = -2 // only in a failed multi: behind the failed operation
	MarshallingError             Code = -5
	Unimplemented                Code = -6
	BadArguments                 Code = -8
	UnknownSession               Code = -12
	NewConfigNoQuorum            Code = -13
	ReconfigInProgress           Code = -14
	NoNode                       Code = -101
	NoAuth                       Code = -102
	BadVersion                   Code = -103
	NoChildrenForEphemerals      Code = -108
	NodeExists                   Code = -110
	NotEmpty                     Code = -111
	SessionExpired               Code = -112
	InvalidACL                   Code = -114
	AuthFailed                   Code = -115
	NotReadOnly                  Code = -119
	EphemeralOnLocalSession      Code = -120
	NoWatcher                    Code = -121
	ReconfigDisabled             Code = -123
	SessionClosedRequireSASLAuth Code = -124
	QuotaExceeded                Code = -125
	ThrottledOp                  Code = -127
)

// The codes that are never sent. They mark ranges, or clients use them for themselves, or a server
// closes the connection instead.
const (
	SystemError       Code = -1
	DataInconsistency Code = -3
	ConnectionLoss    Code = -4
	OperationTimeout  Code = -7
	APIError          Code = -100
	InvalidCallback   Code = -113
	SessionMoved      Code = -118
	RequestTimeout    Code = -122
)
