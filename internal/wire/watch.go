package wire

// EventType says what happened.
type EventType int32

// The types of events. Those from DataWatchRemoved on, and EventNone, are a client library's own and never sent.
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

// State is a client's connection in an event. A server always says StateSyncConnected; the others are a client library's own.
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

// Event is what a watch tells.
type Event struct {
	Type  EventType
	State State
	Path  string
}

func (e *Event) record(c *coder) {
	i32(c, &e.Type)
	i32(c, &e.State)
	c.text(&e.Path)
}

// WatchMode says how much a watch of addWatch sees. The watches of reads last until their first event.
type WatchMode int32

// The modes of addWatch.
const (
	WatchPersistent WatchMode = 0
	WatchRecursive  WatchMode = 1
)

// WatchKind says which watches of a path checkWatches and removeWatches are about.
type WatchKind int32

// The kinds of watches: those of getChildren, those of getData and exists, all, and those of addWatch.
const (
	KindChildren   WatchKind = 1
	KindData       WatchKind = 2
	KindAny        WatchKind = 3
	KindPersistent WatchKind = 4
	KindRecursive  WatchKind = 5
)

// Watches are what a client that has connected again had before.
type Watches struct {
	Zxid       int64 // the last that it saw in a reply
	Data       []string
	Exist      []string
	Child      []string
	Persistent []string // of setWatches2 only, as Recursive
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
