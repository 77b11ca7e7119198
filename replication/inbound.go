package replication

import (
	"context"
	"log/slog"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// inbound passes received messages to dragonboat, on the transport's goroutines. It turns a panic
// of dragonboat into the failure of one message or one node. dragonboat panics over any error of
// the file system, even one that passes, like a lack of descriptors.
type inbound struct {
	config.TransportFactory
	disk  Disk
	log   *slog.Logger
	check func(*raftpb.Message) error // returns why a message must not be believed, or nil
	hold  holdFunc

	takeOver takeOverFunc
	made     func(outbound) // called with what Create returns
}

// A holdFunc is called before messages are sent. It may wait until they can be, or until ctx ends.
// If it returns false, they are lost.
type holdFunc func(ctx context.Context, messages []raftpb.Message) bool

// A takeOverFunc is called with each TimeoutNow, once dragonboat has it. It waits for nothing
// but a Close that is under way. again passes the message to dragonboat once more.
type takeOverFunc func(m raftpb.Message, again func())

// Create creates the transport with guarded handlers.
func (f inbound) Create(c config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	out := outbound{f.TransportFactory.Create(c, f.batch(batch), f.chunk(chunk)), f.hold}
	f.made(out)
	return out
}

// outbound looks at the messages that dragonboat sends.
type outbound struct {
	raftio.ITransport
	hold holdFunc
}

func (o outbound) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	c, err := o.ITransport.GetConnection(ctx, target)
	if err != nil {
		return nil, err
	}
	return outboundConn{c, ctx, o.hold}, nil
}

type outboundConn struct {
	raftio.IConnection
	ctx  context.Context // ends with dragonboat's transport
	hold holdFunc
}

func (c outboundConn) SendMessageBatch(b raftpb.MessageBatch) error {
	if !c.hold(c.ctx, b.Requests) {
		return nil // as a network loses them
	}
	return c.IConnection.SendMessageBatch(b)
}

func (f inbound) batch(handle raftio.MessageHandler) raftio.MessageHandler {
	return func(b raftpb.MessageBatch) {
		for i := range b.Requests {
			if err := f.check(&b.Requests[i]); err != nil {
				f.disk.Fail(err)
				return
			}
		}
		f.pass(handle, b)
		for i := range b.Requests {
			if b.Requests[i].Type == raftpb.TimeoutNow {
				one := b
				one.Requests = []raftpb.Message{b.Requests[i]} // keeps no other message of the batch
				f.takeOver(one.Requests[0], func() { f.pass(handle, one) })
			}
		}
	}
}

func (f inbound) pass(handle raftio.MessageHandler, b raftpb.MessageBatch) {
	if err := guard(func() error { handle(b); return nil }); err != nil {
		f.disk.Fail(err)
	}
}

// chunk refuses a part of a snapshot over which dragonboat panics, and the sender begins again. If
// it is the last part, the node fails instead. The snapshot may be half in place by then, and
// dragonboat would refuse it until the next start.
func (f inbound) chunk(handle raftio.ChunkHandler) raftio.ChunkHandler {
	return func(c raftpb.Chunk) (accepted bool) {
		err := guard(func() error { accepted = handle(c); return nil })
		switch {
		case err == nil:
			return accepted
		case c.IsLastChunk():
			f.disk.Fail(err)
		default:
			f.log.Error("part of a snapshot refused", "shard", c.ShardID, "peer", c.From, "cause", err)
		}
		return false
	}
}
