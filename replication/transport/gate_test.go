package transport

import (
	"errors"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// testGate returns the gate of member 2 in an ensemble of two shards.
func testGate() *gate {
	g := newGate(2, 2)
	g.deployment = deployment
	return &g
}

// good returns a message of each type that travels, as dragonboat sends it.
func good() map[pb.MessageType]pb.Message {
	all := make(map[pb.MessageType]pb.Message)
	for k := range pb.MessageType_name {
		if typ := pb.MessageType(k); int(typ) < len(classes) && classes[typ] != classLocal {
			m := pb.Message{Type: typ, From: 1, To: 2, ShardID: 1}
			if classes[typ] == classRaft {
				m.Term = 3
			}
			all[typ] = m
		}
	}
	amend := func(typ pb.MessageType, f func(*pb.Message)) {
		m := all[typ]
		f(&m)
		all[typ] = m
	}
	amend(pb.Replicate, func(m *pb.Message) {
		m.LogIndex, m.LogTerm = 7, 2
		change := memberChange()
		change.Index, change.Term = 10, 3
		m.Entries = []pb.Entry{{Index: 8, Term: 2}, {Index: 9, Term: 3, Type: pb.EncodedEntry, Cmd: []byte("\x00x")}, change}
	})
	amend(pb.Propose, func(m *pb.Message) {
		m.Entries = []pb.Entry{{Type: pb.EncodedEntry, Cmd: []byte("\x00x")}, {}}
	})
	amend(pb.LeaderTransfer, func(m *pb.Message) { m.Hint = 2 })
	return all
}

// memberChange returns an entry that changes the members.
func memberChange() pb.Entry {
	change := pb.ConfigChange{ReplicaID: 4, Address: "x"}
	cmd, _ := change.Marshal() // never fails
	return pb.Entry{Type: pb.ConfigChangeEntry, Cmd: cmd}
}

// C1.6: dragonboat panics over messages that never travel, so the gate has a list of those that do.
func TestGateKnowsEveryType(t *testing.T) {
	travels := map[pb.MessageType]bool{
		pb.NoOP: true, pb.Propose: true, pb.Replicate: true, pb.ReplicateResp: true, pb.RequestVote: true,
		pb.RequestVoteResp: true, pb.Heartbeat: true, pb.HeartbeatResp: true, pb.ReadIndex: true,
		pb.ReadIndexResp: true, pb.Quiesce: true, pb.SnapshotReceived: true, pb.LeaderTransfer: true,
		pb.TimeoutNow: true, pb.RateLimit: true, pb.RequestPreVote: true, pb.RequestPreVoteResp: true,
	}
	g, messages := testGate(), good()
	for k, name := range pb.MessageType_name {
		typ := pb.MessageType(k)
		m, ok := messages[typ]
		if ok != travels[typ] {
			t.Errorf("%s travels: %t", name, ok)
		}
		if !ok {
			m = pb.Message{Type: typ, From: 1, To: 2, ShardID: 1}
		}
		if err := g.message(1, &m); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, typ := range []pb.MessageType{-1, -1 << 31, pb.MessageType(len(classes)), 1 << 30} {
		if err := g.message(1, &pb.Message{Type: typ, From: 1, To: 2, ShardID: 1, Term: 1}); err != errType {
			t.Errorf("type %d: %v", typ, err)
		}
	}
}

// C1.6, M9: dragonboat panics over these messages or misunderstands them.
func TestGateDropsForged(t *testing.T) {
	change := memberChange()
	for name, c := range map[string]struct {
		typ   pb.MessageType
		forge func(*pb.Message)
		err   error
	}{
		"another sender":            {pb.Heartbeat, func(m *pb.Message) { m.From = 3 }, errFrom},
		"no sender":                 {pb.Heartbeat, func(m *pb.Message) { m.From = 0 }, errFrom},
		"ourselves as sender":       {pb.RequestVote, func(m *pb.Message) { m.From = 2 }, errFrom},
		"another receiver":          {pb.Heartbeat, func(m *pb.Message) { m.To = 3 }, errTo},
		"no receiver":               {pb.Heartbeat, func(m *pb.Message) { m.To = 0 }, errTo},
		"shard zero":                {pb.Heartbeat, func(m *pb.Message) { m.ShardID = 0 }, errShard},
		"shard beyond":              {pb.Heartbeat, func(m *pb.Message) { m.ShardID = 3 }, errShard},
		"shard far beyond":          {pb.Heartbeat, func(m *pb.Message) { m.ShardID = 1 << 63 }, errShard},
		"vote without term":         {pb.RequestVote, func(m *pb.Message) { m.Term = 0 }, errTerm},
		"pre-vote without term":     {pb.RequestPreVote, func(m *pb.Message) { m.Term = 0 }, errTerm},
		"proposal with term":        {pb.Propose, func(m *pb.Message) { m.Term = 9 }, errTerm},
		"read with term":            {pb.ReadIndex, func(m *pb.Message) { m.Term = 9 }, errTerm},
		"transfer to nobody":        {pb.LeaderTransfer, func(m *pb.Message) { m.Hint = 0 }, errTransfer},
		"snapshot inside":           {pb.Heartbeat, func(m *pb.Message) { m.Snapshot.Index = 5 }, errSnapshot},
		"entries in a heartbeat":    {pb.Heartbeat, func(m *pb.Message) { m.Entries = make([]pb.Entry, 1) }, errEntries},
		"empty proposal":            {pb.Propose, func(m *pb.Message) { m.Entries = nil }, errEntries},
		"hole":                      {pb.Replicate, func(m *pb.Message) { m.Entries[1].Index = 10 }, errEntries},
		"entries far ahead":         {pb.Replicate, func(m *pb.Message) { m.LogIndex = 1<<64 - 2 }, errEntries},
		"term goes back":            {pb.Replicate, func(m *pb.Message) { m.Entries[0].Term = 1 }, errEntries},
		"entry of a later term":     {pb.Replicate, func(m *pb.Message) { m.Entries[1].Term = 4 }, errEntries},
		"entry of an unknown kind":  {pb.Replicate, func(m *pb.Message) { m.Entries[1].Type = 8 }, errEntries},
		"entry for a witness":       {pb.Replicate, func(m *pb.Message) { m.Entries[1].Type = pb.MetadataEntry }, errEntries},
		"encoded entry, empty":      {pb.Propose, func(m *pb.Message) { m.Entries[0].Cmd = nil }, errEntries},
		"encoded entry, odd header": {pb.Propose, func(m *pb.Message) { m.Entries[0].Cmd = []byte("\x01x") }, errEntries},
		"config change, forwarded":  {pb.Propose, func(m *pb.Message) { m.Entries[1] = change }, errEntries},
		"config change, unreadable": {pb.Replicate, func(m *pb.Message) {
			m.Entries[1] = pb.Entry{Index: 9, Term: 3, Type: pb.ConfigChangeEntry, Cmd: []byte{0xff}}
		}, errEntries},
		"local message of a sender":   {pb.Heartbeat, func(m *pb.Message) { m.Type = pb.Election }, errType},
		"snapshot outside its stream": {pb.Heartbeat, func(m *pb.Message) { m.Type = pb.InstallSnapshot }, errType},
	} {
		m := good()[c.typ]
		if err := testGate().message(1, &m); err != nil {
			t.Fatalf("before forging: %v", err)
		}
		c.forge(&m)
		if err := testGate().message(1, &m); err != c.err {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
}

// C4.7: The gate drops forged messages and keeps those beside them, in order.
func TestGateKeepsTheRest(t *testing.T) {
	ok := func(n uint64) pb.Message {
		return pb.Message{Type: pb.Heartbeat, From: 1, To: 2, ShardID: 1, Term: 1, Commit: n}
	}
	bad := pb.Message{Type: pb.Election, From: 1, To: 2, ShardID: 1}
	b := batchOf(ok(1), bad, ok(2), bad, ok(3))
	dropped, why := testGate().batch(1, &b)
	if dropped != 2 || why != errType || len(b.Requests) != 3 {
		t.Fatal(dropped, why, b.Requests)
	}
	for i, m := range b.Requests {
		if m.Commit != uint64(i+1) {
			t.Fatal(b.Requests)
		}
	}
	if b.SourceAddress != "" {
		t.Fatal(b.SourceAddress)
	}
	b = batchOf(ok(1), ok(2))
	if dropped, why := testGate().batch(1, &b); dropped != 0 || why != nil || len(b.Requests) != 2 {
		t.Fatal(dropped, why, b.Requests)
	}
	for _, change := range []func(*pb.MessageBatch){
		func(b *pb.MessageBatch) { b.BinVer++ },
		func(b *pb.MessageBatch) { b.DeploymentId++ },
	} {
		b := batchOf(ok(1), ok(2))
		change(&b)
		if dropped, why := testGate().batch(1, &b); dropped != 2 || why == nil || len(b.Requests) != 0 {
			t.Fatal(dropped, why, b.Requests)
		}
	}
}

func TestGateForChunks(t *testing.T) {
	fresh := func() (*gate, *chunkGate) {
		g := testGate()
		g.noteRunning(beat(2, 1, 1).Requests)
		return g, &chunkGate{g: g, peer: 1}
	}
	_, c := fresh()
	for i := range uint64(3) {
		k := chunkOf(1, 2, i, i == 2)
		if err := c.chunk(&k); err != nil {
			t.Fatal(err)
		}
	}
	late := chunkOf(1, 2, 3, true)
	if err := c.chunk(&late); !errors.Is(err, errChunk) {
		t.Fatalf("after the last: %v", err)
	}
	for name, forge := range map[string]func(*pb.Chunk){
		"another sender":    func(k *pb.Chunk) { k.From = 3 },
		"another receiver":  func(k *pb.Chunk) { k.ReplicaID = 3 },
		"shard zero":        func(k *pb.Chunk) { k.ShardID = 0 },
		"shard beyond":      func(k *pb.Chunk) { k.ShardID = 3 },
		"shard not running": func(k *pb.Chunk) { k.ShardID = 2 },
		"version":           func(k *pb.Chunk) { k.BinVer = raftio.TransportBinVersion + 1 },
		"deployment":        func(k *pb.Chunk) { k.DeploymentId = 1 },
		"number":            func(k *pb.Chunk) { k.ChunkId = 1 },
		"number in file":    func(k *pb.Chunk) { k.FileChunkId = 1 },
		"poison":            func(k *pb.Chunk) { k.ChunkCount = pb.PoisonChunkCount },
		"no index":          func(k *pb.Chunk) { k.Index = 0 },
		"no term":           func(k *pb.Chunk) { k.Term = 0 },
		"no file":           func(k *pb.Chunk) { k.Filepath = "" },
		"directory":         func(k *pb.Chunk) { k.Filepath = "/tmp/" },
		"parent":            func(k *pb.Chunk) { k.Filepath = "a/.." },
		"external file":     func(k *pb.Chunk) { k.HasFileInfo = true },
		"witness":           func(k *pb.Chunk) { k.Witness = true },
	} {
		_, c := fresh()
		k := chunkOf(1, 2, 0, false)
		forge(&k)
		if c.chunk(&k) == nil {
			t.Errorf("%s passed", name)
		}
	}
	for name, forge := range map[string]func(*pb.Chunk){
		"another shard": func(k *pb.Chunk) { k.ShardID = 2 },
		"another index": func(k *pb.Chunk) { k.Index++ },
		"another term":  func(k *pb.Chunk) { k.Term++ },
		"another file":  func(k *pb.Chunk) { k.Filepath = "other" },
		"again":         func(k *pb.Chunk) { k.ChunkId, k.FileChunkId = 0, 0 },
	} {
		g, c := fresh()
		g.noteRunning([]pb.Message{{ShardID: 2}})
		k := chunkOf(1, 2, 0, false)
		if err := c.chunk(&k); err != nil {
			t.Fatal(err)
		}
		k = chunkOf(1, 2, 1, false)
		forge(&k)
		if c.chunk(&k) == nil {
			t.Errorf("second chunk of %s passed", name)
		}
	}
}
