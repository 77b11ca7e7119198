package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// Host runs this member's replicas of all shards. Its methods may be called from any goroutine,
// also after Close.
type Host struct {
	// Immutable after Open.
	cfg    Config
	log    *slog.Logger
	nh     *dragonboat.NodeHost
	files  *fileSystem
	store  *logStore
	shards []*shard // by ShardID - 1
	// What a cut of the log leaves for members that lag, see compaction.go.
	keepEntries, keepBytes uint64

	done   chan struct{} // closed when Close begins
	grown  chan struct{} // holds a token while compactLoop should look
	herald herald
	loops  sync.WaitGroup // all goroutines of the host

	mu struct {
		// Held for reading by every call into nh, because NodeHost does not survive calls during
		// its Close.
		rank.RWMutex[rank.Host]

		closed bool
	}
}

// closeDefault bounds a Close without a timeout.
const closeDefault = 10 * time.Second

// Open creates the node's NodeHost; no shard runs yet. The caller owns the directory lock and has
// acquired it. If Open fails, the files it leaves are harmless, and the next Open finds them.
func Open(c Config) (*Host, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := newHost(c.withDefaults())
	warnOfSettings(h.log)
	bridge.add(h)
	if err := h.open(); err != nil {
		return nil, errors.Join(err, h.Close(closeDefault))
	}
	h.loops.Go(h.compactLoop)
	h.loops.Go(h.heraldLoop)
	return h, nil
}

// settingsFiles are files that dragonboat reads from the working directory when the process starts,
// before main.
var settingsFiles = []string{"dragonboat-soft-settings.json", "dragonboat-hard-settings.json"}

// warnOfSettings warns of files that change dragonboat's settings. Anyone who can write to the
// working directory can make them, and none of our code runs early enough to prevent that.
func warnOfSettings(log *slog.Logger) {
	for _, name := range settingsFiles {
		if path, err := filepath.Abs(name); err == nil {
			if _, err := os.Lstat(path); err == nil {
				log.Warn("a file in the working directory changes settings of Raft (docs/dependencies.md)", "file", path)
			}
		}
	}
}

func newHost(c Config) *Host {
	h := &Host{
		cfg: c, log: c.Logger, keepEntries: keepEntries, keepBytes: keepBytes,
		done: make(chan struct{}), grown: make(chan struct{}, 1), herald: herald{wake: make(chan struct{}, 1)},
	}
	h.files = newFileSystem(c.Disk)
	h.files.stop = func() <-chan struct{} { return h.store.stopping() }
	if c.KeepEntries > 0 {
		h.keepEntries, h.keepBytes = c.KeepEntries, 0
	}
	if c.Alone {
		h.keepEntries, h.keepBytes = 0, 0 // nobody can lag
	}
	for i := range c.Shards {
		h.shards = append(h.shards, newShard(ShardID(i+1)))
	}
	return h
}

func (h *Host) open() error {
	c := h.cfg
	raftDir := c.raftDir()
	c.Disk.Logs(func(name string) bool {
		return strings.HasSuffix(name, ".log") && strings.HasPrefix(name, raftDir+string(filepath.Separator))
	})
	if err := prepareRaftDir(c); err != nil {
		return err
	}
	c.Disk.OnFail(c.Transport.Shut)
	logs := &logFactory{disk: c.Disk}
	err := guard(func() (err error) {
		h.nh, err = dragonboat.NewNodeHost(h.hostConfig(c, logs))
		return err
	})
	if cause := c.Disk.Err(); cause != nil {
		return fmt.Errorf("starting raft in %s: %w", raftDir, cause) // it caused all other errors
	}
	if err != nil {
		return fmt.Errorf("starting raft in %s: %w", raftDir, err)
	}
	if h.nh == nil {
		// NewNodeHost swallows panics whose value is not an error.
		return fmt.Errorf("starting raft in %s: %w: dragonboat gave no reason", raftDir, errBroken)
	}
	h.store = logs.store
	return nil
}

// hostConfig returns the NodeHost's configuration, with as few goroutines and as little memory as
// dragonboat can work with.
func (h *Host) hostConfig(c Config, logs *logFactory) config.NodeHostConfig {
	shards := uint64(c.Shards)
	uuid := UUID(c.Digest, c.Member)
	// The log is opened before the transport.
	check := func(m *raftpb.Message) error { return logs.store.contradiction(m) }
	hold := func(ctx context.Context, ms []raftpb.Message) bool { return logs.store.hold(ctx, ms) && h.noteSent(ms) }
	in := inbound{TransportFactory: c.Transport.Factory(), disk: c.Disk, log: c.Logger, check: check, hold: hold, takeOver: h.takeOver,
		made: func(out outbound) { h.herald.wire.Store(&out) }}
	return config.NodeHostConfig{
		DeploymentID:        c.Deployment,
		NodeHostID:          uuid,
		NodeHostDir:         c.raftDir(),
		RTTMillisecond:      uint64(c.Tick.Milliseconds()),
		RaftAddress:         uuid,
		RaftEventListener:   leaderListener{h},
		MaxSendQueueSize:    queueMax,
		MaxReceiveQueueSize: queueMax,
		Expert: config.ExpertConfig{
			LogDBFactory:        logs,
			TransportFactory:    in,
			NodeRegistryFactory: &roster{names: c.Names, streams: 1, removed: c.Removed},
			FS:                  h.files,
			LogDB:               logConfig(),
			Engine: config.EngineConfig{
				// dragonboat records ExecShards, and it can never change.
				ExecShards: 1,
				// A slow shard must not keep the others from applying.
				CommitShards: shards,
				ApplyShards:  shards,
				// A stream to a slow member holds a snapshot worker for its whole length.
				SnapshotShards: shards + 1,
				CloseShards:    1,
			},
		},
	}
}

