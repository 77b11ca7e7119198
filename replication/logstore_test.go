package replication

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// fsyncs returns how many fsyncs of log files count writes cost, one write at a time. Each round
// writes commands of its own: the wait for a command that a member has seen ends at once.
func fsyncs(e *ensemble, n *node, round, count int) map[MemberID]uint64 {
	e.t.Helper()
	e.write(n, 1, fmt.Sprintf("warm-%d", round))
	for _, o := range e.nodes {
		e.barrier(o, 1)
	}
	before := map[MemberID]uint64{}
	for _, o := range e.nodes {
		before[o.id] = o.disk.Syncs()
	}
	for i := range count {
		cmd := fmt.Sprintf("counted-%d-%d", round, i)
		e.write(n, 1, cmd)
		for _, o := range e.nodes {
			o.tapes[0].has(e.t, cmd) // at rest: every member has the write before the next
		}
	}
	after := map[MemberID]uint64{}
	for _, o := range e.nodes {
		after[o.id] = o.disk.Syncs() - before[o.id]
	}
	return after
}

func TestFsync_OnePerWriteAndMember(t *testing.T) {
	const writes = 100
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			e := found(t, members, 1)
			e.startAll()
			leader := awaitLeader(t, e.nodes[0], 1)
			// On a machine that is too busy Raft sends late messages again and elects. That costs
			// fsyncs too, but not every time.
			for round := 1; ; round++ {
				counts, wrong := fsyncs(e, e.node(leader.Member), round, writes), 0
				for m, got := range counts {
					t.Logf("member %d: %d fsyncs for %d writes", m, got, writes)
					if got != writes {
						wrong++
					}
				}
				if wrong == 0 {
					break
				}
				if round == 5 {
					t.Fatalf("%d members did not need one fsync a write", wrong)
				}
				leader = awaitLeader(t, e.nodes[0], 1)
			}
		})
	}
}

// memoryLog is the store below the logStore under test. It keeps all updates.
type memoryLog struct {
	raftio.ILogDB
	busy  sync.Mutex // two writers at once would find it locked
	saved []raftpb.Update
	t     testing.TB
}

func (m *memoryLog) enter() func() {
	if !m.busy.TryLock() {
		m.t.Error("two writers at once")
		return func() {}
	}
	runtime.Gosched() // gives other writers a chance to come
	return m.busy.Unlock
}

func (m *memoryLog) SaveRaftState(u []raftpb.Update, _ uint64) error {
	defer m.enter()()
	m.saved = append([]raftpb.Update(nil), u...)
	return nil
}
func (m *memoryLog) SaveSnapshots([]raftpb.Update) error          { defer m.enter()(); return nil }
func (m *memoryLog) RemoveEntriesTo(uint64, uint64, uint64) error { defer m.enter()(); return nil }
func (m *memoryLog) RemoveNodeData(uint64, uint64) error          { defer m.enter()(); return nil }
func (m *memoryLog) ImportSnapshot(raftpb.Snapshot, uint64) error { defer m.enter()(); return nil }
func (m *memoryLog) ReadRaftState(shard, _, _ uint64) (raftio.RaftState, error) {
	return raftio.RaftState{State: raftpb.State{Term: shard, Vote: 3, Commit: 9}}, nil
}

func update(shard uint64, st raftpb.State, entries ...raftpb.Entry) raftpb.Update {
	return raftpb.Update{ShardID: shard, ReplicaID: 1, State: st, EntriesToSave: entries}
}

