package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// An Identity is what a member says about itself at the start of every connection.
type Identity struct {
	Digest    [32]byte // founding digest of the ensemble
	Member    uint64   // never zero
	Directory [16]byte // random id of the member's directory
	Start     uint64   // how often a node was started on that directory

	Run  uint64        // random id of the process
	Tick time.Duration // tick of its Raft clock; zero is not compared

	Levels Levels // that its build reads; zero in Options means level 1
	Level  uint32 // in use on it now, the highest of its shards; Options.Level says it for this member

	// Lineage tells ensembles with the same digest apart; zero is not compared. Options.Lineage says
	// it for this member.
	Lineage [16]byte

	Shards []ShardState // by shard - 1
}

// Levels are the lowest and the highest feature level that a build reads.
type Levels struct{ Min, Max uint32 }

// String names the levels.
func (l Levels) String() string {
	if l.Min == l.Max {
		return fmt.Sprint("level ", l.Min)
	}
	return fmt.Sprintf("levels %d to %d", l.Min, l.Max)
}

// shard returns what a member says about a shard; zero if it says nothing.
func (id *Identity) shard(i int) ShardState {
	if i >= len(id.Shards) {
		return ShardState{}
	}
	return id.Shards[i]
}

// Options say who this member is, and how it talks to which others.
type Options struct {
	Self Identity
	// Founding says in words what the digest of Self stands for. The log needs it when a peer has
	// another digest. It goes to the members that this one dials, never to one that has dialled.
	Founding string
	Members  []uint64 // ids of all members; this one may be among them
	Shards   uint64   // messages for higher shards are dropped; zero means 1

	// Network dials the other members. Nil means that this member is alone: every dial is refused.
	Network Network

	// Listener accepts the other members' connections. The caller binds it before anything is
	// written. Nil means that no port is open. The transport closes the listener.
	Listener net.Listener

	// Accept may refuse a peer whose digest and member id are right. Its reason travels to the
	// peer. The kind travels too if the error is a *Refusal; otherwise it is ErrNotAccepted. Both
	// sides of a connection call Accept, for every connection and from several goroutines. It must
	// not block for long and must not call Close. Nil accepts everyone.
	Accept func(peer Identity) error

	// Held returns what the log of a shard holds; shards count from 0. It is called before each
	// hello. Nil means that the hello says nothing about it.
	Held func(shard int) Held

	// Level returns the feature level in use on this member, the highest of its shards. It is called
	// for each handshake, from several goroutines, and must not block. Nil means level 1.
	Level func() uint32

	// Lineage returns the ensemble's lineage, or zero while this member does not know it. It is called
	// for each handshake, from several goroutines, and must not block. Nil means zero.
	Lineage func() [16]byte

	// Refused is called when a peer refused this member; reason is a *Refusal. It may be called
	// many times for the same refusal. It must not block and must not call Close, but may call
	// Shut. Nil means that nothing is called.
	Refused func(peer uint64, reason error)

	// Target returns the member that dragonboat knows under a name.
	Target func(uuid string) (member uint64, ok bool)

	// Logger receives refusals, failures and recoveries at a limited rate; nil means slog.Default.
	Logger *slog.Logger

	// FrameMax bounds the bytes of one message batch on the wire. Zero means 65 MiB, which holds
	// the largest batch dragonboat makes. It must be the same on all members. More than 1 GiB means
	// 1 GiB.
	FrameMax int

	// highest is the highest version of the protocol. Zero means protocolMax; only tests set it.
	highest uint16
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
	ctx     context.Context // ends with Shut; every dial and every wait ends with it
	cancel  context.CancelFunc

	// Set by dragonboat's Create, before anything is accepted; immutable afterwards.
	handlers handlers

	gate     gate
	promises *promises
	shut     atomic.Bool // same as mu.shut, for the path of every message
	alive    sync.WaitGroup

	mu struct {
		rank.Mutex[rank.Transport]
		shut        bool
		conns       map[net.Conn]struct{} // all connections that Shut has to close
		handshaking connQueue             // accepted, handshake not done
		served      map[uint64]*connQueue // accepted, by peer
		peers       map[uint64]Peer       // without Member and Heard
		asked       map[uint64]time.Time  // when askBack last asked each member
	}
}

// handlers are the functions of dragonboat that receive.
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
	if o.Self.Levels == (Levels{}) {
		o.Self.Levels = Levels{Min: 1, Max: 1}
	}
	if o.highest == 0 {
		o.highest = protocolMax
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

// Factory returns the transport for dragonboat's configuration. It serves one NodeHost.
func (t *Transport) Factory() config.TransportFactory { return factory{t} }

// Shut stops sending and accepting at once and for good. It does not wait. It is called when the
// disk has failed, before anything else, so that nothing is said that the disk does not have. Close
// is still needed.
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

// Close calls Shut and waits until all goroutines of the transport have ended. It may be called
// more than once and always returns nil.
func (t *Transport) Close() error {
	t.Shut()
	t.alive.Wait()
	return nil
}

// start begins to accept connections.
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

// adopt adds a connection to the table of those that Shut closes. After Shut it closes the
// connection and returns false. The caller that adopted a connection has to release it.
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

// release closes an adopted connection and removes it from the table. It may be called more than
// once.
func (t *Transport) release(c net.Conn) {
	cut(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.conns, c)
}

// cut closes a connection without a farewell. The Close of a TLS connection first sends one, and
// can wait seconds for a peer that does not read. Frames need no farewell, because they carry their
// length.
func cut(c net.Conn) {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = s.NetConn()
	}
	c.Close()
}

// target returns the member that dragonboat wants to reach.
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

// A factory gives the transport to dragonboat.
type factory struct{ t *Transport }

// Create receives dragonboat's handlers and returns the transport.
func (f factory) Create(c config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	f.t.handlers = handlers{batch: batch, chunk: chunk}
	f.t.gate.deployment = c.GetDeploymentID()
	return module(f)
}

// Validate accepts every address. dragonboat passes the RaftAddress of its configuration, which is
// only a name here.
func (factory) Validate(string) bool { return true }

// A module is the transport as dragonboat sees it.
type module struct{ t *Transport }

// Name returns the transport's name in dragonboat's log.
func (module) Name() string { return "vivarium" }

// Start begins to accept connections.
func (m module) Start() error { return m.t.start() }

// Close closes the transport and waits for its goroutines.
func (m module) Close() error { return m.t.Close() }

// GetConnection returns a link for messages to the member behind target. It does not wait for a
// connection.
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
