package transport

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// A gate lets through what a member may tell another, and nothing that would make dragonboat panic as far
// as that shows in the message itself. dragonboat panics on a message to replica zero, on one of a type that
// only a node sends to itself, on a pre-vote without a term, on a leader transfer to nobody, on entries that
// do not follow one another or are of no known kind, and on chunks that do not fit together or come before
// the shard they are for has a directory.
//
// What only the state of the log can tell, such as a commit index beyond its end, the gate cannot see: that
// is why a member with another directory has to be kept out by Options.Accept.
type gate struct {
	self       uint64
	deployment uint64        // set before the first message
	running    []atomic.Bool // by shard: its replica on this node has sent something, so it runs
}

func newGate(self, shards uint64) gate {
	return gate{self: self, running: make([]atomic.Bool, shards+1)}
}

// Reasons to drop a message.
var (
	errBinVer     = errors.New("made by another version of dragonboat")
	errDeployment = errors.New("of another deployment")
	errFrom       = errors.New("not sent by the peer it comes from")
	errTo         = errors.New("not for this member")
	errShard      = errors.New("for a shard that does not exist")
	errType       = errors.New("of a type that does not travel")
	errTerm       = errors.New("with a term that its type forbids")
	errTransfer   = errors.New("transfer of leadership to nobody")
	errSnapshot   = errors.New("with a snapshot inside")
	errEntries    = errors.New("with entries that do not fit")
)

// messageClass says how a type of message travels.
type messageClass uint8

const (
	classLocal   messageClass = iota // never sent between members
	classRaft                        // sent by Raft, with a term
	classRequest                     // forwarded to the leader, without a term
	classNotice                      // sent beside Raft, without a term
)

// classes are those of all types that dragonboat has. LocalTick, Election, LeaderHeartbeat,
// ConfigChangeEvent, SnapshotStatus, Unreachable, CheckQuorum, BatchedReadIndex and LogQuery are a node's
// messages to itself; InstallSnapshot travels as chunks; nobody sends Ping and Pong.
var classes = [...]messageClass{
	pb.NoOP:               classRaft,
	pb.Propose:            classRequest,
	pb.Replicate:          classRaft,
	pb.ReplicateResp:      classRaft,
	pb.RequestVote:        classRaft,
	pb.RequestVoteResp:    classRaft,
	pb.Heartbeat:          classRaft,
	pb.HeartbeatResp:      classRaft,
	pb.ReadIndex:          classRequest,
	pb.ReadIndexResp:      classRaft,
	pb.Quiesce:            classNotice,
	pb.SnapshotReceived:   classNotice,
	pb.LeaderTransfer:     classRequest,
	pb.TimeoutNow:         classRaft,
	pb.RateLimit:          classRaft,
	pb.RequestPreVote:     classRaft,
	pb.RequestPreVoteResp: classRaft,
	pb.LogQuery:           classLocal,
}

// noteRunning notes that the replicas which sent these messages run on this node.
func (g *gate) noteRunning(messages []pb.Message) {
	for i := range messages {
		if s := messages[i].ShardID; s < uint64(len(g.running)) && !g.running[s].Load() {
			g.running[s].Store(true)
		}
	}
}

// batch removes from a peer's batch the messages that may not pass, and the address of the sender, which
// dragonboat would otherwise learn. It returns how many it removed and why the last of them.
func (g *gate) batch(peer uint64, b *pb.MessageBatch) (dropped int, why error) {
	b.SourceAddress = ""
	switch {
	case b.BinVer != raftio.TransportBinVersion:
		why = errBinVer
	case b.DeploymentId != g.deployment:
		why = errDeployment
	}
	if why != nil {
		dropped, b.Requests = len(b.Requests), nil
		return dropped, why
	}
	kept := b.Requests[:0]
	for i := range b.Requests {
		if err := g.message(peer, &b.Requests[i]); err != nil {
			dropped, why = dropped+1, err
			continue
		}
		if dropped == 0 {
			kept = b.Requests[:i+1] // nothing to move: the usual case
			continue
		}
		kept = append(kept, b.Requests[i])
	}
	b.Requests = kept
	return dropped, why
}

