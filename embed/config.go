package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/configfile"
)

// Defaults of Config and SessionOptions.
const (
	// DefaultTick is 50 ms. An election takes 10 to 24 ticks.
	DefaultTick                   = engine.DefaultTick
	DefaultRequestTimeout         = engine.DefaultRequestTimeout         // 5 s
	DefaultSessionTimeout         = engine.DefaultSessionTimeout         // 10 s
	DefaultMaxSessionTimeout      = engine.DefaultMaxTimeout             // 60 s
	DefaultMaxDataSize            = engine.DefaultMaxDataSize            // 1 MiB
	DefaultContainerCheckInterval = engine.DefaultContainerCheckInterval // a minute
	DefaultVoters                 = 3
	DefaultDeadAfter              = 10 * time.Minute
)

// MaxShards bounds Config.Shards.
const MaxShards = engine.MaxShards

// Config describes one node. Config{Dir: d} is a complete ensemble of one member, which opens no
// port. Config is passed by value. Zero fields mean the documented defaults.
type Config struct {
	// Dir holds everything the node persists. It is created if missing, and belongs to this node
	// while the node is open. A relative Dir is below the working directory at the time of Start.
	Dir string `yaml:"dir"`
	// ID says which of the Members this one is. If it is zero, Advertise says it: a process that is at
	// none of their addresses joins as a new member. One of the two has to be there. For a node that
	// is alone, zero means 1.
	//
	// Ids begin at 1. The ordinals of a StatefulSet begin at 0: add 1 to them, here and in Members,
	// as ExampleConfig_statefulSet does.
	ID MemberID `yaml:"id"`
	// Members are the ids of the founding members with the host:port of each, this member included.
	// They found the ensemble together, once all of them are there, with empty directories, and all
	// addresses in Join answer. The ids are the same on every member. If Members and Join are empty,
	// the node is alone, and opens no port.
	//
	// ID and Members count only until the ensemble is founded. Later the ensemble knows its members
	// by itself: others join, leave, and are replaced, and addresses change at any restart. A process
	// whose directory was emptied, a founder too, joins as a new member, with a new id.
	Members map[MemberID]string `yaml:"members"`
	// Join are addresses at which a node whose directory is empty asks for the ensemble: each a
	// host:port, whose host may be a name that stands for several. The node becomes a learner, and
	// serves as soon as it has loaded the data. The ensemble makes some of the learners voters; see
	// Voters. Empty means the addresses in Members. docs/scaling.md has examples.
	Join []string `yaml:"join"`
	// Advertise is the host:port at which other members reach this one. Empty means Members[ID].
	Advertise string `yaml:"advertise"`
	// Name is what people call this replica of the service, such as a pod's name. If a new member
	// joins under the name of one that has gone, it takes that one's place at once. The name of a
	// member that answers, or was admitted within 30 seconds and has yet to come, is refused, and
	// Status.Joining says so. The name counts when the member joins. A founder may be given one later,
	// which no other member has. Empty means "founder-2" for number 2 of Members, and for others none:
	// then nobody takes the member's place by name.
	Name string `yaml:"name"`
	// Zone names what fails together, such as a rack. New voters are chosen from the zone that has
	// the fewest.
	Zone string `yaml:"zone"`
	// Observer keeps the member a learner: it never votes. It counts when the member joins. A later
	// value changes nothing, and the node logs a warning: to change it, let the member Leave, and join
	// as a new one.
	Observer bool `yaml:"observer"`
	// Ephemeral says that the directory ends with the process. Then Shutdown leaves the ensemble, as
	// Leave does. Its error says if the member has to remain.
	Ephemeral bool `yaml:"ephemeral"`
	// Voters is how many members should vote: 1, 3, 5, 7 or 9; zero means DefaultVoters. Those beyond
	// are learners, which take the place of voters that are lost. If there are fewer members, the
	// largest odd number of them votes. The setting of the member counts that leads the first shard,
	// so set it equally on all.
	Voters int `yaml:"voters"`
	// DeadAfter is how long a voter must be silent before a learner takes its place for good. Zero
	// means DefaultDeadAfter, and a negative value never. Less than twice MaxSessionTimeout is
	// refused. If there is no learner, nobody is replaced. A member that does not vote is out after
	// this silence too, but not before an hour.
	DeadAfter time.Duration `yaml:"deadAfter"`
	// Found decides instead of Members whether an empty directory founds the ensemble, as its only
	// member at first. It is asked when no member of an ensemble answers. It must be true once in
	// the life of the ensemble, whoever asks, as a create-if-absent in something that outlives the
	// processes is. It may be asked again after a crash: then it must say to the same Dir what it
	// said before. Until it is true somewhere, nodes wait, and Status.Joining says for what. A panic
	// counts as an error. Nil means that Members decide.
	Found func(context.Context) (bool, error) `yaml:"-"`
	// Admit may refuse a node that wants to join; the node is told the error. It is called on the
	// member that leads, by one goroutine for each node that asks, and must return when ctx ends. A
	// panic counts as an error. Nil admits every node that may speak as a member.
	Admit func(context.Context, Candidate) error `yaml:"-"`
	// Listen is the host:port to bind. Empty means the address in Members[ID] if its host is an IP
	// address or localhost. If its host is any other name, empty means its port on all interfaces.
	// A node never looks up its own name, because a pod's name resolves only once the pod is ready.
	//
	// Without TLS, anyone who reaches the port can speak as a member. So give an IP address here if
	// others can reach the machine. A node looks up the names of the other members at every dial,
	// until they resolve.
	Listen string `yaml:"listen"`
	// Ensemble is the ensemble's name. Members with different names do not talk to each other. The
	// name is fixed when the ensemble is founded.
	Ensemble string `yaml:"ensemble"`
	// Shards is the number of Raft groups over which the tree is spread, at most MaxShards. It is
	// the same on every member and fixed when the ensemble is founded. Zero means 1, which has
	// ZooKeeper's semantics over the whole tree. With more, the first component of a path chooses
	// the shard, and promises hold within each shard: see the package doc.
	Shards int `yaml:"shards"`
	// TLS encrypts and authenticates the traffic between members; nil means plain text, which anyone
	// on the way can read and change.
	TLS *TLS `yaml:"tls"`

	// Tick is the unit of heartbeats and elections; zero means DefaultTick. It should be the same
	// on every member. If the ticks of members differ, they log a warning. If they differ by more
	// than a factor of two, the members refuse one another, and both log it. So you can change Tick
	// while the ensemble runs: restart the members one at a time, and at most double or halve Tick
	// in each round.
	Tick time.Duration `yaml:"tick"`
	// RequestTimeout bounds calls whose ctx has no deadline; zero means DefaultRequestTimeout. It
	// does not apply to calls that are meant to wait; see Session. Node.Close says how it bounds
	// Close.
	RequestTimeout time.Duration `yaml:"requestTimeout"`
	// SessionTimeout is the timeout of sessions that ask for none, those of lock.Do and election.Run
	// included. It says how long the others wait for a process that died. docs/sessions.md has what
	// each choice costs and risks. Zero means DefaultSessionTimeout, or the nearest timeout within
	// MinSessionTimeout and MaxSessionTimeout. Any other value must be within them. It does not
	// concern clients of a gateway, which always ask for a timeout.
	SessionTimeout time.Duration `yaml:"sessionTimeout"`
	// MinSessionTimeout is the least timeout that a session can have. Zero means three times the
	// longest election at this Tick, which is 3.6 s with the default Tick. Less is refused, because
	// then every crash of a leader would expire all sessions.
	MinSessionTimeout time.Duration `yaml:"minSessionTimeout"`
	// MaxSessionTimeout is the greatest timeout that a session can have. Zero means
	// DefaultMaxSessionTimeout, or MinSessionTimeout if that is more.
	MaxSessionTimeout time.Duration `yaml:"maxSessionTimeout"`
	// MaxDataSize bounds the bytes of a znode's data, at most 8 MiB; zero means DefaultMaxDataSize.
	MaxDataSize int `yaml:"maxDataSize"`
	// MaxTreeSize bounds the memory, in bytes, that the znodes of each shard use. A write that
	// would exceed it fails with ErrQuotaExceeded, for every caller. ShardStatus.TreeSize says how
	// much the znodes use now. Zero means no bound.
	//
	// Choose at most a third of the process's memory, for all shards together. Go's collector needs
	// as much again, the image has its caches, and sessions, watches and requests are not counted.
	// At the bound, locks and elections have no room either, because their contenders are znodes. Only
	// what the members write for one another, below /zookeeper/vivarium, still has.
	//
	// An ensemble uses the setting of the member that started last, so set it equally on all
	// members.
	MaxTreeSize int64 `yaml:"maxTreeSize"`
	// ContainerCheckInterval is how often the leader of a shard looks for containers and TTL znodes
	// to remove. Zero means DefaultContainerCheckInterval; the minimum is one Tick. It is
	// ZooKeeper's znode.container.checkIntervalMs. Each look removes at most 10,000 znodes. If there
	// are as many, the next look is a second later. A look costs the leader half a microsecond for
	// each TTL znode and each container without children.
	ContainerCheckInterval time.Duration `yaml:"containerCheckInterval"`
	// SuperDigest is the Digest of a credential. Its sessions may do everything, whatever ACLs say.
	// Empty means that no credential has this power.
	SuperDigest string `yaml:"superDigest"`
	// Schemes are ways to authenticate besides digest and ip, by name. They are the same on every
	// member.
	Schemes map[string]Scheme `yaml:"-"`

	// HoldLevel keeps the ensemble at this feature level or below, for as long as any member has it.
	// Until the level rises, every member can go back to the build before. Zero means that the
	// ensemble rises to the highest level that all members read, a second after the last one was
	// upgraded. A level never goes down: with a HoldLevel below it, the node refuses to start.
	// Status says the level, and docs/upgrades.md what each allows.
	HoldLevel int `yaml:"holdLevel"`

	// Seed opens the backup that a new ensemble begins with, in the format of Node.Backup. The
	// ensemble loads it before anyone can open a session, and Ready waits for that. All znodes come
	// back with their zxids, times, versions and sequence counters, except ephemerals. Later zxids
	// are larger than all that the backup has. The backup may be of any number of members and
	// shards. docs/backup.md says more.
	//
	// Set it on all members, to the same bytes. It is called on a member that loads, and again when
	// that goes on after an error; it must return when ctx ends, and so should the reader. If the
	// ensemble was seeded, a member that starts calls it once more, in the background. If it is
	// another backup then, the member logs a warning and ignores it; if the reader has a method
	// Name, as an os.File has, the warning says the name. An error means that there is none any
	// more. A panic, also of the reader, counts as an error. On an ensemble that has begun without it, Ready returns ErrNotSeeded.
	Seed func(ctx context.Context) (io.ReadCloser, error) `yaml:"-"`

	// Slow is from when on the log warns, as Warn, of one fsync, one round of applying, one commit, or
	// one answer of another member. Each of these has its own line. It is repeated after a minute, and
	// less often while it goes on, down to once an hour. While the disk is slow, slow applying and slow
	// commits are not logged beside it. Slow is also the least jump of the wall clock that is logged,
	// but that is 100 ms at least. Zero means a quarter of the shortest election, 125 ms with the
	// default Tick: a leader that is slower comes near to losing its leadership. A negative value turns
	// these lines off, and Health.Slow.
	Slow time.Duration `yaml:"slow"`

	// Logger receives the node's log; nil means slog.Default. docs/logs.md lists every line. Its
	// handler is called on a goroutine of its own, so it may hang, panic, or call the node. If it is
	// too slow, lines are dropped and counted.
	// dragonboat's messages belong to the whole process and go to the logger of the first node.
	Logger *slog.Logger `yaml:"-"`
	// Events are optional observers.
	Events Events `yaml:"-"`

	// Audit is called with a record of each change of the tree, and more: see AuditRecord. It is
	// called in the order of each shard, on a goroutine of its own, so a slow one delays nobody. If
	// 65,536 records wait, or 64 MiB of them, the newest are left out, and a record says how many. If
	// Audit panics, or calls [runtime.Goexit], the record is left out, and the log says so. Nil means
	// that nothing is recorded.
	//
	// Node.Close and Node.Shutdown wait until Audit has got what waits, for RequestTimeout at most.
	// What is left then is left out and counted, and no call begins after they have returned. So
	// call neither of them from Audit. docs/audit.md says what the records are good for, and
	// package audit writes them to files.
	Audit func(AuditRecord) `yaml:"-"`

	// Inside replaces parts of the machine that the node stands on. It is for tests of this module,
	// which alone can name its type. Tests of a service use package embedtest.
	Inside *inside.Seams `yaml:"-"`
}

