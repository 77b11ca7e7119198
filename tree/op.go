package tree

import "strconv"

// CreateMode says how long a znode lives and whether its name gets a sequence suffix. The numbers
// are ZooKeeper's flags; the zero value is Persistent.
type CreateMode uint8

const (
	Persistent          CreateMode = 0 // lives until it is deleted
	Ephemeral           CreateMode = 1 // goes with its session, or lingers; has no children
	Sequential          CreateMode = 2 // persistent; its name ends in the parent's create counter
	EphemeralSequential CreateMode = 3 // ephemeral; its name ends in the parent's create counter
	Container           CreateMode = 4 // may be reaped once its last child is gone
	TTL                 CreateMode = 5 // may be reaped after some time without children and writes
	SequentialTTL       CreateMode = 6 // as TTL; its name ends in the parent's create counter
)

// MaxTTL is the longest TTL in milliseconds, nearly 35 years.
const MaxTTL = 1<<40 - 1

// IsEphemeral reports whether a znode of this mode belongs to a session.
func (m CreateMode) IsEphemeral() bool { return m == Ephemeral || m == EphemeralSequential }

// IsSequential reports whether a name of this mode gets a sequence suffix.
func (m CreateMode) IsSequential() bool {
	return m == Sequential || m == EphemeralSequential || m == SequentialTTL
}

// IsTTL reports whether a znode of this mode may be reaped after some time without children and
// writes.
func (m CreateMode) IsTTL() bool { return m == TTL || m == SequentialTTL }

// Validate returns ErrInvalidMode unless the mode is one of the constants above.
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

// AnyVersion as an Op's expected version matches every version.
const AnyVersion int32 = -1

// OpKind is what an Op does. The zero value is invalid, so that a forgotten Op is refused.
type OpKind uint8

const (
	// KindCreate adds a znode. It uses Path, Data, Mode, TTL and ACL.
	KindCreate OpKind = iota + 1
	// KindSet replaces a znode's data. It uses Path, Data and Version.
	KindSet
	// KindDelete removes a znode. It uses Path, Version and Czxid.
	KindDelete
	// KindCheck fails unless the znode has the version. It uses Path and Version.
	KindCheck
	// KindSetACL replaces a znode's ACL. It uses Path, ACL and Version, and must be alone in its
	// transaction.
	KindSetACL
	// KindGuard fails unless the znode exists, was created by transaction Czxid, and still has an
	// owner. It uses Path and Czxid.
	KindGuard
	// KindCheckChildren fails if the znode has more than Version children. It uses Path and
	// Version.
	KindCheckChildren
	// KindLose ends an ephemeral because its session was lost. It uses Path. Only the ensemble's
	// own transactions may contain it.
	KindLose
	// KindConfigure replaces the data of ConfigPath, whose version stays -1. It uses Data. Only the
	// ensemble's own transactions may contain it.
	KindConfigure
	// KindCheckMzxid fails unless transaction Mzxid was the last to write the znode's data. It uses
	// Path and Mzxid.
	KindCheckMzxid
	// KindAdd adds to the number that is a znode's data. It uses Path, Width and Delta.
	KindAdd
	// KindEnsure creates a container, unless the path has a znode. It uses Path.
	KindEnsure
	// KindCheckLost fails unless the znode is a TTL znode, as one that lingers is, and transaction
	// Mzxid was the last to write its data. It uses Path and Mzxid.
	KindCheckLost
)

// A Width is the form of a number that is a znode's data. An empty znode is zero in every form.
type Width uint8

const (
	Int64 Width = iota // 8 bytes, big-endian, two's complement
	Int32              // 4 bytes, likewise
	Text               // decimal digits in ASCII, of 64 bits
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
	case KindConfigure:
		return "configure"
	case KindCheckMzxid:
		return "checkmzxid"
	case KindAdd:
		return "add"
	case KindEnsure:
		return "ensure"
	case KindCheckLost:
		return "checklost"
	}
	return "OpKind(" + strconv.Itoa(int(k)) + ")"
}

// An Op is one operation of a transaction. Its zero value is refused with ErrInvalidKind.
type Op struct {
	Kind OpKind
	Path string
	Data []byte     // nil and empty are kept apart
	Mode CreateMode // of a create
	// TTL is in milliseconds and only for a create: 1 to MaxTTL in a TTL mode, 0 to MaxTTL for an
	// ephemeral, 0 in every other mode.
	TTL int64
	// ACL is the list that a create or SetACL requests. Nil in a create means OpenACL.
	ACL []ACL
	// Version is the expected data version of a set, delete or check, or the expected ACL version
	// of a SetACL; AnyVersion matches all. In a check of children, it is the largest number
	// allowed.
	Version int32
	// Czxid is the creation that a guard or delete names. In a delete, zero means any.
	Czxid Zxid
	Mzxid Zxid  // the write that a check of mzxid names
	Width Width // of the number that an add changes
	Delta int64 // what an add adds
}

// A Header holds what all operations of a transaction share.
type Header struct {
	Zxid    Zxid      // place of the transaction in the order; greater than all before
	Time    int64     // wall clock in Unix milliseconds, for Ctime and Mtime
	Session SessionID // owner of the ephemerals that the transaction creates

	Identities []Identity // of the requester, for permissions and for "auth" in an ACL
	System     bool       // the ensemble's own transaction: no permission is checked
	Remote     bool       // of a client's session, to which what steers the ensemble is closed
}

// A Result is the outcome of one operation of a successful transaction. It shares no memory with
// the Op, and none that could change with the tree.
type Result struct {
	Kind OpKind
	// Path is the final path of a create, with its suffix, or of an ensure that created the znode.
	// It is empty for all else.
	Path  string
	Stat  Stat  // of a create, set, add, SetACL or an ensure that created: the znode right after it
	Value int64 // of an add: the number right after it
}

// ChangeType is what happened to a znode. The numbers are those of ZooKeeper's events, which has
// none for an ACLChanged.
type ChangeType uint8

const (
	Created     ChangeType = 1 // the znode was created
	Deleted     ChangeType = 2 // the znode was deleted
	DataChanged ChangeType = 3 // the data was set, maybe to the same bytes; or the znode now lingers
	ACLChanged  ChangeType = 5 // the ACL was set, maybe to the same list
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
	case ACLChanged:
		return "ACL changed"
	}
	return "ChangeType(" + strconv.Itoa(int(c)) + ")"
}

// A Change is one thing that a transaction did to one znode. There is no separate Change for a
// parent's list of children: it follows from Created and Deleted of the child.
//
// The lists belong to the tree: they may be kept but must not be changed. See View.MayRead.
type Change struct {
	Type  ChangeType
	Lost  bool // the znode lingers: Owner no longer owns it; fills padding after Type
	Path  string
	Owner SessionID // of the znode if it is an ephemeral, else zero

	ACL       []ACL // of the znode; if it was deleted, its last one
	ParentACL []ACL // of the parent if the znode was created or deleted
	FormerACL []ACL // of the znode before an ACLChanged
}
