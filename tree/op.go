package tree

import "strconv"

// CreateMode says how long a znode lives and whether its name gets a sequence suffix. The numbers are ZooKeeper's
// flags; the zero value is Persistent.
type CreateMode uint8

const (
	Persistent          CreateMode = 0 // lives until it is deleted
	Ephemeral           CreateMode = 1 // belongs to a session and goes with it; has no children
	Sequential          CreateMode = 2 // persistent, its name ends in the parent's create counter
	EphemeralSequential CreateMode = 3 // ephemeral, its name ends in the parent's create counter
)

// IsEphemeral reports whether a znode of this mode belongs to a session.
func (m CreateMode) IsEphemeral() bool { return m == Ephemeral || m == EphemeralSequential }

// IsSequential reports whether a name of this mode gets a sequence suffix.
func (m CreateMode) IsSequential() bool { return m == Sequential || m == EphemeralSequential }

// Validate returns ErrInvalidMode if the mode is none of the constants above.
func (m CreateMode) Validate() error {
	if m > EphemeralSequential {
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
	}
	return "CreateMode(" + strconv.Itoa(int(m)) + ")"
}

// AnyVersion as the expected version of an Op means that every version will do.
const AnyVersion int32 = -1

// OpKind is what an Op does. The zero value is no kind, so that a forgotten Op is refused.
type OpKind uint8

const (
	KindCreate OpKind = iota + 1 // adds a znode; uses Path, Data and Mode
	KindSet                      // replaces a znode's data; uses Path, Data and Version
	KindDelete                   // removes a znode; uses Path and Version
	KindCheck                    // fails unless the znode has the version; uses Path and Version
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
	}
	return "OpKind(" + strconv.Itoa(int(k)) + ")"
}

// An Op is one operation of a transaction. Its zero value is refused with ErrInvalidKind.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte     // nil and empty are kept apart
	Mode    CreateMode // of a create
	Version int32      // expected data version of a set, delete or check; AnyVersion: not checked
}

// A Header is what all operations of a transaction share.
type Header struct {
	Zxid    Zxid      // the transaction's place in the order; greater than every earlier one's
	Time    int64     // wall clock in Unix milliseconds, for Ctime and Mtime
	Session SessionID // owner of the ephemerals it creates
}

// A Result is what one operation of a transaction that succeeded has to say. Results share nothing with the tree that
// could change, nor with the Op.
type Result struct {
	Kind OpKind
	Path string // of a create: the final path, with its suffix; else empty
	Stat Stat   // of a create or set: the znode right after this operation; else zero
}

// ChangeType is what happened to a znode. The numbers are those of ZooKeeper's events.
type ChangeType uint8

const (
	Created     ChangeType = 1 // the znode came into being
	Deleted     ChangeType = 2 // the znode went
	DataChanged ChangeType = 3 // the znode's data was set, perhaps to the same bytes
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
// own: it follows from Created and Deleted of the child.
type Change struct {
	Type  ChangeType
	Path  string
	Owner SessionID // of the znode if it is an ephemeral, else zero
}