// Events are functions that the node calls to tell what happens. They are called one at a time, in
// order, never with a lock held. A slow one delays the others. If 1,024 calls wait, the oldest is
// dropped. A panic or a [runtime.Goexit] is logged, and the node goes on.
//
// Close, Shutdown and Leave wait a second for the calls that are queued, and drop those that are left.
// No call begins after they have returned. A function that calls them makes them wait that second.
type Events struct {
	// LeaderChanged is called when a shard has a new leader or term. When the node fails or is
	// closed, it is called with no leader for each shard whose leader was known.
	LeaderChanged func(LeaderChange)
	// SessionExpired is called for every session whose expiry this node sees in the log, of any
	// member. That includes remote sessions whose clients were silent. After a restart it may be
	// called again for the newest ones.
	//
	// It is not called for sessions that expired while the node was away so long that it got the
	// state of another member. It is not called for sessions of this node that ended by the node's
	// own clock.
	SessionExpired func(SessionID)
	// MembersChanged is called when this node has seen the list of members change: who is there, what
	// they are, and where. Node.Members has the list. Several changes may make one call.
	MembersChanged func()
	// Restarting is called by Supervise alone, each time that it waits before it starts a node. It
	// waits after the node has failed, and after each Start that finds the disk not mended yet. No
	// function of the service runs during that time, so nothing else would tell. When the node is
	// back, Supervise calls its function.
	Restarting func(cause error, wait time.Duration)
}