func TestLogStore_FillsInTheLastState(t *testing.T) {
	db := &memoryLog{t: t}
	s := newLogStore(db, newPlainDisk(t))
	for shard := uint64(1); shard <= 2; shard++ {
		if _, err := s.ReadRaftState(shard, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	entry := raftpb.Entry{Index: 10, Term: 2, Cmd: []byte("x")}
	second := raftpb.State{Term: 5, Vote: 1, Commit: 10}
	commit := raftpb.State{Term: 5, Vote: 1, Commit: 11}
	steps := []struct {
		give []raftpb.Update
		want []raftpb.State // the States that reach tan
	}{
		{[]raftpb.Update{update(1, raftpb.State{}, entry), update(2, raftpb.State{}, entry)},
			[]raftpb.State{{Term: 1, Vote: 3, Commit: 9}, {Term: 2, Vote: 3, Commit: 9}}}, // as read at the start
		{[]raftpb.Update{update(2, second, entry)}, []raftpb.State{second}}, // a change passes
		{[]raftpb.Update{update(1, raftpb.State{}, entry), update(2, raftpb.State{}, entry)},
			[]raftpb.State{{Term: 1, Vote: 3, Commit: 9}, second}}, // per shard
		{[]raftpb.Update{update(2, raftpb.State{}), update(1, raftpb.State{}, entry)},
			[]raftpb.State{{Term: 1, Vote: 3, Commit: 9}}}, // an update with nothing to save is left out
		{[]raftpb.Update{update(2, commit)}, []raftpb.State{commit}},
		{[]raftpb.Update{update(2, raftpb.State{}, entry)}, []raftpb.State{commit}},
	}
	for i, step := range steps {
		db.saved = nil
		before := append([]raftpb.Update(nil), step.give...)
		if err := s.SaveRaftState(step.give, 1); err != nil {
			t.Fatal(err)
		}
		var got []raftpb.State
		for _, u := range db.saved {
			got = append(got, u.State)
		}
		if fmt.Sprint(got) != fmt.Sprint(step.want) {
			t.Errorf("step %d: saved %v, want %v", i, got, step.want)
		}
		for j := range before {
			if before[j].State != step.give[j].State {
				t.Errorf("step %d: the caller's update %d was changed to %v", i, j, step.give[j].State)
			}
		}
	}
}

// termLog is a log of entries with terms. It counts its reads.
type termLog struct {
	memoryLog
	terms map[[2]uint64]uint64 // by shard and index
	reads int
	slow  func() error // runs between a read or save and its answer
}

func (l *termLog) pause() (err error) {
	if slow := l.slow; slow != nil {
		l.slow = nil
		err = slow()
	}
	return err
}

func (l *termLog) SaveRaftState(updates []raftpb.Update, _ uint64) error {
	for _, u := range updates {
		for _, e := range u.EntriesToSave {
			l.terms[[2]uint64{u.ShardID, e.Index}] = e.Term
		}
	}
	return l.pause()
}

func (l *termLog) IterateEntries(ents []raftpb.Entry, size, shard, _, low, _, _ uint64) ([]raftpb.Entry, uint64, error) {
	l.reads++
	e := raftpb.Entry{Index: low, Term: l.terms[[2]uint64{shard, low}], Cmd: make([]byte, 10)}
	return append(ents, e), size + 10, l.pause()
}

// dragonboat asks for the last entry's term with each message of an election. The store reads it
// once, but notices every change of the log. With a term that is too high, a member would vote for
// a candidate that lacks committed entries.
func TestLogStore_ReadsATermOnce(t *testing.T) {
	db := &termLog{memoryLog: memoryLog{t: t}, terms: make(map[[2]uint64]uint64)}
	s := newLogStore(db, newPlainDisk(t))
	saved := func(shard, index, term uint64) raftpb.Update {
		return update(shard, raftpb.State{Term: term}, raftpb.Entry{Index: index, Term: term})
	}
	save := func(updates ...raftpb.Update) {
		if err := s.SaveRaftState(updates, 1); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(shard, index uint64) raftpb.Entry {
		t.Helper()
		ents, _, err := s.IterateEntries(nil, 0, shard, 1, index, index+1, 0)
		if err != nil || len(ents) != 1 || ents[0].Index != index {
			t.Fatalf("%+v, %v", ents, err)
		}
		return ents[0]
	}
	asks := func(what string, shard, index, term uint64, reads int) {
		t.Helper()
		db.reads = 0
		for range 3 {
			if e := ask(shard, index); e.Term != term {
				t.Errorf("%s: term %d, want %d", what, e.Term, term)
			}
		}
		if db.reads != reads {
			t.Errorf("%s: %d reads, want %d", what, db.reads, reads)
		}
	}
	save(saved(1, 7, 2), saved(2, 7, 9))
	save(saved(1, 8, 2))
	asks("the last", 1, 8, 2, 1)
	asks("another", 1, 7, 2, 1)
	asks("another shard's", 2, 7, 9, 1)
	asks("beside another shard's", 1, 7, 2, 0)
	asks("the last again", 1, 8, 2, 1)
	save(saved(2, 8, 9), saved(1, 8, 3))
	asks("one that was written anew", 1, 8, 3, 1)
	save(update(1, raftpb.State{Term: 4, Vote: 2}))
	asks("after a vote", 1, 8, 3, 0)
	save(saved(1, 7, 4)) // and 8 no longer exists
	asks("after an earlier one was written anew", 1, 8, 3, 1)

	// A save waits for a read, and a read for a save.
	var waits sync.WaitGroup
	db.slow = func() error {
		waits.Go(func() { save(saved(1, 7, 5)) })
		return nil
	}
	if e := ask(1, 7); e.Term != 4 {
		t.Errorf("read just before it is written again: %+v", e)
	}
	waits.Wait()
	asks("written anew while it was read", 1, 7, 5, 1)
	ask(1, 8)
	db.terms[[2]uint64{1, 7}] = 0
	db.slow = func() error { // tan has half of it
		db.terms[[2]uint64{1, 7}] = 1
		waits.Go(func() {
			if e := ask(1, 7); e.Term != 6 {
				t.Errorf("read while it was saved: %+v", e)
			}
		})
		db.terms[[2]uint64{1, 7}] = 6
		return nil
	}
	save(saved(1, 7, 6))
	waits.Wait()
	asks("read after it was saved", 1, 7, 6, 0)

	for what, other := range map[string]func() error{
		"removed":   func() error { return s.RemoveNodeData(1, 1) },
		"imported":  func() error { return s.ImportSnapshot(raftpb.Snapshot{ShardID: 1}, 1) },
		"another's": func() error { _, err := s.ReadRaftState(1, 2, 0); return err },
		"half written": func() error {
			db.slow = func() error { return errInjected }
			_ = s.save([]raftpb.Update{saved(1, 9, 7)}, 1)
			return nil
		},
	} {
		ask(1, 7)
		db.terms[[2]uint64{1, 7}]++
		if err := other(); err != nil {
			t.Fatal(err)
		}
		asks(what, 1, 7, db.terms[[2]uint64{1, 7}], 1)
	}
	for _, c := range []struct{ high, maxSize uint64 }{{8, 1 << 20}, {9, 0}} {
		db.reads = 0
		if ents, _, err := s.IterateEntries(nil, 0, 1, 1, 7, c.high, c.maxSize); err != nil || len(ents[0].Cmd) == 0 || db.reads != 1 {
			t.Errorf("the entry itself, %+v: %+v, %v", c, ents, err)
		}
	}
}

// C2: All writes to tan go one at a time, because tan syncs the current file without its lock.
func TestLogStore_OneWriterAtATime(t *testing.T) {
	s := newLogStore(&memoryLog{t: t}, newPlainDisk(t))
	st := raftpb.State{Term: 1, Vote: 1, Commit: 1}
	writers := []func(){
		func() { _ = s.SaveRaftState([]raftpb.Update{update(1, st), update(2, st)}, 1) },
		func() { _ = s.SaveSnapshots([]raftpb.Update{update(1, st)}) },
		func() { _ = s.RemoveEntriesTo(2, 1, 1) },
		func() { _ = s.RemoveNodeData(1, 1) },
		func() { _ = s.ImportSnapshot(raftpb.Snapshot{ShardID: 2}, 1) },
		func() { _, _ = s.ReadRaftState(1, 1, 0) },
	}
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() {
			for range 2000 {
				w()
			}
		})
	}
	wg.Wait()
}

// openTan opens the store of a node that is not running, as the NodeHost does.
func openTan(t *testing.T, e *ensemble, n *node) (*logStore, *plainDisk) {
	t.Helper()
	d := newPlainDisk(t)
	c := e.config(n).withDefaults()
	c.Disk = d
	dir, exists, err := logDir(c)
	if err != nil || !exists {
		t.Fatalf("log of %d: exists %v, %v", n.id, exists, err)
	}
	nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: newFileSystem(c.Disk), LogDB: logConfig()}}
	f := &logFactory{disk: c.Disk}
	if _, err := f.Create(nhc, nil, []string{dir}, []string{dir}); err != nil {
		t.Fatal(err)
	}
	return f.store, d
}

