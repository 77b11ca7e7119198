package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// An Identity is what a member says of itself at the start of every connection.
type Identity struct {
	Digest    [32]byte // founding digest of the ensemble
	Member    uint64   // never zero
	Directory [16]byte // random id of the member's directory
	Start     uint64   // counts the starts of that directory

	Run  uint64        // random id of the process; zero on all of them: promises of one are not held against the next
	Tick time.Duration // of its Raft clock; zero is not compared

	Shards []ShardState // by shard - 1
}

// shard returns what a member says of a shard; zero if it says nothing.
func (id *Identity) shard(i int) ShardState {
	if i >= len(id.Shards) {
		return ShardState{}
	}
	return id.Shards[i]
}

// Options say who this member is, whom it talks to and how.
type Options struct {
	Self    Identity
	Members []uint64 // ids of all members; this one may be among them
	Shards  uint64   // messages for shards beyond are dropped; zero means 1

	// Network dials the other members; nil means alone: every dial is refused.
	Network Network

	// Listener accepts the other members' connections. The caller binds it, before anything is written;
	// nil means that no port is open. The transport closes it.
	Listener net.Listener

	// Accept may refuse a peer whose digest and member id are right. Its reason travels to the peer; the kind does
	// too if the error is a *Refusal, else it is ErrNotAccepted. It is
	// called for every connection, by the side that dialled and by the side that accepted, from several
	// goroutines. It must not block for long and must not call Close. Nil admits everyone.
	Accept func(peer Identity) error

	// Held is asked before each hello what the log of a shard, from 0, holds. Nil means nothing is said of it.
	Held func(shard int) Held

	// Refused is told that a peer refused this member; reason is a *Refusal. It may be told the same many
	// times. It must not block and must not call Close; Shut it may. Nil means nobody is told.
	Refused func(peer uint64, reason error)

	// Target finds the member behind the name under which dragonboat knows it.
	Target func(uuid string) (member uint64, ok bool)

	// Logger gets refusals, failures and recoveries, at a limited rate; nil means slog.Default.
	Logger *slog.Logger

	// FrameMax bounds the bytes of one message batch on the wire; zero means 65 MiB, which holds the
	// largest batch dragonboat makes. It must be the same on all members; more than 1 GiB means 1 GiB.
	FrameMax int
}

// Errors of the connections that dragonboat asks for.
var (
	ErrAlone         = errors.New("this member is alone")
	ErrShut          = errors.New("transport is shut")
	ErrUnknownTarget = errors.New("target is not another member")
)

// A Transport carries the messages of one node. The package comment lists its invariants.
type Transport struct {
	// Immutable after New.
	o       Options
	members map[uint64]bool
	notices *notices
	ctx     context.Context // ends with Shut; every dial and wait hangs on it
	cancel  context.CancelFunc

	// Set by dragonboat's Create, before anything is accepted; immutable afterwards.
	handlers handlers

	gate     gate
	promises *promises
	shut     atomic.Bool // the same as mu.shut, for the path of every message
	alive    sync.WaitGroup

	mu struct {
		rank.Mutex[rank.Transport]
		shut        bool
		conns       map[net.Conn]struct{} // everything that Shut has to close
		handshaking connQueue             // accepted, handshake not done
		served      map[uint64]*connQueue // accepted, by peer
		peers       map[uint64]Peer       // but Member and Heard
		asked       map[uint64]time.Time  // when members were last asked what they have against this one
	}
}

// handlers are dragonboat's ends of the transport.
type handlers struct {
	batch raftio.MessageHandler
	chunk raftio.ChunkHandler
}

// New returns a transport that neither dials nor accepts until dragonboat starts it.
func New(o Options) *Transport {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FrameMax <= 0 {
		o.FrameMax = frameMaxDefault
	}
	o.FrameMax = min(o.FrameMax, frameMaxMax)
	if o.Shards == 0 {
		o.Shards = 1
	}
	t := &Transport{o: o, members: make(map[uint64]bool), notices: newNotices(o.Logger)}
	for _, m := range o.Members {
		t.members[m] = true
	}
	t.gate = newGate(o.Self.Member, o.Shards)
	t.promises = newPromises(o.Self.Member, o.Shards)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.conns = make(map[net.Conn]struct{})
	t.mu.handshaking.max = handshakesMax
	t.mu.served = make(map[uint64]*connQueue)
	t.mu.peers = make(map[uint64]Peer)
	t.mu.asked = make(map[uint64]time.Time)
	return t
}

