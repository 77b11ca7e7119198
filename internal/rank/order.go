package rank

import "reflect"

// The places of the order, from the top down. engine/doc.go lists them too and says what each lock
// is for.
type (
	// Of the recipes.

	Balance   struct{} // what a process leads in an election.Share
	Candidate struct{} // an election.Candidate
	Latch     struct{} // an election.Latch
	Keys      struct{} // which locks a lock.Keys keeps
	Kept      struct{} // a lock.Mutex that is kept
	View      struct{} // the history of a view.View
	Lookout   struct{} // which tasks the callers of a task.Queue try

	// Of the admin handler.

	Lending struct{} // the sessions of an admin.Handler
	Guests  struct{} // the connections of its server

	// Of the client.

	ClientSession struct{} // a session behind a connection
	Servers       struct{} // where a client connects

	// Of the gateway.

	ReadOnly   struct{} // which connections may only read
	Gateway    struct{} // its connections
	Throttle   struct{} // how many new sessions it may open
	Connection struct{} // a connection's queue
	Refusals   struct{} // which refusals were logged

	// Of a node.

	Replica      struct{} // a shard's replicated state
	Keeper       struct{} // this node's sessions
	Registry     struct{} // a shard's watches; several in the order of the shards
	Announcement struct{} // a transaction whose watches are being told
	Joint        struct{} // a watch on several shards
	Client       struct{} // the events of a remote client
	Pin          struct{} // which zxids of a tree are pinned
	Outbox       struct{} // a shard's requests
	ShardPurger  struct{} // what a shard has purged
	Leaders      struct{} // the leaders that observers know
	Notifier     struct{} // calls of Events
	Auditor      struct{} // calls of Config.Audit
	Identity     struct{} // the identity file
	End          struct{} // why the node failed
	Book         struct{} // where members may be
	Certificates struct{} // one reading of a certs.Store's files

	// Of replication.

	Host        struct{} // calls of dragonboat, against its end
	Starting    struct{} // a shard's start
	Barrier     struct{} // a shard's readers
	Retention   struct{} // a shard's log: where to cut it
	Leader      struct{} // a shard's leader
	Hosts       struct{} // the hosts of the process
	Directories struct{} // the directories of the process
	LogTurn     struct{} // one call of the logs
	LogShards   struct{} // what is known of each log
	ShardLog    struct{} // what is known of one
	Handles     struct{} // the open files

	// Of the image.

	Installing struct{} // one install
	Pointing   struct{} // one write of the pointer
	Snapshot   struct{} // one write of a snapshot
	Image      struct{} // the image's state

	// Of the disk.

	Reading struct{} // one Read of an open file at a time
	Writer  struct{} // one write to a log
	File    struct{} // an open file
	Overlay struct{} // what memory alone has
	Nodes   struct{} // the files
	Node    struct{} // a file
	Disk    struct{} // the switch
	Dirs    struct{} // the directories that must be there
	Lack    struct{} // how long calls wait

	// Of the transport, which the disk's switch shuts.

	Link      struct{} // the link to a peer
	Transport struct{} // all connections
	Promises  struct{} // what the peers have promised
	Notices   struct{} // what was logged
	Slow      struct{} // what was slow lately
	Recent    struct{} // what happened lately
	Lines     struct{} // the lines that wait for the logger
	Faults    struct{} // for tests
	Mesh      struct{} // for tests
	Pipe      struct{} // for tests
)

// A Place is one line of the order.
type Place struct {
	Type reflect.Type
	Name string // as engine/doc.go has it
}

// Order returns all places, from the top down.
func Order() []Place {
	return []Place{
		at[Balance]("election.balance"), at[Candidate]("election.Candidate"), at[Latch]("election.Latch"), at[Keys]("lock.Keys"), at[Kept]("lock.kept"), at[View]("view.View"), at[Lookout]("task.lookout"),
		at[Lending]("admin.lending"), at[Guests]("crowd.Listener"),
		at[ClientSession]("client.session"), at[Servers]("client.Client"),
		at[ReadOnly]("gateway.readOnly"), at[Gateway]("gateway.Gateway"), at[Throttle]("gateway.throttle"), at[Connection]("gateway.conn"), at[Refusals]("gateway.refusals"),
		at[Replica]("replica.mu"),
		at[Keeper]("keeper.mu"),
		at[Registry]("watch registry"),
		at[Announcement]("tree.announcement"),
		at[Joint]("watch.Joint"), at[Client]("watch.Client"),
		at[Pin]("tree.pin"),
		at[Outbox]("outbox.mu"),
		at[ShardPurger]("shardPurger.mu"),
		at[Leaders]("leaders"),
		at[Notifier]("embed.notifier"),
		at[Auditor]("embed.auditor"),
		at[Identity]("datadir.IdentityFile"), at[End]("Engine.end"), at[Book]("roster.book"), at[Certificates]("certs.Store"),

		at[Host]("replication.Host"), at[Starting]("shard.starting"), at[Barrier]("barrier.mu"), at[Retention]("retention.mu"), at[Leader]("shard.mu"),
		at[Hosts]("logBridge.mu"), at[Directories]("replication.locked"),
		at[LogTurn]("logStore.turn"), at[LogShards]("logStore.mu"), at[ShardLog]("shardLog.mu"), at[Handles]("fileSystem.mu"),

		at[Installing]("Image.installing"), at[Pointing]("Image.pointing"), at[Snapshot]("storage.Snapshot"), at[Image]("storage.Image"),

		at[Reading]("file.reading"), at[Writer]("node.writer"), at[File]("file.mu"), at[Overlay]("overlay.mu"), at[Nodes]("nodes.mu"), at[Node]("node.mu"), at[Disk]("disk.Disk"),
		at[Dirs]("dirs.mu"), at[Lack]("lack.mu"),

		at[Link]("transport.link"), at[Transport]("transport.Transport"), at[Promises]("promises.mu"), at[Notices]("notices.mu"), at[Slow]("health.Slowness"), at[Recent]("health.Recent"), at[Lines]("lines.Queue"), at[Faults]("transporttest.Faults"), at[Mesh]("transporttest.Mesh"), at[Pipe]("transporttest.pipe"),
	}
}

func at[L any](name string) Place { return Place{reflect.TypeFor[L](), name} }
