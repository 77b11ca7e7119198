package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// streamTo opens a snapshot connection from a to b. Shard 1 runs on b.
func streamTo(t *testing.T, ctx context.Context, a, b *peer) raftio.ISnapshotConnection {
	t.Helper()
	b.role.Load().gate.noteRunning(beat(2, 1, 1).Requests)
	s, err := a.module.GetSnapshotConnection(ctx, uuidOf(2))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The sender of a snapshot learns that it was rejected, at the latest with the last chunk.
func TestRejectedSnapshot(t *testing.T) {
	for _, at := range []uint64{0, 2} {
		inMesh(t, func(t *testing.T, m *web, a, b *peer) {
			b.Factory().Create(config.NodeHostConfig{DeploymentID: deployment}, nil, func(c pb.Chunk) bool { return c.ChunkId != at }).Start()
			s := streamTo(t, t.Context(), a, b)
			defer s.Close()
			var err error
			for i := uint64(0); i < 3 && err == nil; i++ {
				err = s.SendChunk(chunkOf(1, 2, i, i == 2))
			}
			if err == nil {
				t.Fatalf("the rejection of chunk %d was not noticed", at)
			}
			synctest.Wait()
			if !strings.Contains(b.log.String(), "dragonboat rejected") {
				t.Fatalf("log:\n%s", b.log)
			}
		})
	}
}

// A snapshot for a shard that does not run here yet does not reach dragonboat, which would panic.
func TestSnapshotForAShardThatIsNotRunning(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// The error depends on whether the connection ends before all is written.
		if err := s.SendChunk(chunkOf(1, 2, 0, true)); err == nil {
			t.Fatal("the chunk was confirmed")
		}
		synctest.Wait() // the peer may log after it has closed the connection
		if len(b.chunks) != 0 || !strings.Contains(b.log.String(), "not running yet") {
			t.Fatalf("log:\n%s", b.log)
		}
	})
}

// A snapshot that vanishes in a cut link is not confirmed. The wait is bounded. It ends at once
// when the link heals, when dragonboat stops and at Shut.
func TestUnconfirmedSnapshot(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(m *web, a *peer, cancel func())
		took time.Duration
	}{
		{"nobody comes", func(*web, *peer, func()) {}, confirmTimeout},
		{"healed", func(m *web, _ *peer, _ func()) { m.faults[1].Set(2, transporttest.Fault{}) }, 2 * time.Second},
		{"cancelled", func(_ *web, _ *peer, cancel func()) { cancel() }, 2 * time.Second},
		{"shut", func(_ *web, a *peer, _ func()) { a.Shut() }, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMesh(t, func(t *testing.T, m *web, a, b *peer) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := streamTo(t, ctx, a, b)
				defer s.Close()
				if err := s.SendChunk(chunkOf(1, 2, 0, false)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				m.faults[1].Set(2, transporttest.Fault{Cut: true})
				if err := s.SendChunk(chunkOf(1, 2, 1, false)); err != nil {
					t.Fatal(err)
				}
				go func() {
					pass(2 * time.Second)
					c.end(m, a, cancel)
				}()
				begin := time.Now()
				if err := s.SendChunk(chunkOf(1, 2, 2, true)); !errors.Is(err, errUnconfirmed) {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != c.took {
					t.Fatalf("waited %v, want %v", took, c.took)
				}
				pass(3 * time.Second)
			})
		})
	}
}

// A receiver that accepts nothing delays the sender for a bounded time.
func TestReceiverTakesNothing(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		block := make(chan struct{})
		b.Factory().Create(config.NodeHostConfig{DeploymentID: deployment}, nil, func(pb.Chunk) bool { <-block; return true }).Start()
		s := streamTo(t, t.Context(), a, b)
		defer s.Close()
		begin := time.Now()
		var err error
		for i := uint64(0); err == nil; i++ {
			err = s.SendChunk(chunkOf(1, 2, i, false))
		}
		if took := time.Since(begin); took < writeTimeout-time.Second || took > writeTimeout {
			t.Fatalf("held for %v: %v", took, err)
		}
		close(block)
	})
}

func TestTooLargeChunk(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		s := streamTo(t, t.Context(), a, b)
		defer s.Close()
		c := chunkOf(1, 2, 0, false)
		c.Data = make([]byte, chunkMax)
		if err := s.SendChunk(c); err != errChunkTooLarge {
			t.Fatal(err)
		}
	})
}

// M46: every chunk has the ids of all members that have gone. As many as the engine allows fit in a
// frame, beside the largest block of dragonboat.
func TestChunkHoldsAllRemovedMembers(t *testing.T) {
	c := chunkOf(1, 2, 0, false)
	c.Membership.Removed = make(map[uint64]bool)
	for id := range uint64(110_000) {
		c.Membership.Removed[id+1<<20] = true // ids of four bytes
	}
	c.Membership.Addresses = make(map[uint64]string)
	for id := range uint64(1000) {
		c.Membership.Addresses[id+1] = uuidOf(id)
	}
	if n := c.Size(); n > chunkMax {
		t.Errorf("a chunk has %d bytes, of which %d are the members", n, c.Membership.Size())
	}
}
