package embed

import (
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// The vocabulary. Each type is declared in the package that has its rules. The comments list the
// fields, because go doc shows none for an alias; a test compares the lists with the types.
type (
	// MemberID names a member of the ensemble. Zero names none; see also Config.ID.
	MemberID = engine.MemberID
	// Zxid is a transaction's place in the order of transactions. Compare zxids of one shard only.
	Zxid = tree.Zxid
	// SessionID names a session. It is never used again. Zero names none.
	SessionID = tree.SessionID
	// Stat describes a znode, with ZooKeeper's fields and their meaning. It is a copy: it does not
	// change when the znode does.
	//
	//	Czxid          Zxid      // the transaction that created the znode
	//	Mzxid          Zxid      // the transaction that last wrote its data
	//	Pzxid          Zxid      // the newest create or delete of a child; at first Czxid
	//	Ctime          time.Time // of Czxid, by the sending member's clock: UTC, in milliseconds
	//	Mtime          time.Time // of Mzxid, likewise
	//	Version        int32     // writes of the data: 0 at first, one more for each Set
	//	Cversion       int32     // children created plus children deleted
	//	Aversion       int32     // writes of the ACL
	//	EphemeralOwner SessionID // the session that owns an ephemeral; zero for other znodes
	//	DataLength     int32     // bytes of data
	//	NumChildren    int32     // direct children
	Stat = tree.Stat
	// CreateMode says how long a znode lives and whether its name gets a sequence suffix.
	CreateMode = tree.CreateMode
	// ACL is one entry of a znode's access control list. It says what sessions may do whose
	// identity matches its scheme and id. Entries only allow, and their order has no meaning.
	//
	//	Perms  Perms  // what the entry allows, a sum of Perm constants; zero allows nothing
	//	Scheme string // "world", "auth", "digest", "ip", or one of Config.Schemes
	//	ID     string // world: "anyone"; auth: empty; digest: see Digest; ip: an address or network
	ACL = tree.ACL
	// Perms is what an ACL allows: a sum of Perm constants.
	Perms = tree.Perms
	// Width is the form of a number that OpAdd changes.
	Width = tree.Width
	// Result is the answer of one operation of a transaction.
	//
	//	Kind  tree.OpKind // the kind of operation; its String is a word, such as "create"
	//	Path  string      // after a create: the final path, with its sequence number; else empty
	//	Stat  Stat        // after a create, a set or an add: of the znode; else zero
	//	Value int64       // after an add: the sum
	Result = tree.Result
	// MultiError says which operation made a Multi fail. No operation was applied. errors.Is finds
	// the error that it wraps.
	//
	//	Index int   // of the first operation that failed, from 0
	//	Err   error // why it failed, such as ErrNoNode
	MultiError = tree.MultiError
	// State is the state of a session, as its own node sees it.
	State = session.State
	// WatchMode says which changes a watch sees, and how long it lasts.
	WatchMode = watch.Mode
	// EventType says what happened. The numbers are ZooKeeper's.
	EventType = watch.EventType
	// Event is one change that a watch saw.
	//
	//	Type EventType // what happened
	//	Path string    // the znode, below the session's Root; for NodeChildrenChanged the parent
	//	Zxid Zxid      // the transaction: reads show it by now, and Stats compare with it
	//
	// Its methods Data and Stat show the znode as the transaction left it, if the watch has
	// WatchOptions.Values. For a NodeDeleted, and for a NodeChildrenChanged of the root, Data is nil
	// and Stat returns false. They also do so after a transaction that deleted the znode again, and
	// in an event that stands for a gap. Data is nil for every NodeChildrenChanged: a change of the
	// data has its own event.
	Event = watch.Event
	// GapError is an ErrWatchGap, as errors.Is tells, that says how far the gap reaches.
	//
	//	Zxid Zxid // the watch may have missed changes up to here; reads of this node show them
	GapError = watch.GapError
	// BackupInfo says what a backup has.
	//
	//	Time     time.Time     // when it began, by the clock of Member, in UTC
	//	Ensemble string        // Config.Ensemble
	//	Lineage  string        // of the ensemble, in hex; empty if it has chosen none
	//	Level    int           // the feature level that a reader needs
	//	Member   MemberID      // who made it
	//	Members  []MemberID    // of the ensemble
	//	Shards   []BackupShard // all, in order
	//	Znodes   int           // of all shards
	//	Size     int64         // bytes of the file
	//	Sum      string        // SHA-256 of the file in hex, as sha256sum prints it
	BackupInfo = engine.BackupInfo
	// BackupShard says what a backup has of one shard.
	//
	//	Shard  int  // from 1
	//	Zxid   Zxid // everything up to this transaction is in the backup, and nothing after it
	//	Znodes int  // that the backup has of the shard
	BackupShard = engine.BackupShard
	// Candidate is what a node that wants to join says of itself; see Config.Admit.
	//
	//	Name     string // Config.Name
	//	Zone     string // Config.Zone
	//	Address  string // Config.Advertise
	//	Observer bool   // Config.Observer
	Candidate = engine.Candidate
)

// Create modes.
const (
	// Persistent lives until it is deleted.
	Persistent = tree.Persistent
	// Ephemeral is deleted when its session ends, or lingers: see CreateOptions. It has no
	// children.
	Ephemeral = tree.Ephemeral
	// Sequential is persistent. Its name ends in the parent's create counter.
	Sequential = tree.Sequential
	// EphemeralSequential is both Ephemeral and Sequential.
	EphemeralSequential = tree.EphemeralSequential
	// Container is persistent. The ensemble removes it once its last child is gone, or after
	// minutes without any.
	Container = tree.Container
	// TTL is persistent. The ensemble removes it after its TTL without children and without a Set.
	TTL = tree.TTL
	// SequentialTTL is both Sequential and TTL.
	SequentialTTL = tree.SequentialTTL
)

// Permissions.
const (
	PermRead   = tree.Read     // of a znode: its data, Stat and children, and events of its changes
	PermWrite  = tree.Write    // of a znode: Set
	PermCreate = tree.Create   // of a parent: creating children
	PermDelete = tree.Delete   // of a parent: deleting children
	PermAdmin  = tree.Admin    // of a znode: SetACL
	PermAll    = tree.PermsAll // all of them
)

// AnyVersion, as an expected version, matches every version.
const AnyVersion = tree.AnyVersion

// Widths of numbers.
const (
	Int64 = tree.Int64 // 8 bytes, big-endian: Curator's DistributedAtomicLong
	Int32 = tree.Int32 // 4 bytes, big-endian: Curator's SharedCount and DistributedAtomicInteger
	Text  = tree.Text  // decimal digits in ASCII, of 64 bits: kazoo's Counter with whole numbers
)

// Watch modes.
const (
	WatchOnce       = watch.Once       // this znode and its child list, until the first event
	WatchPersistent = watch.Persistent // this znode and its child list, until closed
	WatchRecursive  = watch.Recursive  // this znode and all below it, without child lists, until closed
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
	Connected = session.Connected // the ensemble cannot have expired the session
	Suspended = session.Suspended // it may have: all holds are lost; the session may come back
	Expired   = session.Expired   // the timeout passed in silence
	Closed    = session.Closed    // its owner or its node closed it
)