// LeaderChange says who leads a shard.
type LeaderChange struct {
	Shard  int      // from 1
	Leader MemberID // zero: none known
	Term   uint64
}

// Validate reports every problem of the Config at once. It changes nothing.
func (c Config) Validate() error {
	_, err := c.complete()
	return err
}

// complete fills in the defaults and checks the result.
func (c Config) complete() (engine.Config, error) {
	p := &problems{}
	e := engine.Config{
		Dir: c.Dir, Listen: c.Listen, Ensemble: c.Ensemble,
		Shards: or(c.Shards, 1), Tick: or(c.Tick, DefaultTick),
		RequestTimeout: or(c.RequestTimeout, DefaultRequestTimeout),
		MaxDataSize:    or(c.MaxDataSize, DefaultMaxDataSize), MaxTreeSize: c.MaxTreeSize,
		Logger: c.Logger, Version: version(),
		HoldLevel: uint32(c.HoldLevel), Seed: c.Seed,
	}
	if e.Logger == nil {
		e.Logger = slog.Default()
	}
	if c.Dir == "" {
		p.add("Dir is empty: name a directory for the node's data")
	}
	if c.alone() {
		c.completeAlone(&e, p)
	} else {
		c.completeMembers(&e, p)
	}
	if e.Shards < 1 || e.Shards > MaxShards {
		p.add("Shards is %d: want 1 to %d", c.Shards, MaxShards)
	}
	c.completeTimes(&e, p)
	e.Slow = max(0, or(c.Slow, engine.ShortestElection(e.Tick)/4))
	c.completeDeadAfter(&e, p)
	if e.MaxTreeSize < 0 {
		p.add("MaxTreeSize is %d: want bytes, or zero for no bound", c.MaxTreeSize)
	}
	if e.MaxDataSize < 0 || e.MaxDataSize > engine.MaxDataSizeMax {
		p.add("MaxDataSize is %d: want 1 to %d", c.MaxDataSize, engine.MaxDataSizeMax)
	}
	if c.HoldLevel < 0 || c.HoldLevel > engine.LevelMax {
		p.add("HoldLevel is %d: want %d to %d, or zero to hold nothing",
			c.HoldLevel, engine.LevelMin, engine.LevelMax)
	}
	e.Schemes = c.completeSchemes(p)
	if c.TLS != nil {
		e.TLS = c.TLS.certificates(e.Advertise, p)
		e.PlainToo = c.TLS.Migrate
	}
	return e, errors.Join(p.list...)
}

