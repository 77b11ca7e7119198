package replication

import (
	"log/slog"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// inbound hands what the transport receives to dragonboat, on the transport's goroutines, and turns dragonboat's panics
// there into the failure of one message or one node: it panics over any error of the file system, also one that passes,
// like a lack of descriptors.
type inbound struct {
	config.TransportFactory
	disk  Disk
	log   *slog.Logger
	check func(*raftpb.Message) error // why a message must not be believed; nil if it may
}

// Create makes the transport with dragonboat's ends guarded.
func (f inbound) Create(c config.NodeHostConfig, batch raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	return f.TransportFactory.Create(c, f.batch(batch), f.chunk(chunk))
}

func (f inbound) batch(handle raftio.MessageHandler) raftio.MessageHandler {
	return func(b raftpb.MessageBatch) {
		for i := range b.Requests {
			if err := f.check(&b.Requests[i]); err != nil {
				f.disk.Fail(err)
				return
			}
		}
		if err := guard(func() error { handle(b); return nil }); err != nil {
			f.disk.Fail(err)
		}
	}
}

// chunk refuses a part of a snapshot that dragonboat panics over: the sender begins again. Not so the last part: the
// snapshot may be half in place by then, and dragonboat would refuse it from then on until the next start.
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
