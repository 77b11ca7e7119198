package disk

// Op is a kind of call: one that changes something, or one that only reads.
type Op uint8

// The mutating calls, by what they do to the directory.
const (
	OpCreate    Op = iota + 1 // a file is created, or replaced by an empty one
	OpAppend                  // an existing file is opened for writing
	OpWrite                   // bytes are written
	OpSync                    // a file is made durable
	OpSyncDir                 // a directory's names are made durable
	OpRename                  // a file or directory gets another name
	OpLink                    // a file gets a second name
	OpRemove                  // a name is removed
	OpRemoveAll               // a name and everything below it are removed
	OpMkdir                   // a directory is made
	OpLock                    // a lock file is created and locked
	OpTruncate                // the end of a file is cut off
)

// The calls that read.
const (
	OpOpen Op = OpTruncate + 1 + iota // a file or a directory is opened for reading
	OpRead                            // bytes are read
	OpList                            // the names in a directory are read
	OpStat                            // a name is looked up
)

var opNames = [...]string{
	OpCreate:    "create",
	OpAppend:    "append",
	OpWrite:     "write",
	OpSync:      "sync",
	OpSyncDir:   "syncdir",
	OpRename:    "rename",
	OpLink:      "link",
	OpRemove:    "remove",
	OpRemoveAll: "removeall",
	OpMkdir:     "mkdir",
	OpLock:      "lock",
	OpTruncate:  "truncate",
	OpOpen:      "open",
	OpRead:      "read",
	OpList:      "list",
	OpStat:      "stat",
}

// Reads reports whether the call changes nothing.
func (op Op) Reads() bool { return op >= OpOpen }

// String returns the name of the call.
func (op Op) String() string {
	if int(op) < len(opNames) && opNames[op] != "" {
		return opNames[op]
	}
	return "unknown"
}
