package replication

import (
	"context"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// gate stands between dragonboat and the transport. Once shut it lets nothing through in either direction: a
// node whose disk has failed must not acknowledge what it only holds in memory, nor vote.
type gate struct {
	factory config.TransportFactory
	shut    atomic.Bool
}

var _ config.TransportFactory = (*gate)(nil)

// Create makes the transport behind the gate.
func (g *gate) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	return &gatedTransport{gate: g, ITransport: g.factory.Create(c,
		func(b raftpb.MessageBatch) {
			if !g.shut.Load() {
				messages(b)
			}
		},
		func(c raftpb.Chunk) bool { return !g.shut.Load() && chunks(c) },
	)}
}

// Validate accepts every address: the only one asked for is our own UUID.
func (g *gate) Validate(string) bool { return true }

type gatedTransport struct {
	raftio.ITransport
	gate *gate
}

func (t *gatedTransport) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	if t.gate.shut.Load() {
		return nil, ErrFailed
	}
	c, err := t.ITransport.GetConnection(ctx, target)
	if err != nil {
		return nil, err
	}
	return &gatedConnection{IConnection: c, gate: t.gate}, nil
}

func (t *gatedTransport) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	if t.gate.shut.Load() {
		return nil, ErrFailed
	}
	c, err := t.ITransport.GetSnapshotConnection(ctx, target)
	if err != nil {
		return nil, err
	}
	return &gatedSnapshotConnection{ISnapshotConnection: c, gate: t.gate}, nil
}

type gatedConnection struct {
	raftio.IConnection
	gate *gate
}

func (c *gatedConnection) SendMessageBatch(b raftpb.MessageBatch) error {
	if c.gate.shut.Load() {
		return ErrFailed
	}
	return c.IConnection.SendMessageBatch(b)
}

type gatedSnapshotConnection struct {
	raftio.ISnapshotConnection
	gate *gate
}

func (c *gatedSnapshotConnection) SendChunk(chunk raftpb.Chunk) error {
	if c.gate.shut.Load() {
		return ErrFailed
	}
	return c.ISnapshotConnection.SendChunk(chunk)
}