// Bounds of durations: nobody waits longer than maxTick for a heartbeat, and sums of longer
// timeouts could overflow.
const (
	maxTick    = time.Minute
	maxTimeout = 366 * 24 * time.Hour
)

func (c Config) completeTimes(e *engine.Config, p *problems) {
	if e.Tick < time.Millisecond || e.Tick > maxTick {
		p.add("Tick is %v: want 1ms to %v", c.Tick, maxTick)
		e.Tick = DefaultTick
	}
	if e.RequestTimeout < 0 || e.RequestTimeout > maxTimeout {
		p.add("RequestTimeout is %v: want a positive duration, at most %v", c.RequestTimeout, maxTimeout)
	}
	floor := engine.SessionTimeoutFloor(e.Tick)
	e.MinSessionTimeout = or(c.MinSessionTimeout, floor)
	if e.MinSessionTimeout < floor {
		p.add("MinSessionTimeout is %v: want %v at least, three times the longest election at a "+
			"Tick of %v",
			c.MinSessionTimeout, floor, e.Tick)
	}
	e.MaxSessionTimeout = or(c.MaxSessionTimeout, max(DefaultMaxSessionTimeout, e.MinSessionTimeout))
	if e.MaxSessionTimeout < e.MinSessionTimeout {
		p.add("MaxSessionTimeout is %v: less than MinSessionTimeout, %v",
			e.MaxSessionTimeout, e.MinSessionTimeout)
	}
	if e.MaxSessionTimeout > maxTimeout {
		p.add("MaxSessionTimeout is %v: want %v at most", e.MaxSessionTimeout, maxTimeout)
	}
	e.SessionTimeout = or(c.SessionTimeout, within(DefaultSessionTimeout, e))
	if e.SessionTimeout != within(e.SessionTimeout, e) && e.MinSessionTimeout <= e.MaxSessionTimeout {
		p.add("SessionTimeout is %v: want %v to %v, the MinSessionTimeout and MaxSessionTimeout",
			c.SessionTimeout, e.MinSessionTimeout, e.MaxSessionTimeout)
	}
	e.ContainerCheckInterval = or(c.ContainerCheckInterval, max(DefaultContainerCheckInterval, e.Tick))
	if e.ContainerCheckInterval < e.Tick {
		p.add("ContainerCheckInterval is %v: want a Tick at least, %v", c.ContainerCheckInterval, e.Tick)
	}
}