// Factory returns what dragonboat's configuration asks for. It serves one NodeHost.
func (t *Transport) Factory() config.TransportFactory { return factory{t} }

// Shut stops sending and accepting at once and for good. It waits for nothing: it is called when the disk
// has failed, before anybody is told, so that nothing is said that the disk does not know. Close is still
// needed.
func (t *Transport) Shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.shut {
		return
	}
	t.mu.shut = true
	t.shut.Store(true)
	t.cancel()
	if t.o.Listener != nil {
		t.o.Listener.Close()
	}
	for c := range t.mu.conns {
		cut(c)
	}
}

// Close is Shut, and returns when all goroutines of the transport have ended. It may be called more than
// once and always returns nil.
func (t *Transport) Close() error {
	t.Shut()
	t.alive.Wait()
	return nil
}

// start begins to accept.
func (t *Transport) start() error {
	if t.o.Listener == nil {
		if t.shut.Load() {
			return ErrShut
		}
		return nil
	}
	if !t.spawn(t.acceptLoop) {
		return ErrShut
	}
	return nil
}

// spawn runs f on a goroutine that Close waits for. After Shut it runs nothing and returns false.
func (t *Transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.shut {
		return false
	}
	t.alive.Go(f)
	return true
}

// adopt enters a connection into the table of those that Shut closes. After Shut it closes the connection
// and returns false. Whoever adopts releases.
func (t *Transport) adopt(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.shut {
		cut(c)
		return false
	}
	t.mu.conns[c] = struct{}{}
	return true
}

// release closes an adopted connection and forgets it. It may be called more than once.
func (t *Transport) release(c net.Conn) {
	cut(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.conns, c)
}

// cut closes a connection without a farewell. The Close of a TLS connection first sends one, and can wait
// seconds for a peer that does not read; frames need no farewell, they carry their length.
func cut(c net.Conn) {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = s.NetConn()
	}
	c.Close()
}

// target finds the member that dragonboat wants to reach.
func (t *Transport) target(name string) (uint64, error) {
	if t.o.Network == nil {
		return 0, ErrAlone
	}
	if t.shut.Load() {
		return 0, ErrShut
	}
	if t.o.Target == nil {
		return 0, ErrUnknownTarget
	}
	m, ok := t.o.Target(name)
	if !ok || m == t.o.Self.Member || !t.members[m] {
		return 0, ErrUnknownTarget
	}
	return m, nil
}

// factory is dragonboat's way to the transport.
type factory struct{ t *Transport }

// Create hands over dragonboat's ends.
func (f factory) Create(c config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	f.t.handlers = handlers{batch: batch, chunk: chunk}
	f.t.gate.deployment = c.GetDeploymentID()
	return module(f)
}

// Validate accepts every address: dragonboat shows us the RaftAddress of its configuration, which is a mere
// name here.
func (factory) Validate(string) bool { return true }

// module is the transport as dragonboat sees it.
type module struct{ t *Transport }

// Name names the transport in dragonboat's log.
func (module) Name() string { return "vivarium" }

// Start begins to accept connections.
func (m module) Start() error { return m.t.start() }

// Close closes the transport and waits for its goroutines.
func (m module) Close() error { return m.t.Close() }

// GetConnection returns a link for messages to the member behind target; it does not wait for a connection.
func (m module) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	member, err := m.t.target(target)
	if err != nil {
		return nil, err
	}
	return newLink(ctx, m.t, member), nil
}

// GetSnapshotConnection connects to the member behind target for one snapshot.
func (m module) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	member, err := m.t.target(target)
	if err != nil {
		return nil, err
	}
	return newStream(ctx, m.t, member)
}
