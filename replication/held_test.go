package replication

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// entriesOf returns entries of one term from an index on, each with its own content.
func entriesOf(term, from, to uint64, say string) (entries []raftpb.Entry) {
	for i := from; i <= to; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term, Key: i, Cmd: fmt.Appendf(nil, "%s %d", say, i)})
	}
	return entries
}

// openNew opens an empty store.
func openNew(t *testing.T) (*logStore, *plainDisk) {
	t.Helper()
	d := newPlainDisk(t)
	dir := []string{t.TempDir()}
	f := &logFactory{disk: d}
	nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: newFileSystem(d), LogDB: logConfig()}}
	if _, err := f.Create(nhc, nil, dir, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	return f.store, d
}

// B1.4, M153: a member's committed entries are compared with those that the leader sends, and with those
// that a peer knows. The log has entries 1 to 10 of term 1 and 11 to 20 of term 3. In term 3 the
// member learned of commits up to 15.
func TestHeld(t *testing.T) {
	n := &node{id: 1}
	s, _ := openNew(t)
	h := &Host{cfg: Config{Member: n.id}, store: s}
	save := func(state raftpb.State, entries ...raftpb.Entry) {
		t.Helper()
		if err := s.SaveRaftState([]raftpb.Update{{ShardID: 1, ReplicaID: uint64(n.id), State: state, EntriesToSave: entries}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	save(raftpb.State{Term: 1, Vote: 1, Commit: 5}, entriesOf(1, 1, 10, "ours")...)
	save(raftpb.State{Term: 3, Vote: 2, Commit: 15}, entriesOf(3, 11, 20, "ours")...)
	save(raftpb.State{Term: 7, Vote: 2, Commit: 15}) // a term in which it has heard of no commit
	held := h.Held(1)
	if held.Term != 3 || held.Commit != 15 || held.CommitTerm != 3 || held.CommitSum != entrySum(&entriesOf(3, 15, 15, "ours")[0]) {
		t.Fatalf("it holds %+v", held)
	}

	sum := func(term, index uint64, say string) uint64 { return entrySum(&entriesOf(term, index, index, say)[0]) }
	for _, c := range []struct {
		name  string
		other Held
		yes   bool
	}{
		{"nothing", Held{}, false},
		{"the same", held, false},
		{"an older commit", Held{Term: 1, Commit: 8, CommitTerm: 1, CommitSum: sum(1, 8, "ours")}, false},
		{"more than here", Held{Term: 3, Commit: 30, CommitTerm: 3}, false},
		{"an entry that is not committed here", Held{Term: 3, Commit: 18, CommitTerm: 3, CommitSum: sum(3, 18, "ours")}, false},
		{"an entry in whose place there is a newer one", Held{Term: 2, Commit: 15, CommitTerm: 2}, true},
		{"one that lies behind this log", Held{Term: 2, Commit: 30, CommitTerm: 2}, true},
		{"one that was committed again by a newer term", Held{Term: 4, Commit: 14, CommitTerm: 2}, true},
		{"the same, not committed here: our leader may have lost", Held{Term: 4, Commit: 18, CommitTerm: 2}, false},
		{"an entry in whose place an older one is committed", Held{Term: 4, Commit: 15, CommitTerm: 4}, true},
		{"an entry in whose place an older one is not committed", Held{Term: 4, Commit: 18, CommitTerm: 4}, false},
		{"another entry of the same term", Held{Term: 3, Commit: 15, CommitTerm: 3, CommitSum: sum(3, 15, "theirs")}, true},
		{"what it no longer has", Held{Term: 3, Commit: 15}, false},
	} {
		if _, _, yes := h.Contradicts(1, c.other); yes != c.yes {
			t.Errorf("%s: %v", c.name, yes)
		}
	}

	for _, c := range []struct {
		name    string
		message raftpb.Message
		lost    bool
	}{
		{"what comes next", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(7, 21, 22, "theirs")}, false},
		{"a tail that a newer leader replaces", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(7, 16, 22, "theirs")}, false},
		{"what is here", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(3, 12, 15, "ours")}, false},
		{"something newer in place of a commit", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(7, 15, 22, "theirs")}, true},
		{"something older in place of commits", raftpb.Message{Type: raftpb.Replicate, Term: 7, Entries: entriesOf(2, 12, 14, "theirs")}, true},
		{"something older, of an earlier leader", raftpb.Message{Type: raftpb.Replicate, Term: 2, Entries: entriesOf(2, 12, 14, "theirs")}, false},
		{"something else in place of commits", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(3, 12, 14, "theirs")}, true},
		{"something else in place of commits, and more", raftpb.Message{Type: raftpb.Replicate, Entries: entriesOf(3, 12, 22, "theirs")}, true},
		{"what is here, and another tail of it", raftpb.Message{Type: raftpb.Replicate, Entries: append(entriesOf(3, 12, 15, "ours"), entriesOf(7, 16, 22, "theirs")...)}, false},
		{"no entries", raftpb.Message{Type: raftpb.Replicate}, false},
		{"not a leader's", raftpb.Message{Type: raftpb.Propose, Entries: entriesOf(7, 15, 22, "theirs")}, false},
	} {
		m := c.message
		m.ShardID, m.From, m.To = 1, 2, uint64(n.id)
		if err := s.contradiction(&m); (err != nil) != c.lost || err != nil && !strings.Contains(err.Error(), "docs/runbook.md") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// B1.4: a follower of two leaders of one term answers each that it has all that the other one has
// committed. The log ends at entry 20. As the leader of term 7 this node has sent entries 21 and
// 22, which it has not saved yet.
func TestUnsent(t *testing.T) {
	s, _ := openNew(t)
	if err := s.SaveRaftState([]raftpb.Update{{ShardID: 1, ReplicaID: 1, State: raftpb.State{Term: 7, Vote: 1}, EntriesToSave: entriesOf(3, 1, 20, "ours")}}, 1); err != nil {
		t.Fatal(err)
	}
	answer := func(shard, term, index uint64, reject bool) error {
		return s.contradiction(&raftpb.Message{Type: raftpb.ReplicateResp, ShardID: shard, From: 2, To: 1, Term: term, LogIndex: index, Reject: reject})
	}
	if err := answer(1, 7, 30, false); err != nil {
		t.Errorf("of an earlier process of this member: %v", err)
	}
	send := func(term, before uint64, n int) {
		s.hold(t.Context(), []raftpb.Message{
			{Type: raftpb.Replicate, ShardID: 1, Term: term, LogIndex: before, Entries: entriesOf(term, before+1, before+uint64(n), "ours")},
			{Type: raftpb.RequestVote, ShardID: 1, Term: term + 1, LogIndex: 99},
		})
	}
	send(7, 15, 2)
	if err := answer(1, 7, 20, false); err != nil {
		t.Errorf("of what is saved: %v", err)
	}
	send(7, 20, 2)
	send(7, 10, 3)
	send(5, 40, 3) // a batch may be late
	for _, c := range []struct {
		name        string
		term, index uint64
		reject      bool
		lost        bool
	}{
		{"the newest that was sent", 7, 22, false, false},
		{"more than that", 7, 23, false, true},
		{"more, but it rejects", 7, 23, true, false},
		{"of an earlier term", 6, 43, false, false},
		{"of a later term", 8, 23, false, false},
	} {
		err := answer(1, c.term, c.index, c.reject)
		if (err != nil) != c.lost || err != nil && !strings.Contains(err.Error(), "docs/runbook.md: Two histories") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := answer(2, 7, 23, false); err != nil {
		t.Errorf("of another shard: %v", err)
	}
}

// A leader that has lost entries that are committed here fails this node before dragonboat sees the
// message.
func TestInbound_StopsAtALeaderThatHasLostCommits(t *testing.T) {
	n := &node{id: 1}
	s, d := openNew(t)
	state := raftpb.State{Term: 3, Vote: 2, Commit: 15}
	if err := s.SaveRaftState([]raftpb.Update{{ShardID: 1, ReplicaID: uint64(n.id), State: state, EntriesToSave: entriesOf(3, 1, 20, "ours")}}, 1); err != nil {
		t.Fatal(err)
	}
	handled := 0
	in := inbound{disk: d, check: s.contradiction}
	handle := in.batch(func(raftpb.MessageBatch) { handled++ })
	send := func(entries []raftpb.Entry) {
		handle(raftpb.MessageBatch{Requests: []raftpb.Message{{Type: raftpb.Replicate, ShardID: 1, From: 2, To: uint64(n.id), Entries: entries}}})
	}
	send(entriesOf(7, 16, 17, "theirs"))
	if handled != 1 || d.Err() != nil {
		t.Fatalf("%d handled, %v", handled, d.Err())
	}
	send(entriesOf(7, 15, 17, "theirs"))
	if handled != 1 || d.Err() == nil {
		t.Fatalf("%d handled, %v", handled, d.Err())
	}
}

// A running node compares a leader's message with its own log.
func TestInbound_AsksTheLogOfTheNode(t *testing.T) {
	e := found(t, 1, 1)
	e.startAll()
	h := e.nodes[0].host
	e.write(e.nodes[0], 1, "ours")
	in := h.hostConfig(h.cfg, &logFactory{store: h.store}).Expert.TransportFactory.(inbound)
	m := raftpb.Message{Type: raftpb.Replicate, ShardID: 1, From: 2, To: 1, Entries: entriesOf(1000, 1, 1, "theirs")}
	if err := in.check(&m); err == nil {
		t.Error("a leader that has another first entry is believed")
	}
}

// tan keeps the tail that a received snapshot replaces until the snapshot is installed. If there
// was no time for that, it keeps the tail until the next start. The tail was not committed in that
// place.
func TestHeld_BehindAReceivedSnapshot(t *testing.T) {
	n := &node{id: 1}
	d := newPlainDisk(t)
	dir := []string{t.TempDir()}
	open := func() *logStore {
		f := &logFactory{disk: d}
		nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: newFileSystem(d), LogDB: logConfig()}}
		if _, err := f.Create(nhc, nil, dir, dir); err != nil {
			t.Fatal(err)
		}
		return f.store
	}
	s := open()
	save := func(u raftpb.Update) {
		t.Helper()
		u.ShardID, u.ReplicaID = 1, uint64(n.id)
		if err := s.SaveRaftState([]raftpb.Update{u}, 1); err != nil {
			t.Fatal(err)
		}
	}
	save(raftpb.Update{State: raftpb.State{Term: 3, Vote: 1, Commit: 9}, EntriesToSave: entriesOf(3, 1, 9, "ours")})
	save(raftpb.Update{State: raftpb.State{Term: 5, Vote: 1, Commit: 9}, EntriesToSave: entriesOf(5, 10, 20, "lost")})
	save(raftpb.Update{State: raftpb.State{Term: 6, Vote: 2, Commit: 15}, Snapshot: raftpb.Snapshot{Index: 15, Term: 6, ShardID: 1}})
	check := func(when string) {
		t.Helper()
		h := &Host{cfg: Config{Member: n.id}, store: s}
		if held := h.Held(1); held.Commit != 15 || held.CommitTerm != 0 {
			t.Errorf("%s it holds %+v", when, held)
		}
		// The leader of term 6 sent the entries of term 4 again and committed them.
		if _, term, yes := h.Contradicts(1, Held{Term: 6, Commit: 12, CommitTerm: 4}); yes {
			t.Errorf("%s an entry of term %d that the snapshot replaced counts as committed", when, term)
		}
	}
	check("now")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer func() { s.Close() }()
	ss, err := s.GetSnapshot(1, uint64(n.id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadRaftState(1, uint64(n.id), ss.Index); err != nil {
		t.Fatal(err)
	}
	check("after a start")
	save(raftpb.Update{State: raftpb.State{Term: 6, Vote: 2, Commit: 17}, EntriesToSave: entriesOf(6, 16, 18, "ours")})
	h := &Host{cfg: Config{Member: n.id}, store: s}
	if held := h.Held(1); held.Commit != 17 || held.CommitTerm != 6 {
		t.Errorf("behind the snapshot it holds %+v", held)
	}
	own := raftpb.Snapshot{Index: 17, Term: 6, ShardID: 1, Dummy: true}
	if err := s.SaveSnapshots([]raftpb.Update{{ShardID: 1, ReplicaID: uint64(n.id), Snapshot: own}}); err != nil {
		t.Fatal(err)
	}
	if held := h.Held(1); held.Commit != 17 || held.CommitTerm != 6 {
		t.Errorf("with a record of its own image it holds %+v", held)
	}
}

// slowLog holds its lock while it writes, as tan does, and its disk takes a second.
type slowLog struct {
	raftio.ILogDB
	mu sync.Mutex
}

func (l *slowLog) SaveRaftState([]raftpb.Update, uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	<-time.After(time.Second)
	return nil
}

func (l *slowLog) IterateEntries(ents []raftpb.Entry, size, _, _, low, _, _ uint64) ([]raftpb.Entry, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(ents, raftpb.Entry{Index: low, Term: 1}), size, nil
}

// In virtual time a read waits for a write without stopping the clock. If it waited for tan's own
// lock, this test would not end.
func TestHeld_WhileTheLogIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLogStore(&slowLog{}, newPlainDisk(t))
		h := &Host{cfg: Config{Member: 1}, store: s}
		save := func() {
			_ = s.SaveRaftState([]raftpb.Update{{ShardID: 1, ReplicaID: 1, State: raftpb.State{Term: 1, Commit: 1}, EntriesToSave: entriesOf(1, 1, 1, "ours")}}, 1)
		}
		save()
		go save()
		synctest.Wait()
		if held := h.Held(1); held.CommitTerm != 1 {
			t.Errorf("it holds %+v", held)
		}
		synctest.Wait()
	})
}

