package wire

// Op says what a request asks for.
type Op int32

// The ops.
const (
	OpEvent                Op = 0 // in events only, in no request
	OpCreate               Op = 1
	OpDelete               Op = 2
	OpExists               Op = 3
	OpGetData              Op = 4
	OpSetData              Op = 5
	OpGetACL               Op = 6
	OpSetACL               Op = 7
	OpGetChildren          Op = 8
	OpSync                 Op = 9
	OpPing                 Op = 11
	OpGetChildren2         Op = 12
	OpCheck                Op = 13 // in multi only
	OpMulti                Op = 14
	OpCreate2              Op = 15
	OpReconfig             Op = 16
	OpCheckWatches         Op = 17
	OpRemoveWatches        Op = 18
	OpCreateContainer      Op = 19
	OpDeleteContainer      Op = 20 // not for clients, see Known
	OpCreateTTL            Op = 21
	OpMultiRead            Op = 22
	OpAuth                 Op = 100
	OpSetWatches           Op = 101
	OpSASL                 Op = 102
	OpGetEphemerals        Op = 103
	OpGetAllChildrenNumber Op = 104
	OpSetWatches2          Op = 105
	OpAddWatch             Op = 106
	OpWhoAmI               Op = 107
	OpCreateSession        Op = -10 // not for clients, see Known
	OpCloseSession         Op = -11
	OpError                Op = -1 // a result in a reply to a multi, and the end of a multi
)

// Known reports whether a client may send a request of this op. ZooKeeper accepts two more:
// OpDeleteContainer, which lets a client delete what it has no permission to delete, and
// OpCreateSession, which gets a second answer to the connect request.
func (o Op) Known() bool {
	switch {
	case o == OpCloseSession, o == OpPing, o == OpGetChildren2:
		return true
	case o == OpDeleteContainer:
		return false
	}
	return o == OpNative || OpCreate <= o && o <= OpSync || OpMulti <= o && o <= OpMultiRead || OpAuth <= o && o <= OpWhoAmI
}

// The xids that do not count a client's requests. A server sends back whatever xid a request has.
const (
	XidEvent      = -1
	XidPing       = -2
	XidAuth       = -4
	XidSetWatches = -8 // used by the C client
)

// CreateFlags says how long a znode lives, and whether its name gets a number.
type CreateFlags int32

// The flags of a create.
const (
	FlagsPersistent          CreateFlags = 0
	FlagsEphemeral           CreateFlags = 1
	FlagsSequential          CreateFlags = 2
	FlagsEphemeralSequential CreateFlags = 3
	FlagsContainer           CreateFlags = 4
	FlagsTTL                 CreateFlags = 5
	FlagsSequentialTTL       CreateFlags = 6
)