// message says why a message may not pass.
func (g *gate) message(peer uint64, m *pb.Message) error {
	if m.From != peer {
		return errFrom
	}
	if m.To != g.self || m.To == 0 {
		return errTo
	}
	if m.ShardID == 0 || m.ShardID >= uint64(len(g.running)) {
		return errShard
	}
	if m.Type < 0 || int(m.Type) >= len(classes) || classes[m.Type] == classLocal {
		return errType
	}
	if (m.Term != 0) != (classes[m.Type] == classRaft) {
		return errTerm
	}
	if m.Snapshot.Index != 0 || len(m.Snapshot.Files) != 0 {
		return errSnapshot
	}
	switch m.Type {
	case pb.LeaderTransfer:
		if m.Hint == 0 {
			return errTransfer
		}
	case pb.Replicate:
		return replicated(m)
	case pb.Propose:
		return proposed(m)
	}
	if len(m.Entries) != 0 {
		return errEntries
	}
	return nil
}

// indexMax is far beyond any log and far from where adding to it overflows.
const indexMax = 1 << 62

// replicated checks that the entries of a Replicate continue the log it names, in order.
func replicated(m *pb.Message) error {
	if m.LogIndex > indexMax {
		return errEntries
	}
	last := m.LogTerm
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Index != m.LogIndex+1+uint64(i) || e.Term < last || e.Term > m.Term || !readable(e) {
			return errEntries
		}
		last = e.Term
	}
	return nil
}

// proposed checks the entries that a follower forwards to the leader.
func proposed(m *pb.Message) error {
	if len(m.Entries) == 0 {
		return errEntries
	}
	for i := range m.Entries {
		if !readable(&m.Entries[i]) {
			return errEntries
		}
	}
	return nil
}

// readable checks what dragonboat insists on when it applies an entry: on every member, so a bad entry that
// is in the log once has stopped the ensemble.
func readable(e *pb.Entry) bool {
	switch e.Type {
	case pb.ApplicationEntry:
		return true
	case pb.EncodedEntry:
		// The first byte: format 0, no compression or snappy, no session.
		return len(e.Cmd) > 1 && (e.Cmd[0] == 0 || e.Cmd[0] == 2)
	case pb.ConfigChangeEntry:
		var c pb.ConfigChange
		return c.Unmarshal(e.Cmd) == nil
	}
	return false
}

// A chunkGate is the gate of one snapshot connection, which carries one snapshot from its first chunk to
// its last.
type chunkGate struct {
	g     *gate
	peer  uint64
	first pb.Chunk // without its data
	next  uint64
	done  bool
}

// errChunk is wrapped by everything that is wrong with a chunk.
var errChunk = errors.New("snapshot chunk does not fit")

// chunk says why a chunk may not pass.
func (c *chunkGate) chunk(k *pb.Chunk) error {
	switch {
	case k.BinVer != raftio.TransportBinVersion:
		return errBinVer
	case k.DeploymentId != c.g.deployment:
		return errDeployment
	case k.From != c.peer:
		return errFrom
	case k.ReplicaID != c.g.self || k.ReplicaID == 0:
		return errTo
	case k.ShardID == 0 || k.ShardID >= uint64(len(c.g.running)):
		return errShard
	case !c.g.running[k.ShardID].Load():
		// dragonboat writes a chunk into the directory that it makes when the shard is started, and panics
		// if there is none. A shard that has sent a message has been started.
		return fmt.Errorf("%w: shard %d is not running yet", errChunk, k.ShardID)
	case c.done || k.ChunkId != c.next || k.FileChunkId != k.ChunkId || k.IsPoisonChunk():
		return fmt.Errorf("%w: number %d after %d", errChunk, k.ChunkId, c.next)
	case k.Index == 0 || k.Index > indexMax || k.Term == 0 || k.HasFileInfo || k.Witness || !plainFile(k.Filepath):
		return fmt.Errorf("%w: index %d, term %d, file %q", errChunk, k.Index, k.Term, k.Filepath)
	}
	if c.next == 0 {
		c.first = *k
		c.first.Data = nil
	}
	f := &c.first
	if k.ShardID != f.ShardID || k.Index != f.Index || k.Term != f.Term || k.Filepath != f.Filepath {
		return fmt.Errorf("%w: it is of another snapshot", errChunk)
	}
	c.next++
	c.done = k.IsLastChunk()
	return nil
}

// plainFile says whether a path ends in the name of a file; dragonboat uses that name alone.
func plainFile(path string) bool {
	name := path[strings.LastIndexAny(path, `/\`)+1:]
	return name != "" && name != "." && name != ".." && !strings.ContainsRune(name, 0)
}