// queueMax bounds the bytes of messages that wait to be sent to the other members, or that were
// received from them. Beyond it dragonboat drops replication messages, which Raft sends again.
const queueMax = 128 << 20

// logConfig returns the part of the configuration that tan reads: the size of its encoding buffers.
// tan makes sixteen of them and uses one per step worker. A larger record gets a buffer of its own.
func logConfig() config.LogDBConfig {
	return config.LogDBConfig{Shards: 1, KVWriteBufferSize: 64 << 10}
}

// StartShard starts this member's replica of a shard on m. It does not wait for a leader. If it
// succeeds, the host owns m and closes it. If it fails, the caller still owns m.
func (h *Host) StartShard(id ShardID, m StateMachine) error {
	s, err := h.shard(id)
	if err != nil {
		return err
	}
	return h.call(func() error {
		s.starting.Lock()
		defer s.starting.Unlock()
		if s.started.Load() {
			return fmt.Errorf("shard %d is started already", id)
		}
		committed, err := h.store.newestCommitted(uint64(id), uint64(h.cfg.Member))
		if err != nil {
			return fmt.Errorf("starting shard %d in %s: %w", id, h.cfg.raftDir(), err)
		}
		a := h.adapt(s, m)
		create := func(_, _ uint64) statemachine.IOnDiskStateMachine { return a }
		err = guard(func() error {
			return h.nh.StartOnDiskReplica(h.members(), h.cfg.joined(), create, h.shardConfig(id))
		})
		if errors.Is(err, dragonboat.ErrInvalidShardSettings) {
			return fmt.Errorf("%w: shard %d was founded with other members", ErrLog, id)
		}
		if err != nil {
			return fmt.Errorf("starting shard %d in %s: %w", id, h.cfg.raftDir(), err)
		}
		s.machine, s.session, s.committedAtStart = a, h.nh.GetNoOPSession(uint64(id)), committed
		s.started.Store(true)
		return nil
	})
}

// adapt wraps a shard's machine for dragonboat.
func (h *Host) adapt(s *shard, m StateMachine) *machine {
	return &machine{
		shard:  uint64(s.id),
		m:      m,
		disk:   h.cfg.Disk,
		log:    h.log,
		meters: &s.meters,
		opened: func(stop <-chan struct{}) { h.store.opened(uint64(s.id), stop) },
		grown: func(entries, bytes int, index uint64) {
			if s.log.grow(entries, bytes, index) {
				h.wakeCompaction()
			}
		},
	}
}

func (h *Host) members() map[uint64]dragonboat.Target {
	targets := make(map[uint64]dragonboat.Target, len(h.cfg.Members))
	for _, m := range h.cfg.Members {
		targets[uint64(m)] = UUID(h.cfg.Digest, m)
	}
	return targets
}

func (h *Host) shardConfig(id ShardID) config.Config {
	return config.Config{
		ReplicaID:   uint64(h.cfg.Member),
		ShardID:     uint64(id),
		CheckQuorum: true, // an isolated leader steps down instead of filling its log
		PreVote:     true, // a member that was cut off does not disturb the others when it returns
		// A member that joined is a learner at first. The log says when it votes. Without this, it
		// would panic at every start that finds its own admission in the log.
		IsNonVoting: h.cfg.joined(),
		// A change of the members names the one before it, so no late copy of one counts. All members
		// must have this setting from the first change on.
		OrderedConfigChange: true,
		HeartbeatRTT:        uint64(h.heartbeatTicks()),
		ElectionRTT:         uint64(h.electionTicks()),
		// compactLoop requests snapshots. It counts bytes; dragonboat could only count entries.
		SnapshotEntries: 0,
		MaxInMemLogSize: inMemLogMax,
	}
}

// heartbeatTicks returns the number of ticks between two heartbeats of an idle leader.
// electionTicks returns after how many ticks without a heartbeat, up to twice as many, a replica
// stands for election.
//
// With a heartbeat every other tick, an idle member takes 0.54 to 0.71 % of a core; with one per
// tick it took 0.77 to 1.05 %. The followers still miss four before they stand for election. A
// member that is alone waits for no heartbeat, only for its own start. So it uses the smallest
// numbers that dragonboat accepts.
func (h *Host) heartbeatTicks() int {
	if h.cfg.Alone {
		return 1
	}
	return 2
}

