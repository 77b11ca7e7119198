package embed

import (
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// The vocabulary, declared where its rules live. The fields are listed here too, for documentation shows none of another name;
// a test holds the lists against the types.
type (
	// MemberID names a member of the ensemble; zero means 1 in a Config and none elsewhere.
	MemberID = engine.MemberID
	// Zxid is the order of transactions; compare zxids of one shard only.
	Zxid = tree.Zxid
	// SessionID names a session; it is never used again. Zero is none.
	SessionID = tree.SessionID
	// Stat is what a znode says of itself besides its data: ZooKeeper's fields with ZooKeeper's meaning.
	// It is a plain value, a copy as of the moment it was asked for.
	//
	//	Czxid          Zxid      // the transaction that created the znode
	//	Mzxid          Zxid      // the transaction that last wrote its data
	//	Pzxid          Zxid      // the transaction that last created or deleted a child; at first Czxid
	//	Ctime          time.Time // of Czxid: by the clock of the member that sent it, UTC, to the millisecond
	//	Mtime          time.Time // of Mzxid, likewise
	//	Version        int32     // writes of the data: 0 at first, one more for each Set
	//	Cversion       int32     // children created plus children deleted
	//	Aversion       int32     // writes of the ACL
	//	EphemeralOwner SessionID // the session that an ephemeral belongs to; zero for every other znode
	//	DataLength     int32     // bytes of data
	//	NumChildren    int32     // children, those below them not counted
	Stat = tree.Stat
	// CreateMode says how long a znode lives and whether its name gets a sequence suffix.
	CreateMode = tree.CreateMode
	// ACL is one entry of a znode's list: what those whose identity fits its scheme and id may do. Entries
	// only allow, and their order has no meaning.
	//
	//	Perms  Perms  // what it allows, a sum of the Perm constants; zero allows nothing
	//	Scheme string // "world", "auth", "digest", "ip", or one of Config.Schemes
	//	ID     string // "anyone" of world, nothing of auth, what Digest returns, an address or network; else the Scheme's
	ACL = tree.ACL
	// Perms is what an ACL's entry allows, a sum of the Perm constants.
	Perms = tree.Perms
	// Result is what one operation of a transaction answers: the final path and the Stat after it.
	//
	//	Kind tree.OpKind // what the operation was; its String is a word, such as "create"
	//	Path string      // of a create: the final path, with its sequence number; else empty
	//	Stat Stat        // of a create or a set: the znode right after it; else zero
	Result = tree.Result
	// MultiError says which operation made a Multi fail. None of them was applied. errors.Is finds what it wraps.
	//
	//	Index int   // of the first operation that failed, from 0
	//	Err   error // what it failed with, such as ErrNoNode
	MultiError = tree.MultiError
	// State is where a session stands, as its own node sees it.
	State = session.State
	// WatchMode says how much a watch sees and how long it lasts.
	WatchMode = watch.Mode
	// EventType is what an event tells; the numbers are ZooKeeper's.
	EventType = watch.EventType
	// Event is one change that a watch saw.
	//
	//	Type EventType // what happened
	//	Path string    // the znode it happened to, below the session's Root; of NodeChildrenChanged the parent
	//	Zxid Zxid      // the transaction that did it: reads show it by now, and Stats compare with it
	Event = watch.Event
	// GapError is ErrWatchGap, to errors.Is, with the place from where to read anew.
	//
	//	Zxid Zxid // of the state that reads of this node show since: what happened up to there may be missed
	GapError = watch.GapError
)

// Create modes.
const (
	Persistent          = tree.Persistent          // lives until it is deleted
	Ephemeral           = tree.Ephemeral           // belongs to its session and goes with it, or lingers: see CreateOptions; has no children
	Sequential          = tree.Sequential          // persistent, its name ends in the parent's create counter
	EphemeralSequential = tree.EphemeralSequential // both
	Container           = tree.Container           // persistent, and reaped once its last child is gone, or after minutes without any
	TTL                 = tree.TTL                 // persistent, and reaped when it has had no children and no Set for its TTL
	SequentialTTL       = tree.SequentialTTL       // both
)

// Permissions.
const (
	PermRead   = tree.Read     // of a znode: its data, Stat and children, and being told of changes
	PermWrite  = tree.Write    // of a znode: Set
	PermCreate = tree.Create   // of a parent: creating children
	PermDelete = tree.Delete   // of a parent: deleting children
	PermAdmin  = tree.Admin    // of a znode: SetACL
	PermAll    = tree.PermsAll // all of them
)

// AnyVersion as an expected version means that every version will do.
const AnyVersion = tree.AnyVersion

// Watch modes.
const (
	WatchOnce       = watch.Once       // this znode and its child list, until the first event
	WatchPersistent = watch.Persistent // this znode and its child list, until closed
	WatchRecursive  = watch.Recursive  // this znode and all below it, without child-list events, until closed
)

// Event types.
const (
	NodeCreated         = watch.NodeCreated
	NodeDeleted         = watch.NodeDeleted
	NodeDataChanged     = watch.NodeDataChanged
	NodeChildrenChanged = watch.NodeChildrenChanged
)

// Session states. Expired and Closed are final.
const (
	Connected = session.Connected // the ensemble cannot have given the session up
	Suspended = session.Suspended // it may have: whatever was held is lost, though the session may come back
	Expired   = session.Expired   // it ended for its silence
	Closed    = session.Closed    // its owner or its node ended it
)
