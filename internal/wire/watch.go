package wire

// EventType says what happened.
type EventType int32

// The types of events. EventNone and those from DataWatchRemoved on belong to client libraries.
// They are never sent.
const (
	EventNone              EventType = -1
	NodeCreated            EventType = 1
	NodeDeleted            EventType = 2
	NodeDataChanged        EventType = 3
	NodeChildrenChanged    EventType = 4
	DataWatchRemoved       EventType = 5
	ChildWatchRemoved      EventType = 6
	PersistentWatchRemoved EventType = 7
)

// State is the state of a client's connection, in an event. A server always sends
// StateSyncConnected. The others belong to client libraries.
type State int32

// The states.
const (
	StateDisconnected      State = 0
	StateSyncConnected     State = 3
	StateAuthFailed        State = 4
	StateConnectedReadOnly State = 5
	StateSASLAuthenticated State = 6
	StateClosed            State = 7
	StateExpired           State = -112
)

// Event is what a client learns from a watch.
type Event struct {
	Type  EventType
	State State
	Path  string
	// Znode is the znode as the change left it. It belongs to an OpNativeEvent only, and is zero if
	// the event has none. Its Path is not on the wire.
	Znode NativeZnode
}

func (e *Event) record(c *coder) {
	i32(c, &e.Type)
	i32(c, &e.State)
	c.text(&e.Path)
}

func (e *Event) native(c *coder) {
	e.record(c)
	c.bytes(&e.Znode.Data)
	e.Znode.Stat.record(c)
}

// WatchMode says how much a watch of addWatch sees. A watch of a read lasts until its first event.
type WatchMode int32

// The modes of addWatch.
const (
	WatchPersistent WatchMode = 0
	WatchRecursive  WatchMode = 1
)

// WatchKind says which watches of a path checkWatches and removeWatches mean.
type WatchKind int32

// The kinds of watches: of getChildren, of getData and exists, of any kind, and of addWatch's two
// modes.
const (
	KindChildren   WatchKind = 1
	KindData       WatchKind = 2
	KindAny        WatchKind = 3
	KindPersistent WatchKind = 4
	KindRecursive  WatchKind = 5
)

// Watches are the watches that a client had before it connected again.
type Watches struct {
	Zxid       int64 // the newest that the client saw in a reply
	Data       []string
	Exist      []string
	Child      []string
	Persistent []string // only in setWatches2, like Recursive
	Recursive  []string
}

func (w *Watches) record(c *coder, op Op) {
	c.i64(&w.Zxid)
	c.texts(&w.Data)
	c.texts(&w.Exist)
	c.texts(&w.Child)
	if op == OpSetWatches2 {
		c.texts(&w.Persistent)
		c.texts(&w.Recursive)
	}
}
