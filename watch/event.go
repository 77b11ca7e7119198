package watch

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/tree"
)

// Mode says what a watch on a path sees and how long it lasts.
type Mode uint8

// The modes. A watch sees the znode at its path being created, deleted and changed whether it
// exists when the watch is added or not.
const (
	// Once sees the znode and its list of children, and ends with the first event.
	Once Mode = iota
	// Persistent sees the same, until it is closed.
	Persistent
	// Recursive sees the znode and all znodes below it, until it is closed. It is not told of
	// changed lists of children: it sees the children themselves come and go.
	Recursive
	// Data sees the znode and not its list of children, and Children its list of children and its end; they end with
	// the first event. They are ZooKeeper's, and a Client has them where a stream is Once.
	Data
	Children
)

// EventType says what happened. The numbers are ZooKeeper's.
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
	}
	return fmt.Sprintf("event type %d", uint8(t))
}

// An Event is one change as one watch sees it.
type Event struct {
	Type EventType
	Path string
	// Zxid is the transaction that made the change, or NoZxid.
	Zxid tree.Zxid
}

// NoZxid is that of an event which tells what may have happened at any time; see Client.Reset. On the wire it is -1.
const NoZxid = ^tree.Zxid(0)

// eventOf returns the event that the watches of the changed znode itself get.
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

// Why a watch ended without having been closed. Tested with errors.Is.
var (
	// ErrOverflow ends a watch whose buffer was full when an event came.
	ErrOverflow = errors.New("watch overflowed")
	// ErrTooHeavy ends a Client whose watches take more bytes than they may.
	ErrTooHeavy = errors.New("watches take too much memory")
	// ErrGap ends a watch that may have missed changes, because the tree was replaced as a whole. The
	// error is a *GapError then.
	ErrGap = errors.New("watch has a gap")
	// ErrEnded is the error of a Client that was ended without one.
	ErrEnded = errors.New("watches have ended")
)

// A GapError is an ErrGap with the zxid from where to read anew.
type GapError struct {
	// Zxid is that of the tree that replaced the one watched.
	Zxid tree.Zxid
}

// Error returns ErrGap's text with the zxid.
func (e *GapError) Error() string { return fmt.Sprintf("%v before zxid %d", ErrGap, e.Zxid) }

// Is makes a GapError an ErrGap.
func (e *GapError) Is(target error) bool { return target == ErrGap }
