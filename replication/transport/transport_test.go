package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

const deployment = 7

const patience = testkit.Patience

// identity returns the identity of a member of the tests' ensemble.
func identity(m uint64) Identity {
	return Identity{Digest: [32]byte{1, 2, 3}, Member: m, Directory: [16]byte{byte(m)}, Start: 1,
		Levels: Levels{Min: 1, Max: 1}, Level: 1}
}

// uuidOf and targetOf convert between a member and its name in the tests' dragonboat.
func uuidOf(m uint64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", m) }

func targetOf(uuid string) (uint64, bool) {
	var m uint64
	_, err := fmt.Sscanf(uuid, "00000000-0000-4000-8000-%d", &m)
	return m, err == nil
}

// A logbook keeps all log lines.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

// A peer is a transport under test. The test has dragonboat's role.
type peer struct {
	*Transport
	module  raftio.ITransport
	batches chan pb.MessageBatch
	chunks  chan pb.Chunk
	refused chan error
	log     *logbook
}

// newPeer starts a transport. It fills in missing options.
func newPeer(t *testing.T, o Options) *peer {
	t.Helper()
	p := &peer{
		batches: make(chan pb.MessageBatch, 1024),
		chunks:  make(chan pb.Chunk, 1024),
		refused: make(chan error, 1024),
		log:     &logbook{},
	}
	if o.Members == nil {
		o = among(o, 1, 2, 3)
	}
	if o.Target == nil {
		o.Target = targetOf
	}
	if o.Refused == nil {
		o.Refused = func(_ context.Context, _ uint64, reason error) { p.refused <- reason }
	}
	o.Logger = slog.New(p.log)
	p.Transport = New(o)
	p.module = p.Factory().Create(config.NodeHostConfig{DeploymentID: deployment},
		func(b pb.MessageBatch) {
			select {
			case p.batches <- b:
			case <-p.ctx.Done():
			}
		},
		func(c pb.Chunk) bool {
			select {
			case p.chunks <- c:
			case <-p.ctx.Done():
			}
			return true
		})
	if err := p.module.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.module.Close() })
	return p
}

// among returns the options of a member that knows some members and no others.
func among(o Options, members ...uint64) Options {
	o.Members = func() []uint64 { return members }
	o.Knows = func(m uint64) *Refusal {
		if slices.Contains(members, m) {
			return nil
		}
		return refusal(ErrNotMember, "member %d is not among the members", m)
	}
	return o
}

// networks returns a network for each member: a Mesh or a web.
type networks interface {
	Network(member uint64) transporttest.Network
}

// A web is a mesh of members 1 to 3 whose links can be broken.
type web struct {
	*transporttest.Mesh
	faults [4]*transporttest.Faults
}

func newWeb() *web {
	return &web{transporttest.NewMesh(), [4]*transporttest.Faults{1: transporttest.NewFaults(), 2: transporttest.NewFaults(), 3: transporttest.NewFaults()}}
}

// Network is the web as one member sees it.
func (w *web) Network(member uint64) transporttest.Network {
	return w.faults[member].Network(w.Mesh.Network(member))
}

// set sets the fault of both directions between two members.
func (w *web) set(a, b uint64, fault transporttest.Fault) {
	w.faults[a].Set(b, fault)
	w.faults[b].Set(a, fault)
}

// onMesh starts a member that listens on a mesh.
func onMesh(t *testing.T, m networks, id Identity) *peer {
	t.Helper()
	return newPeer(t, meshOptions(t, m, id))
}

func meshOptions(t *testing.T, m networks, id Identity) Options {
	t.Helper()
	n := m.Network(id.Member)
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Self: id, Network: n, Listener: l}
}

// link returns dragonboat's connection for messages to a member.
func (p *peer) link(t *testing.T, m uint64) raftio.IConnection {
	t.Helper()
	c, err := p.module.GetConnection(t.Context(), uuidOf(m))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connected returns a link once it has its connection. On a busy machine that may take longer than
// a message waits for it.
func (p *peer) connected(t *testing.T, m uint64) raftio.IConnection {
	t.Helper()
	c := p.link(t, m)
	until(t, "a connection", func() bool {
		w, _, _ := c.(*link).look(time.Now())
		return w != nil
	})
	return c
}

// beat returns a batch with one heartbeat, numbered.
func beat(from, to, number uint64) pb.MessageBatch {
	return batchOf(pb.Message{Type: pb.Heartbeat, From: from, To: to, ShardID: 1, Term: 1, Commit: number})
}

func batchOf(messages ...pb.Message) pb.MessageBatch {
	return pb.MessageBatch{
		Requests: messages, DeploymentId: deployment, SourceAddress: "somewhere", BinVer: raftio.TransportBinVersion,
	}
}

// get waits for a value that must come.
func get[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("not reached")
	}
}

