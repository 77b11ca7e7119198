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

// Errors of the connections that dragonboat asks for.
var (
	ErrAlone         = errors.New("this member is alone")
	ErrShut          = errors.New("transport is shut")
	ErrUnknownTarget = errors.New("target is not another member")
)

// A Transport carries the messages of one node. The package comment lists its invariants.
type Transport struct {
	// Immutable after New.
	o       Options // without Self and Founding, which are in role
	notices *notices
	ctx     context.Context // ends with Shut; every dial and every wait ends with it
	cancel  context.CancelFunc

	role     atomic.Pointer[role]
	handlers atomic.Pointer[handlers] // nil until dragonboat starts the transport
	shut     atomic.Bool              // same as mu.shut, for the path of every message
	alive    sync.WaitGroup

	mu struct {
		rank.Mutex[rank.Transport]
		shut        bool
		open        bool                  // Open was called
		conns       map[net.Conn]struct{} // all connections that Shut has to close
		handshaking connQueue             // accepted, handshake not done
		asking      connQueue             // accepted, with a question
		served      map[uint64]*connQueue // accepted, by peer
		peers       map[uint64]Peer       // without Member and Heard
		asked       map[uint64]time.Time  // when askBack last asked each member
		meters      map[uint64]*Meters    // of each member that something is known of
	}
}

// handlers are the functions of dragonboat that receive.
type handlers struct {
	batch raftio.MessageHandler
	chunk raftio.ChunkHandler
}

// New returns a transport that accepts nothing until Open, or until dragonboat starts it.
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
	if o.Highest == 0 {
		o.Highest = protocolMax
	}
	self, founding := o.Self, o.Founding
	o.Self, o.Founding = Identity{}, ""
	t := &Transport{o: o, notices: newNotices(o.Logger)}
	t.role.Store(t.newRole(self, founding))
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.conns = make(map[net.Conn]struct{})
	t.mu.handshaking.max, t.mu.asking.max = handshakesMax, questionsMax
	t.mu.served = make(map[uint64]*connQueue)
	t.mu.peers = make(map[uint64]Peer)
	t.mu.asked = make(map[uint64]time.Time)
	t.mu.meters = make(map[uint64]*Meters)
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

// Open begins to accept connections. A further call does nothing.
func (t *Transport) Open() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.mu.shut:
		return ErrShut
	case t.mu.open || t.o.Listener == nil:
		return nil
	}
	t.mu.open = true
	t.alive.Go(t.acceptLoop)
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
	if s, ok := c.(interface{ cut() }); ok {
		s.cut()
		return
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
	if !ok || m == 0 || m == t.self().Member {
		return 0, ErrUnknownTarget
	}
	return m, nil
}

// A factory gives the transport to dragonboat.
type factory struct{ t *Transport }

// Create receives dragonboat's handlers and returns the transport.
func (f factory) Create(c config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	f.t.role.Load().gate.deployment = c.GetDeploymentID()
	return module{f.t, &handlers{batch: batch, chunk: chunk}}
}

// Validate accepts every address. dragonboat passes the RaftAddress of its configuration, which is
// only a name here.
func (factory) Validate(string) bool { return true }

// A module is the transport as dragonboat sees it.
type module struct {
	t *Transport
	h *handlers
}

// Name returns the transport's name in dragonboat's log.
func (module) Name() string { return "vivarium" }

// Start lets messages in, and begins to accept connections.
func (m module) Start() error {
	m.t.handlers.Store(m.h)
	return m.t.Open()
}

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