// crashed returns a node whose directory is what a kill of n at this moment would leave.
func crashed(t *testing.T, n *node) *node {
	t.Helper()
	dir := t.TempDir()
	testkit.CopyDir(t, dir, n.dir)
	return &node{id: n.id, dir: dir}
}

// Term and vote are on the disk when a save returns, also across restarts and kills, whatever the
// store filled in between. Only writes that Raft needs on the disk cost an fsync.
func TestLogStore_TermAndVoteSurviveACrash(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "first")
	e.stop(n)
	last := raftpb.State{}
	for round := range uint64(4) {
		s, d := openTan(t, e, n)
		rs, err := s.ReadRaftState(1, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 && rs.State != last {
			t.Fatalf("round %d: read %v, saved %v", round, rs.State, last)
		}
		next := rs.FirstIndex + rs.EntryCount
		voted := raftpb.State{Term: rs.State.Term + 1, Vote: round + 7, Commit: rs.State.Commit}
		commit := voted
		commit.Commit = next
		for i, step := range []struct {
			save  raftpb.Update
			syncs uint64
			want  raftpb.State
		}{
			{update(1, voted), 1, voted}, // the vote of a new term
			{update(1, raftpb.State{}, raftpb.Entry{Index: next, Term: voted.Term}), 1, voted}, // an entry, no State
			{update(1, commit), 0, commit},
			{update(1, raftpb.State{}), 0, commit}, // nothing new
			{update(1, raftpb.State{}, raftpb.Entry{Index: next + 1, Term: voted.Term}), 1, commit},
		} {
			before := d.Syncs()
			if err := s.SaveRaftState([]raftpb.Update{step.save}, 1); err != nil {
				t.Fatal(err)
			}
			if got := d.Syncs() - before; got != step.syncs {
				t.Errorf("round %d, step %d: %d fsyncs, want %d", round, i, got, step.syncs)
			}
			other, _ := openTan(t, e, crashed(t, n))
			rs, err := other.ReadRaftState(1, 1, 0)
			if err != nil || rs.State != step.want {
				t.Errorf("round %d, step %d: after a kill %v, %v, want %v", round, i, rs.State, err, step.want)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = commit
		if round%2 == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		defer s.Close()
		n = crashed(t, n)
	}
}

// C2: Two workers write entries and snapshot records. Each time the log switches to a new file,
// this test records a snapshot between the write of an entry and its fsync. There a bare tan loses
// an fsync, or panics because the file it syncs is closed. Here the record waits.
func TestLogStore_SnapshotsBesideEntries(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "first")
	e.stop(n)
	s, d := openTan(t, e, n)
	defer s.Close()
	if _, err := s.ReadRaftState(1, 1, 0); err != nil {
		t.Fatal(err)
	}
	const first, entries, full = 1000, 60, 64 << 20
	index := atomic.Uint64{}
	var snapshots sync.WaitGroup
	var met sync.Map // the files at whose fsync this was done
	d.onSync = func(name string) {
		info, err := os.Stat(name)
		if err != nil || info.Size() < full {
			return
		}
		if _, before := met.LoadOrStore(name, true); before {
			return
		}
		recorded := make(chan struct{})
		snapshots.Go(func() {
			defer close(recorded)
			ss := raftpb.Snapshot{Index: index.Load() - 1, Term: 9, ShardID: 1, Dummy: true}
			_ = s.SaveSnapshots([]raftpb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: ss}})
			_ = s.RemoveEntriesTo(1, 1, ss.Index-1)
		})
		select {
		case <-recorded:
			t.Error("recorded while an entry is being saved")
		case <-time.After(100 * time.Millisecond):
		}
	}
	cmd := make([]byte, 4<<20)
	for i := uint64(first); i < first+entries; i++ {
		index.Store(i)
		_ = s.SaveRaftState([]raftpb.Update{update(1, raftpb.State{}, raftpb.Entry{Index: i, Term: 9, Cmd: cmd})}, 1)
	}
	snapshots.Wait()
	rs, err := s.ReadRaftState(1, 1, first+entries-2)
	if err != nil || rs.EntryCount != 1 {
		t.Errorf("the last entry reads as %+v, %v", rs, err)
	}
	files := 0
	met.Range(func(any, any) bool { files++; return true })
	if err := d.Err(); err != nil || files < 3 {
		t.Errorf("%d full files, disk %v", files, err)
	}
}

