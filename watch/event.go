package watch

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/tree"
)

// A Mode says what a watch on a path sees and how long the watch lasts.
type Mode uint8

// The modes. A watch sees the znode at its path being created, deleted and changed, even if the
// znode does not exist when the watch is added.
const (
	// Once sees the znode and its list of children, and ends with the first event.
	Once Mode = iota
	// Persistent sees the same until it is closed.
	Persistent
	// Recursive sees the znode and all znodes below it until it is closed. It gets no
	// NodeChildrenChanged events, since it sees the children themselves come and go.
	Recursive
	// Data sees the znode but not its list of children. Children sees the list of children and the
	// deletion of the znode. Both end with the first event. They are ZooKeeper's modes: a Client
	// has them where a stream has Once.
	Data
	Children
)

// An EventType says what happened. The numbers are ZooKeeper's.
type EventType uint8

// The event types.
const (
	// NodeCreated: the znode at the event's path was created.
	NodeCreated EventType = 1
	// NodeDeleted: the znode at the event's path was deleted.
	NodeDeleted EventType = 2
	// NodeDataChanged: the data of the znode at the event's path was set.
	NodeDataChanged EventType = 3
	// NodeChildrenChanged: a child of the znode at the event's path was created or deleted.
	NodeChildrenChanged EventType = 4
)

// What only a Client with TellMore is told: a SetACL changed whether it may read the znode at the
// event's path, or the znode at the path that it watches was created where it may not read it. Streams
// end instead, see Registry.Deliver.
const (
	ReadLost      EventType = 128
	ReadGained    EventType = 129
	CreatedHidden EventType = 130
)

// String returns ZooKeeper's name of the type.
func (t EventType) String() string {
	switch t {
	case NodeCreated:
		return "NodeCreated"
	case NodeDeleted:
		return "NodeDeleted"
	case NodeDataChanged:
		return "NodeDataChanged"
	case NodeChildrenChanged:
		return "NodeChildrenChanged"
	case ReadLost:
		return "ReadLost"
	case ReadGained:
		return "ReadGained"
	case CreatedHidden:
		return "CreatedHidden"
	}
	return fmt.Sprintf("event type %d", uint8(t))
}

// An Event is one change as one watch sees it.
type Event struct {
	Type EventType
	Path string
	// Zxid is the transaction that made the change, or NoZxid.
	Zxid tree.Zxid

	found tree.Found // of a watch with Values
}

// With returns the event with the znode as the transaction left it.
func (e Event) With(f tree.Found) Event {
	e.found = f
	return e
}

// Stat returns the Stat of the znode as the transaction left it. It returns false if the znode was
// deleted, if the watcher may not read it as the transaction left it, if the event is about the
// children of the root, or if the watch has no Values.
func (e Event) Stat() (tree.Stat, bool) {
	if e.found == (tree.Found{}) {
		return tree.Stat{}, false
	}
	return e.found.Stat(), true
}

// Data returns a copy of the znode's data as the transaction left it. It returns nil where Stat
// returns false. It also does for a NodeChildrenChanged: else each of many small children would bring
// all data of its parent along. A change of the data has its own event.
func (e Event) Data() []byte {
	if !e.hasData() {
		return nil
	}
	return e.found.Data()
}

func (e *Event) hasData() bool { return e.found != (tree.Found{}) && e.Type != NodeChildrenChanged }

// NoZxid marks an event whose change may have happened at any time; see Client.Reset. On the wire
// it is -1.
const NoZxid = ^tree.Zxid(0)

// eventOf returns the event for the watches of the changed znode itself.
func eventOf(z tree.Zxid, c tree.Change) Event {
	e := Event{Path: c.Path, Zxid: z}
	switch c.Type {
	case tree.Created:
		e.Type = NodeCreated
	case tree.Deleted:
		e.Type = NodeDeleted
	default:
		e.Type = NodeDataChanged
	}
	return e
}

// hides reports whether the event, of which a watcher of that path may not be told, must end the watch:
// the znode that it watches was created hidden. Whoever looks at the path learns that it is there.
func (e Event) hides(path string) bool { return e.Type == NodeCreated && e.Path == path }

// Why a watch ended without being closed. Test them with errors.Is.
var (
	// ErrOverflow ends a watch whose buffer had no room when an event came.
	ErrOverflow = errors.New("watch overflowed")
	// ErrTooHeavy ends a Client whose watches exceed their memory limit.
	ErrTooHeavy = errors.New("watches take too much memory")
	// ErrGap ends a watch that may have missed changes: the whole tree was replaced, a SetACL took
	// from its owner the permission to read a znode, or gave it, or the znode that it watches was
	// created without that permission. The error is then a *GapError.
	ErrGap = errors.New("watch has a gap")
	// ErrEnded is the error of a Client that was ended without one.
	ErrEnded = errors.New("watches have ended")
)

// A GapError is an ErrGap with the zxid from which to read again.
type GapError struct {
	// Zxid is the newest transaction that the watch may have missed: of the tree that replaced the
	// watched one, the SetACL, or the creation.
	Zxid tree.Zxid
}

// Error returns ErrGap's text and the zxid.
func (e *GapError) Error() string { return fmt.Sprintf("%v before zxid %d", ErrGap, e.Zxid) }

// Is makes a GapError an ErrGap.
func (e *GapError) Is(target error) bool { return target == ErrGap }
