package tree

import "strconv"

// CreateMode says how long a znode lives and whether its name gets a sequence suffix. The numbers are ZooKeeper's
// flags; the zero value is Persistent.
type CreateMode uint8

const (
	Persistent          CreateMode = 0 // lives until it is deleted
	Ephemeral           CreateMode = 1 // belongs to a session and goes with it, maybe lingers; has no children
	Sequential          CreateMode = 2 // persistent, its name ends in the parent's create counter
	EphemeralSequential CreateMode = 3 // ephemeral, its name ends in the parent's create counter
	Container           CreateMode = 4 // may be reaped once its last child is gone
	TTL                 CreateMode = 5 // may be reaped when it has had no children and no write of its data for some time
	SequentialTTL       CreateMode = 6 // as TTL, its name ends in the parent's create counter
)

// MaxTTL is the longest time, in milliseconds, that a znode of a TTL mode can be given; nearly 35 years.
const MaxTTL = 1<<40 - 1

// IsEphemeral reports whether a znode of this mode belongs to a session.
func (m CreateMode) IsEphemeral() bool { return m == Ephemeral || m == EphemeralSequential }

// IsSequential reports whether a name of this mode gets a sequence suffix.
func (m CreateMode) IsSequential() bool {
	return m == Sequential || m == EphemeralSequential || m == SequentialTTL
}

// IsTTL reports whether a znode of this mode goes after some time without children and writes.
func (m CreateMode) IsTTL() bool { return m == TTL || m == SequentialTTL }

// Validate returns ErrInvalidMode if the mode is none of the constants above.
func (m CreateMode) Validate() error {
	if m > SequentialTTL {
		return ErrInvalidMode
	}
	return nil
}

// String returns the name of the mode.
func (m CreateMode) String() string {
	switch m {
	case Persistent:
		return "Persistent"
	case Ephemeral:
		return "Ephemeral"
	case Sequential:
		return "Sequential"
	case EphemeralSequential:
		return "EphemeralSequential"
	case Container:
		return "Container"
	case TTL:
		return "TTL"
	case SequentialTTL:
		return "SequentialTTL"
	}
	return "CreateMode(" + strconv.Itoa(int(m)) + ")"
}

// AnyVersion as the expected version of an Op means that every version will do.
const AnyVersion int32 = -1

// OpKind is what an Op does. The zero value is no kind, so that a forgotten Op is refused.
type OpKind uint8

const (
	KindCreate        OpKind = iota + 1 // adds a znode; uses Path, Data, Mode, TTL and ACL
	KindSet                             // replaces a znode's data; uses Path, Data and Version
	KindDelete                          // removes a znode; uses Path, Version and Czxid
	KindCheck                           // fails unless the znode has the version; uses Path and Version
	KindSetACL                          // replaces a znode's ACL; uses Path, ACL and Version; alone in its transaction
	KindGuard                           // fails unless the znode is there, the one that transaction Czxid created, and still somebody's; uses Path and Czxid
	KindCheckChildren                   // fails if the znode has more children than Version; uses Path and Version
	KindLose                            // ends an ephemeral because its session was lost; uses Path; of the ensemble's own transactions only
)

// String returns the kind as a word.
func (k OpKind) String() string {
	switch k {
	case KindCreate:
		return "create"
	case KindSet:
		return "set"
	case KindDelete:
		return "delete"
	case KindCheck:
		return "check"
	case KindSetACL:
		return "setacl"
	case KindGuard:
		return "guard"
	case KindCheckChildren:
		return "checkchildren"
	case KindLose:
		return "lose"
	}
	return "OpKind(" + strconv.Itoa(int(k)) + ")"
}

// An Op is one operation of a transaction. Its zero value is refused with ErrInvalidKind.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte     // nil and empty are kept apart
	Mode    CreateMode // of a create
	TTL     int64      // of a create: milliseconds, 1 to MaxTTL in a TTL mode, 0 to MaxTTL of an ephemeral, 0 in every other mode
	ACL     []ACL      // of a create or SetACL, as asked for; nil in a create: OpenACL
	Version int32      // expected data version of a set, delete or check, ACL version of a SetACL; AnyVersion: not checked; of a check of children, the most
	Czxid   Zxid       // of a guard or delete: which creation of the path it asks for; zero in a delete: any
}

// A Header is what all operations of a transaction share.
type Header struct {
	Zxid    Zxid      // the transaction's place in the order; greater than every earlier one's
	Time    int64     // wall clock in Unix milliseconds, for Ctime and Mtime
	Session SessionID // owner of the ephemerals it creates

	Identities []Identity // of who asks for it, for permissions and for "auth" in an ACL
	System     bool       // it is the ensemble's own: no permission is checked
}

// A Result is what one operation of a transaction that succeeded has to say. Results share nothing with the tree that
// could change, nor with the Op.
type Result struct {
	Kind OpKind
	Path string // of a create: the final path, with its suffix; else empty
	Stat Stat   // of a create, set or SetACL: the znode right after this operation; else zero
}

// ChangeType is what happened to a znode. The numbers are those of ZooKeeper's events.
type ChangeType uint8

const (
	Created     ChangeType = 1 // the znode came into being
	Deleted     ChangeType = 2 // the znode went
	DataChanged ChangeType = 3 // the znode's data was set, perhaps to the same bytes; or an ephemeral lingers from now on
)

// String returns the type as a word.
func (c ChangeType) String() string {
	switch c {
	case Created:
		return "created"
	case Deleted:
		return "deleted"
	case DataChanged:
		return "changed"
	}
	return "ChangeType(" + strconv.Itoa(int(c)) + ")"
}

// A Change is one thing a transaction did to one znode. That a parent's list of children changed is not a Change of its
// own: it follows from Created and Deleted of the child. A SetACL makes no Change.
//
// The lists are the tree's: they may be kept but must not be changed. See View.MayRead.
type Change struct {
	Type  ChangeType
	Lost  bool // Owner owns the znode no more, which lingers; beside Type it takes no room
	Path  string
	Owner SessionID // of the znode if it is an ephemeral, else zero

	ACL       []ACL // of the znode; of a deleted one, what it had
	ParentACL []ACL // of the parent if the znode was created or deleted
}