// A read also ends at the store's own limits, but is never empty. A size above the requested one
// tells dragonboat that there are more entries.
func TestLogStore_ReadsAreBounded(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "first")
	e.stop(n)
	s, _ := openTan(t, e, n)
	defer s.Close()
	if _, err := s.ReadRaftState(1, 1, 0); err != nil {
		t.Fatal(err)
	}
	const first, small, large = 1000, 2*readEntries + 10, 5
	end := uint64(first)
	save := func(count, size int) {
		for range count {
			_ = s.SaveRaftState([]raftpb.Update{update(1, raftpb.State{}, raftpb.Entry{Index: end, Term: 9, Cmd: make([]byte, size)})}, 1)
			end++
		}
	}
	save(small, 10)
	save(large, 2*readBytes/3)
	const unlimited = 64 << 20 // dragonboat asks for this much
	for _, c := range []struct {
		low, high, maxSize uint64
		want               int
		more               bool
	}{
		{first, first + 1, 0, 1, false},
		{first, first + readEntries, unlimited, readEntries, false},
		{first, first + readEntries + 1, unlimited, readEntries, true},
		{first, end, unlimited, readEntries, true},
		{first, end, 1, 1, true},
		{first + small - 3, end, unlimited, 5, true}, // three small ones, and two to exceed the limit
		{end - 1, end, unlimited, 1, false},
		{end - 2, end, 1, 1, true}, // larger than asked for, yet one
	} {
		ents, size, err := s.IterateEntries(nil, 0, 1, 1, c.low, c.high, c.maxSize)
		if err != nil || len(ents) != c.want || ents[0].Index != c.low {
			t.Errorf("[%d, %d) of %d bytes: %d entries, %v, want %d", c.low, c.high, c.maxSize, len(ents), err, c.want)
		}
		if more := c.maxSize > 0 && size > c.maxSize; more != c.more {
			t.Errorf("[%d, %d) of %d bytes: size %d; says there is more: %v, want %v", c.low, c.high, c.maxSize, size, more, c.more)
		}
	}
	if ents, size, err := s.IterateEntries(nil, 0, 1, 1, end, end+5, unlimited); err != nil || len(ents) != 0 || size > unlimited {
		t.Errorf("what is not there: %d entries, size %d, %v", len(ents), size, err)
	}
}