// A keptLog keeps who reads it, as the file system keeps a goroutine of dragonboat whose read has
// failed.
type keptLog struct {
	slowLog
	reading, stop chan struct{}
}

func (l *keptLog) IterateEntries(ents []raftpb.Entry, size, _, _, _, _, _ uint64) ([]raftpb.Entry, uint64, error) {
	close(l.reading)
	<-l.stop
	return ents, size, nil
}

// When a read of the log has failed, its goroutine keeps its turn until the shards are stopped. A
// handshake does not wait for the turn, because Close waits for the handshake, and stops the shards.
func TestHeld_WhileAFailedReadIsKept(t *testing.T) {
	d := newPlainDisk(t)
	l := &keptLog{reading: make(chan struct{}), stop: make(chan struct{})}
	s := newLogStore(l, d)
	s.shard(1).noteFound(raftio.RaftState{State: raftpb.State{Term: 1, Commit: 1}, FirstIndex: 1, EntryCount: 1}, 0)
	h := &Host{cfg: Config{Member: 1}, store: s, done: make(chan struct{})}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		_, _, _ = s.IterateEntries(nil, 0, 1, 1, 1, 2, 1<<20)
	}()
	<-l.reading
	held := make(chan Held)
	go func() { held <- h.Held(1) }()
	d.Fail(errInjected)
	if got := <-held; got.Commit != 1 || got.CommitTerm != 0 {
		t.Errorf("it holds %+v", got)
	}
	if err := s.RemoveNodeData(1, 1); !errors.Is(err, errNoTurn) {
		t.Errorf("a removal: %v", err)
	}
	close(l.stop)
	<-kept
}