func (h *Host) electionTicks() int {
	if h.cfg.Alone {
		return 3
	}
	return h.cfg.ElectionTicks
}

// inMemLogMax bounds the bytes of entries that a replica holds because they are not applied yet.
// Beyond it proposals are refused until apply has caught up.
const inMemLogMax = 256 << 20

// shard returns a shard by its id.
func (h *Host) shard(id ShardID) (*shard, error) {
	if id < 1 || int(id) > len(h.shards) {
		return nil, fmt.Errorf("shard %d is not in 1..%d", id, len(h.shards))
	}
	return h.shards[id-1], nil
}

// running returns a shard that was started.
func (h *Host) running(id ShardID) (*shard, error) {
	s, err := h.shard(id)
	if err == nil && !s.started.Load() {
		err = fmt.Errorf("%w: shard %d is not started", ErrClosed, id)
	}
	return s, err
}

// call runs fn, which calls into nh, unless the host is closed.
func (h *Host) call(fn func() error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.mu.closed {
		return ErrClosed
	}
	return fn()
}

// Leader returns the leader of a shard as far as this node knows. A shard that does not exist has
// none.
func (h *Host) Leader(id ShardID) Leader {
	s, err := h.shard(id)
	if err != nil {
		return Leader{}
	}
	return s.leader()
}

// Leads reports whether this node believes that it leads a shard. Another member may lead it
// already.
func (h *Host) Leads(id ShardID) bool { return h.Leader(id).Member == h.cfg.Member }

// CommittedAtStart returns the index of the newest command that a shard's log knew to be committed
// when the shard was started. The machine receives the commands up to it without a quorum.
// CommittedAtStart returns zero if there was none, or if the shard is not started.
func (h *Host) CommittedAtStart(id ShardID) uint64 {
	if s, err := h.running(id); err == nil {
		return s.committedAtStart
	}
	return 0
}

// Committed returns the index of the newest command of a shard that this node knows to be committed
// and has given to Apply, or is about to. It is zero before the first command since the start.
func (h *Host) Committed(id ShardID) uint64 {
	if _, err := h.shard(id); err != nil {
		return 0
	}
	return h.store.shard(uint64(id)).committed.Load()
}

// A leaderListener is called by dragonboat, from one goroutine.
type leaderListener struct{ h *Host }

// LeaderUpdated records a leader and calls Config.LeaderChanged. It must not block.
func (l leaderListener) LeaderUpdated(info raftio.LeaderInfo) {
	s, err := l.h.shard(ShardID(info.ShardID))
	if err != nil {
		return
	}
	leader := Leader{Member: MemberID(info.LeaderID), Term: info.Term}
	if s.setLeader(leader) {
		l.h.cfg.LeaderChanged(s.id, leader)
	}
}

// TransferLeader asks a shard's leader to transfer its leadership to another member. It does not
// wait, and the transfer may not happen. It returns ErrBusy if a transfer is under way.
func (h *Host) TransferLeader(id ShardID, to MemberID) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	if s.leader().Member == 0 {
		return ErrNoLeader
	}
	return h.call(func() error { return translate(h.nh.RequestLeaderTransfer(uint64(id), uint64(to))) })
}

// Close stops all shards, closes their machines and the transport, and ends the host. It waits at
// most for timeout; zero means 10 s. ErrStillRunning says that it left goroutines and open files
// behind; see Unlock. A second Close does nothing.
func (h *Host) Close(timeout time.Duration) error {
	if timeout <= 0 {
		timeout = closeDefault
	}
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return nil
	}
	h.mu.closed = true
	h.mu.Unlock()
	close(h.done)

	ended := make(chan error, 1)
	go h.closeLoop(ended)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		bridge.leave(h)
		return fmt.Errorf("%w within %v: its goroutines and open files stay until the process ends", ErrStillRunning, timeout)
	}
}

// Unlock gives up the locks of a host that runs on after Close, so that another can be opened in
// the directory. The caller knows that this host can no longer change the directory.
func (h *Host) Unlock() { h.files.unlock() }

// closeLoop ends with the NodeHost. It has a goroutine of its own because nothing bounds
// NodeHost.Close.
func (h *Host) closeLoop(ended chan<- error) {
	h.loops.Wait()
	var err error
	if h.nh != nil {
		err = guard(func() error { h.nh.Close(); return nil })
	}
	bridge.remove(h)
	for _, s := range h.shards {
		err = errors.Join(err, s.closeError())
	}
	if err == nil {
		err = h.files.closeAll()
	}
	ended <- err
}

// translate returns our error for an error of dragonboat.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dragonboat.ErrSystemBusy):
		return ErrBusy
	case errors.Is(err, dragonboat.ErrPayloadTooBig):
		return ErrTooLarge
	case errors.Is(err, dragonboat.ErrShardNotReady), errors.Is(err, dragonboat.ErrShardNotInitialized):
		return ErrNoLeader
	case errors.Is(err, dragonboat.ErrClosed), errors.Is(err, dragonboat.ErrShardClosed), errors.Is(err, dragonboat.ErrShardNotFound):
		return ErrClosed
	}
	return err
}