func TestRequestSnapshot_UnderLoad(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "first")
	taken := func() bool {
		ss, err := n.host.store.GetSnapshot(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		return ss.Index > 0
	}
	deadline := time.Now().Add(patience)
	for i := 0; i < 200 || !taken(); i++ {
		if time.Now().After(deadline) {
			t.Fatal("no snapshot was made under load")
		}
		if err := n.host.RequestSnapshot(1); err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		e.write(n, 1, fmt.Sprint(i))
	}
}

// A slowReader is a disk whose first read of a log goes on until something else has begun.
type slowReader struct {
	*disk.Disk
	begin func()      // begins it, and returns
	open  atomic.Bool // the log is being read
}

func (d *slowReader) OpenForRead(name string) (File, error) {
	f, err := d.Disk.OpenForRead(name)
	if begin := d.begin; err == nil && begin != nil && strings.HasSuffix(name, ".log") {
		d.begin = nil
		d.open.Store(true)
		begin()
		return &slowFile{f, &d.open}, nil
	}
	return f, err
}

type slowFile struct {
	File
	open *atomic.Bool
}

func (f *slowFile) Close() error {
	f.open.Store(false)
	return f.File.Close()
}

// tan reads beyond the last entry, and fails at half of a record there. So the snapshot worker
// writes none while the log is read.
func TestLogStore_ReadsWhileASnapshotIsRecorded(t *testing.T) {
	real := realDisk(t)(t.TempDir()).(*disk.Disk)
	d := &slowReader{Disk: real}
	dir := filepath.Join(d.Dir(), "log")
	if err := d.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: newFileSystem(d), LogDB: logConfig()}}
	db, err := tan.Factory.Create(nhc, nil, []string{dir}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	s := newLogStore(db, d)
	entry := raftpb.Entry{Index: 1, Term: 1, Cmd: []byte("x")}
	if err := s.SaveRaftState([]raftpb.Update{update(1, raftpb.State{Term: 1, Vote: 1}, entry)}, 1); err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	d.begin = func() {
		real.SetFault(func(op disk.Op, _ string) error {
			if op == disk.OpWrite && d.open.Load() {
				t.Error("the log is written while it is read")
			}
			return nil
		})
		begun := make(chan struct{})
		go func() {
			close(begun)
			snapshot := raftpb.Snapshot{Index: 1, Term: 1, Filepath: strings.Repeat("x", blockSize)} // more than a block takes two writes
			saved <- s.SaveSnapshots([]raftpb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: snapshot}})
		}()
		<-begun
		for range 100 {
			runtime.Gosched() // it would write now
		}
	}
	err = guard(func() error { // without guard it would not return
		ents, _, err := s.IterateEntries(nil, 0, 1, 1, 1, 2, 1<<20)
		if err == nil && len(ents) != 1 {
			err = fmt.Errorf("%d entries", len(ents))
		}
		return err
	})
	if err != nil {
		t.Errorf("while a snapshot is recorded the log reads: %v", err)
	}
	if err := errors.Join(<-saved, s.Close(), d.Err()); err != nil {
		t.Error(err)
	}
}
