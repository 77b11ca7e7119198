package replication

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// carrier carries messages between the hosts of one process. Links can be cut.
type carrier struct {
	mu    sync.RWMutex
	ends  map[string]*carrierEnd
	cut   map[string]bool                          // members cut off from all others
	watch func(to string, b *raftpb.MessageBatch)  // sees every batch; may drop requests
	miss  func(from string, b raftpb.MessageBatch) // sees every batch that a cut loses
}

type carrierEnd struct {
	batch raftio.MessageHandler
	chunk raftio.ChunkHandler
	down  *atomic.Bool // shut: accepts nothing more
}

var (
	errCut  = errors.New("link is cut")
	errShut = errors.New("shut")
)

func newCarrier() *carrier {
	return &carrier{ends: make(map[string]*carrierEnd), cut: make(map[string]bool)}
}

// isolate cuts a member off or heals it.
func (c *carrier) isolate(uuid string, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[uuid] = cut
}

func (c *carrier) observe(fn func(to string, b *raftpb.MessageBatch)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = fn
}

// lost returns a channel. It is closed when the next message of one of these types from a member is
// lost.
func (c *carrier) lost(uuid string, types ...raftpb.MessageType) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, once := make(chan struct{}), sync.Once{}
	c.miss = func(from string, b raftpb.MessageBatch) {
		for _, m := range b.Requests {
			if from == uuid && slices.Contains(types, m.Type) {
				once.Do(func() { close(seen) })
			}
		}
	}
	return seen
}

func (c *carrier) factory(self string) Transport {
	return &carrierFactory{carrier: c, self: self}
}

type carrierFactory struct {
	carrier *carrier
	self    string
	down    atomic.Bool
}

func (f *carrierFactory) Factory() config.TransportFactory { return f }
func (f *carrierFactory) Shut()                            { f.down.Store(true) }

func (f *carrierFactory) Create(_ config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	return &carrierModule{carrierFactory: f, end: &carrierEnd{batch: batch, chunk: chunk, down: &f.down}}
}
func (*carrierFactory) Validate(string) bool { return true }

type carrierModule struct {
	*carrierFactory
	end *carrierEnd
}

func (m *carrierModule) Name() string { return "carrier" }
func (m *carrierModule) Start() error {
	if m.down.Load() {
		return errShut
	}
	m.carrier.mu.Lock()
	defer m.carrier.mu.Unlock()
	m.carrier.ends[m.self] = m.end
	return nil
}
func (m *carrierModule) Close() error {
	m.carrier.mu.Lock()
	defer m.carrier.mu.Unlock()
	delete(m.carrier.ends, m.self)
	return nil
}

func (m *carrierModule) GetConnection(_ context.Context, target string) (raftio.IConnection, error) {
	return &carrierLink{module: m, target: target}, nil
}
func (m *carrierModule) GetSnapshotConnection(_ context.Context, target string) (raftio.ISnapshotConnection, error) {
	return &carrierLink{module: m, target: target}, nil
}

type carrierLink struct {
	module *carrierModule
	target string
}

func (*carrierLink) Close() {}

// SendMessageBatch delivers a copy. A batch that cannot be delivered is lost without an error, as
// on a network. After an error dragonboat would wait a second before it tries the peer again.
func (l *carrierLink) SendMessageBatch(b raftpb.MessageBatch) error {
	c := l.module.carrier
	c.mu.RLock()
	defer c.mu.RUnlock()
	end := c.ends[l.target]
	if end == nil || end.down.Load() || l.module.down.Load() || c.cut[l.target] || c.cut[l.module.self] {
		if c.miss != nil {
			c.miss(l.module.self, b)
		}
		return nil
	}
	data, err := b.Marshal()
	if err != nil {
		return err
	}
	var got raftpb.MessageBatch
	if err := got.Unmarshal(data); err != nil {
		return err
	}
	if c.watch != nil {
		c.watch(l.target, &got)
	}
	end.batch(got)
	return nil
}

func (l *carrierLink) SendChunk(chunk raftpb.Chunk) error {
	c := l.module.carrier
	c.mu.RLock()
	end := c.ends[l.target]
	cut := end == nil || end.down.Load() || l.module.down.Load() || c.cut[l.target] || c.cut[l.module.self]
	c.mu.RUnlock()
	if cut {
		return errCut
	}
	data, err := chunk.Marshal()
	if err != nil {
		return err
	}
	var got raftpb.Chunk
	if err := got.Unmarshal(data); err != nil {
		return err
	}
	if !end.chunk(got) {
		return errCut
	}
	return nil
}