var until = testkit.Until

// noGoroutines waits until no goroutine runs code of this package or of transporttest, except
// tests.
func noGoroutines(t *testing.T) {
	t.Helper()
	var left string
	defer func() {
		if left != "" {
			t.Log(left)
		}
	}()
	until(t, "no goroutine left", func() bool {
		left = ""
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for _, s := range strings.Split(string(buf), "\n\n")[1:] {
			ours := strings.Contains(s, "replication/transport.") || strings.Contains(s, "replication/transport/transporttest.")
			if ours && !strings.Contains(s, "testing.tRunner") {
				left += s + "\n\n"
			}
		}
		return left == ""
	})
}

func TestMessagesAndChunksArrive(t *testing.T) {
	mesh := transporttest.NewMesh()
	a, b := onMesh(t, mesh, identity(1)), onMesh(t, mesh, identity(2))
	link := a.connected(t, 2)
	for i := range uint64(100) {
		if err := link.SendMessageBatch(beat(1, 2, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(100) {
		got := get(t, b.batches, "batch")
		if len(got.Requests) != 1 || got.Requests[0].Commit != i || got.DeploymentId != deployment {
			t.Fatalf("batch %d: %+v", i, got)
		}
		if got.SourceAddress != "" {
			t.Fatalf("the sender's address %q was handed on", got.SourceAddress)
		}
	}
	link.Close()

	b.role.Load().gate.noteRunning(beat(2, 1, 0).Requests)
	stream, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if err := stream.SendChunk(chunkOf(1, 2, i, i == 2)); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.chunks) != 3 {
		t.Fatalf("%d of 3 chunks handled when the last was sent", len(b.chunks))
	}
	if c := <-b.chunks; len(c.Data) != 2<<20 {
		t.Fatalf("chunk of %d bytes", len(c.Data))
	}
	stream.Close()
	for _, p := range []*peer{a, b} {
		p.module.Close()
	}
	noGoroutines(t)
}

// chunkOf returns a chunk as dragonboat streams it.
func chunkOf(from, to, number uint64, last bool) pb.Chunk {
	c := pb.Chunk{
		ShardID: 1, ReplicaID: to, From: from, ChunkId: number, FileChunkId: number, Index: 10, Term: 2,
		Filepath: "snapshot-000000000000000A.gbsnap", DeploymentId: deployment, BinVer: raftio.TransportBinVersion,
	}
	if last {
		c.ChunkCount, c.FileChunkCount = pb.LastChunkCount, pb.LastChunkCount
		return c
	}
	c.Data = make([]byte, 2<<20)
	c.ChunkSize = 2 << 20
	return c
}

func TestAlone(t *testing.T) {
	p := newPeer(t, among(Options{Self: identity(1)}, 1))
	if _, err := p.module.GetConnection(t.Context(), uuidOf(2)); err != ErrAlone {
		t.Fatal(err)
	}
	if _, err := p.module.GetSnapshotConnection(t.Context(), uuidOf(2)); err != ErrAlone {
		t.Fatal(err)
	}
	if !p.Factory().Validate("anything at all") {
		t.Fatal("an address was not valid")
	}
	if err := p.module.Close(); err != nil {
		t.Fatal(err)
	}
	noGoroutines(t)
}

func TestTargets(t *testing.T) {
	p := onMesh(t, transporttest.NewMesh(), identity(1))
	for _, target := range []string{uuidOf(1), uuidOf(0), "", "localhost:1"} {
		if _, err := p.module.GetConnection(t.Context(), target); err != ErrUnknownTarget {
			t.Errorf("target %q: %v", target, err)
		}
		if _, err := p.module.GetSnapshotConnection(t.Context(), target); err != ErrUnknownTarget {
			t.Errorf("target %q for a snapshot: %v", target, err)
		}
	}
}

func TestStartUseAndCloseLeavesNothing(t *testing.T) {
	mesh := transporttest.NewMesh()
	for range 20 {
		var peers []*peer
		for m := uint64(1); m <= 3; m++ {
			peers = append(peers, onMesh(t, mesh, identity(m)))
		}
		for i, p := range peers {
			for to := uint64(1); to <= 3; to++ {
				if from := uint64(i + 1); from != to {
					p.connected(t, to).SendMessageBatch(beat(from, to, 1)) // the links stay open
				}
			}
		}
		for _, p := range peers {
			get(t, p.batches, "batch")
			get(t, p.batches, "batch")
		}
		for _, p := range peers {
			p.module.Close()
			p.Close()
		}
		noGoroutines(t)
	}
}

// stranger does a handshake on a connection of its own. It returns the connection and the verdict.
func stranger(t *testing.T, n Network, to uint64, h hello) (net.Conn, error) {
	t.Helper()
	conn, err := n.Dial(t.Context(), Target{Member: to})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn, shake(conn, h)
}