// within returns the session timeout that is nearest to d and allowed.
func within(d time.Duration, e *engine.Config) time.Duration {
	return min(max(d, e.MinSessionTimeout), e.MaxSessionTimeout)
}

// ReadConfig reads a Config from YAML. The keys are the names of the fields in lowerCamelCase: dir,
// id, members, join, advertise, name, zone, observer, ephemeral, voters, deadAfter, listen,
// ensemble, shards, tls, tick, requestTimeout, sessionTimeout, minSessionTimeout,
// maxSessionTimeout, maxDataSize, maxTreeSize, containerCheckInterval, superDigest, holdLevel,
// slow. Durations are written as "50ms". Unknown keys are refused. ReadConfig does not Validate.
func ReadConfig(r io.Reader) (Config, error) {
	var c Config
	if err := configfile.Read(r, &c); err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	return c, nil
}

type problems struct{ list []error }

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Errorf(format, args...))
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func sortedIDs(m map[MemberID]string) []MemberID {
	ids := make([]MemberID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// list formats ids for an error: 1, 2, 3.
func list(ids []MemberID) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ", ")
}

// bindAddr returns the address to bind for a member with this address; see Config.Listen.
func bindAddr(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.EqualFold(host, "localhost") {
		return addr
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return addr
	}
	return net.JoinHostPort("", port)
}

// checkAddr checks a host:port. If bind is set, the host may be empty.
func checkAddr(addr string, bind bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("want host:port")
	}
	if host == "" && !bind {
		return errors.New("the host is missing")
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
}
