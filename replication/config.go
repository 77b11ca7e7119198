package replication

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4/config"
)

// MemberID names a member of the ensemble. Zero is none.
type MemberID uint64

// ShardID names a Raft group, from 1 to Config.Shards.
type ShardID uint64

// Leader says who leads a shard, as far as this node knows.
type Leader struct {
	Member MemberID // zero if none is known
	Term   uint64   // the newest term this node has seen
}

// File is an open file or directory of a Disk.
type File = interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Stat() (os.FileInfo, error)
	Sync() error
}

// Disk is the node's directory behind one switch. The first mutating call that fails throws the
// switch. That call and all later ones succeed in memory, where reads see them. A failing read
// returns its error.
//
// When a mutating call that did not reach the disk returns, Failed is closed and the functions
// given to OnFail have run. OnFail accepts any number of functions.
type Disk interface {
	Create(name string) (File, error)
	OpenForRead(name string) (File, error)
	OpenForAppend(name string) (File, error)
	OpenDir(name string) (File, error)
	ReuseForWrite(oldname, newname string) (File, error)
	Link(oldname, newname string) error
	Rename(oldname, newname string) error
	Remove(name string) error
	RemoveAll(name string) error
	MkdirAll(name string) error
	List(name string) ([]string, error)
	Stat(name string) (os.FileInfo, error)
	Truncate(name string, size int64) error
	Lock(name string) (io.Closer, error)

	Fail(cause error)
	Failed() <-chan struct{}
	Err() error
	OnFail(fn func())
	Logs(match func(name string) bool)
}

// Defaults and limits.
const (
	// DefaultTick is the default of Config.Tick. An idle leader sends a heartbeat every other tick.
	DefaultTick = 50 * time.Millisecond
	// DefaultElectionTicks is the default of Config.ElectionTicks. An election starts after one to
	// two times this many ticks without a heartbeat.
	DefaultElectionTicks = 10
	// CommandMax bounds the bytes of one command. A command is one Raft entry and must fit in a
	// frame of the transport together with others.
	CommandMax = 16 << 20
	// MaxShards bounds the shards of a host. Each shard has an apply worker of its own, and
	// dragonboat can address this many.
	MaxShards = 64
)

// Transport carries messages between members. Package transport has the real one.
type Transport interface {
	// Factory returns the transport for dragonboat. It is called once.
	Factory() config.TransportFactory
	// Shut stops all traffic in both directions at once and for good, without blocking. A node
	// whose disk has failed must not vote, nor acknowledge what it holds only in memory.
	Shut()
}

// Config is what a Host is made from.
type Config struct {
	Dir    string   // the node's directory, absolute; dragonboat's files go to Dir/raft
	Disk   Disk     // gives access to everything below Dir
	Member MemberID // this member
	// Members are the founding members, this one included; empty on a member that joined later.
	Members []MemberID
	// Alone says that nobody can reach this member, the only one of its ensemble: it keeps no log for
	// others, and waits for nobody before it leads.
	Alone  bool
	Shards int // Raft groups; zero means 1

	Digest     [32]byte // founding digest, see Founding
	Names      *Names   // of the members; nil means new ones
	Deployment uint64   // separates ensembles on the wire; zero means derived from Digest

	Tick          time.Duration // unit of heartbeats and elections, at least 1 ms; zero means DefaultTick
	ElectionTicks int           // at least 5; zero means DefaultElectionTicks; not used by a member that is alone

	Transport Transport    // carries messages between members; its targets are UUIDs, see UUID
	Logger    *slog.Logger // nil means slog.Default

	// KeepEntries is how many entries a cut of the log leaves for members that lag. Zero means the
	// rule in compaction.go. Tests set it to make a member need the whole state.
	KeepEntries uint64

	// LeaderChanged is called for every change of leader or term of a shard, in order, from one
	// goroutine. By then Host.Leader returns the same. It must not block, and must not wait for
	// Host.Close, which waits for it. The first call may come before Open returns. Nil means that
	// nothing is called.
	LeaderChanged func(ShardID, Leader)

	// Removed is called when this member applies its own removal from a shard. Nothing that stands
	// behind the removal is applied before it returns, and the shard's machine is closed soon after.
	// So it is the place to end the node. It must not wait for the Host. Nil means that nothing is
	// called.
	Removed func(ShardID)
}

// withDefaults returns c with the default in every zero field that has one.
func (c Config) withDefaults() Config {
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Deployment == 0 {
		c.Deployment = deployment(c.Digest)
	}
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	if c.ElectionTicks == 0 {
		c.ElectionTicks = DefaultElectionTicks
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.LeaderChanged == nil {
		c.LeaderChanged = func(ShardID, Leader) {}
	}
	if c.Removed == nil {
		c.Removed = func(ShardID) {}
	}
	if c.Names == nil {
		c.Names = NewNames(c.Digest)
	}
	return c
}

// Validate reports every problem of c at once and changes nothing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !filepath.IsAbs(c.Dir) {
		bad("dir %q is not absolute", c.Dir)
	}
	if c.Disk == nil {
		bad("no disk")
	}
	if c.Member == 0 {
		bad("member is 0")
	}
	if len(c.Members) > 0 && !slices.Contains(c.Members, c.Member) {
		bad("member %d is not among the members %v", c.Member, c.Members)
	}
	if slices.Contains(c.Members, 0) {
		bad("members %v contain 0", c.Members)
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(c.Members)))); n != len(c.Members) {
		bad("members %v name one twice", c.Members)
	}
	if c.Shards < 1 || c.Shards > MaxShards {
		bad("shards %d is not in 1..%d", c.Shards, MaxShards)
	}
	if c.Tick < time.Millisecond {
		bad("tick %v is below 1ms", c.Tick)
	}
	if c.ElectionTicks < 5 {
		bad("election ticks %d is below 5", c.ElectionTicks)
	}
	if c.Transport == nil {
		bad("no transport")
	}
	return errors.Join(errs...)
}

// joined reports whether this member is none of the founders.
func (c Config) joined() bool { return len(c.Members) == 0 }

// RaftName is the name of dragonboat's directory within a member's.
const RaftName = "raft"

// raftDir returns dragonboat's directory.
func (c Config) raftDir() string { return filepath.Join(c.Dir, RaftName) }
