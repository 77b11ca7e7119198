package transport

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// A gate lets through only messages that travel between members. It keeps out all messages
// over which dragonboat would panic, as far as the message itself shows it. dragonboat panics over:
//   - a message to replica zero, or of a type that a node sends only to itself;
//   - a pre-vote without a term, or a leader transfer to nobody;
//   - entries that do not follow each other, or are of no known kind;
//   - chunks that do not fit together, or come before their shard has a directory.
//
// The gate cannot see what only the state of the log shows, such as a commit index beyond its end.
// That is why Options.Accept has to refuse a member with another directory.
type gate struct {
	self       uint64
	deployment uint64                              // set before the first message
	learner    func(member uint64, shard int) bool // nil: nobody is a learner
	running    []atomic.Bool                       // by shard: its replica here runs, because it has sent something
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
	errLearner    = errors.New("sent by a learner, which must not slow down the others")
)

// A messageClass says how a type of message travels.
type messageClass uint8

const (
	classLocal   messageClass = iota // never sent between members
	classRaft                        // sent by Raft, with a term
	classRequest                     // forwarded to the leader, without a term
	classNotice                      // sent beside Raft, without a term
)

// classes has the class of every type that dragonboat has. Types that are missing are local:
// LocalTick, Election, LeaderHeartbeat, ConfigChangeEvent, SnapshotStatus, Unreachable, CheckQuorum
// and BatchedReadIndex are a node's messages to itself, and so is LogQuery. InstallSnapshot travels
// as chunks. Nobody sends Ping and Pong.
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

// noteRunning records that the replicas that sent these messages run on this node.
func (g *gate) noteRunning(messages []pb.Message) {
	for i := range messages {
		if s := messages[i].ShardID; s < uint64(len(g.running)) && !g.running[s].Load() {
			g.running[s].Store(true)
		}
	}
}

// batch removes the messages that may not pass from a peer's batch. It also removes the sender's
// address, because dragonboat would learn it. It returns how many messages it removed that no
// correct member sends, and the reason for the last one.
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
		switch err := g.message(peer, &b.Requests[i]); {
		case err == errLearner: // every learner sends them, all the time
		case err != nil:
			dropped, why = dropped+1, err
		case len(kept) == i:
			kept = b.Requests[:i+1] // nothing to copy: the usual case
		default:
			kept = append(kept, b.Requests[i])
		}
	}
	b.Requests = kept
	return dropped, why
}

// message returns the reason why a message may not pass, or nil.
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
	case pb.RateLimit:
		if g.learner != nil && g.learner(peer, int(m.ShardID)) {
			return errLearner
		}
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

// indexMax is far beyond any log, and far from an overflow.
const indexMax = 1 << 62

// replicated checks that the entries of a Replicate continue the log at the index it names, in
// order.
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

// proposed checks the entries that a follower forwards to the leader. A change of the members is
// none of them. Only a leader proposes one, of what it knows itself. One that it proposed while it
// was deposed would travel to the next leader, perhaps much later.
func proposed(m *pb.Message) error {
	if len(m.Entries) == 0 {
		return errEntries
	}
	for i := range m.Entries {
		if !readable(&m.Entries[i]) || m.Entries[i].Type == pb.ConfigChangeEntry {
			return errEntries
		}
	}
	return nil
}

// readable reports whether dragonboat can apply an entry. An entry that it cannot apply stops every
// member once it is in the log.
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

// A chunkGate is the gate of one snapshot connection. The connection carries one snapshot, from its
// first chunk to its last.
type chunkGate struct {
	g     *gate
	peer  uint64
	first pb.Chunk // without its data
	next  uint64
	done  bool
}

// errChunk is wrapped by all errors about a chunk.
var errChunk = errors.New("snapshot chunk does not fit")

// chunk returns the reason why a chunk may not pass, or nil.
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
		// dragonboat writes a chunk into a directory that it makes when the shard starts. It panics
		// if the directory is missing. A shard that has sent a message has been started.
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

// plainFile reports whether a path ends in the name of a file. dragonboat uses only that name.
func plainFile(path string) bool {
	name := path[strings.LastIndexAny(path, `/\`)+1:]
	return name != "" && name != "." && name != ".." && !strings.ContainsRune(name, 0)
}
