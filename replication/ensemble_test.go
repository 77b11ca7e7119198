package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// testDisk is what tests need of a disk.
type testDisk interface {
	Disk
	Syncs() uint64
}

// tape is a machine that remembers a digest of all applied commands. Sync writes its image to a
// file.
type tape struct {
	disk Disk
	file string

	onApply func(e Entry)
	onSync  func() error

	onInstall  func(stop <-chan struct{}) error
	onSnapshot func() error
	onWrite    func(io.Writer) error

	mu      sync.Mutex
	index   uint64 // index of the last command
	count   uint64
	sum     uint64
	grew    chan struct{} // closed and replaced at every Apply
	applied uint64        // index of the image
	seen    map[string]int
	pad     int // bytes added to a snapshot
	closed  bool
	install int
}

var table = crc64.MakeTable(crc64.ECMA)

func openTape(t testing.TB, d Disk, dir string, shard ShardID) *tape {
	t.Helper()
	m := &tape{disk: d, file: filepath.Join(dir, fmt.Sprintf("tape-%d", shard)), grew: make(chan struct{}), seen: map[string]int{}}
	text, err := readFile(d, m.file, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := m.decode(text); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *tape) decode(text []byte) error {
	if len(text) < 24 {
		return fmt.Errorf("image of %d bytes", len(text))
	}
	m.index, m.count, m.sum = binary.BigEndian.Uint64(text), binary.BigEndian.Uint64(text[8:]), binary.BigEndian.Uint64(text[16:])
	m.applied = m.index
	return nil
}

func (m *tape) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.index)
	b = binary.BigEndian.AppendUint64(b, m.count)
	return binary.BigEndian.AppendUint64(b, m.sum)
}

func (m *tape) Applied() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

func (m *tape) Apply(entries []Entry) {
	for _, e := range entries {
		if m.onApply != nil {
			m.onApply(e)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if e.Index <= m.index {
			panic(fmt.Sprintf("index %d after %d", e.Index, m.index))
		}
		m.index = e.Index
		m.count++
		m.sum = crc64.Update(m.sum, table, e.Cmd)
		m.seen[string(e.Cmd)]++
	}
	close(m.grew)
	m.grew = make(chan struct{})
}

func (m *tape) Sync() error {
	if m.onSync != nil {
		if err := m.onSync(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.save()
}

func (m *tape) save() error {
	if err := writeFile(m.disk, m.file+".new", m.encode()); err != nil {
		return err
	}
	return m.disk.Rename(m.file+".new", m.file)
}

func (m *tape) Snapshot() (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onSnapshot != nil {
		if err := m.onSnapshot(); err != nil {
			return nil, err
		}
	}
	return &tapeSnapshot{text: append(m.encode(), make([]byte, m.pad)...), onWrite: m.onWrite}, nil
}

func (m *tape) Install(r io.Reader, stop <-chan struct{}) error {
	if m.onInstall != nil {
		if err := m.onInstall(stop); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.decode(text); err != nil {
		return err
	}
	m.install++
	close(m.grew)
	m.grew = make(chan struct{})
	return m.save()
}

func (m *tape) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errors.New("closed twice")
	}
	m.closed = true
	return nil
}

type tapeSnapshot struct {
	text    []byte
	onWrite func(io.Writer) error
}

func (s *tapeSnapshot) WriteTo(w io.Writer, stop <-chan struct{}) error {
	if s.onWrite != nil {
		if err := s.onWrite(w); err != nil {
			return err
		}
	}
	_, err := w.Write(s.text)
	return err
}
func (s *tapeSnapshot) Close() error { return nil }

type tapeState struct{ count, sum uint64 }

func (m *tape) state() tapeState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tapeState{m.count, m.sum}
}

func (m *tape) lastIndex() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index
}

// times returns how often a command was applied.
func (m *tape) times(cmd string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[cmd]
}

// installs waits until a stream was installed.
func (m *tape) installs(t testing.TB) {
	t.Helper()
	eventually(t, "install", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.install > 0
	})
}

// has waits until a command was applied.
func (m *tape) has(t testing.TB, cmd string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		m.mu.Lock()
		n, grew := m.seen[cmd], m.grew
		m.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-grew:
		case <-deadline.C:
			t.Fatalf("%q was not applied within %v", cmd, patience)
		}
	}
}

const patience = testkit.Patience

// node is a member of an ensemble under test.
type node struct {
	id    MemberID
	later bool // it is none of the founders
	dir   string
	disk  testDisk
	host  *Host
	tapes []*tape
}

type ensemble struct {
	t       testing.TB
	carrier *carrier
	digest  [32]byte
	members []MemberID
	nodes   []*node
	shards  int
	alone   bool
	tick    time.Duration
	newDisk func(dir string) testDisk
	prepare func(n *node) // called before the shards are started

	transport func(n *node) Transport // nil means the carrier's
}

// found makes an ensemble of n members with their directories. It starts none.
func found(t testing.TB, n, shards int) *ensemble {
	e := &ensemble{t: t, carrier: newCarrier(), shards: shards, alone: n == 1, tick: 10 * time.Millisecond}
	e.newDisk = func(string) testDisk { return newPlainDisk(t) }
	for i := range n {
		e.members = append(e.members, MemberID(i+1))
		e.nodes = append(e.nodes, &node{id: MemberID(i + 1), dir: t.TempDir()})
	}
	e.digest = Founding("test", e.members, shards)
	t.Cleanup(func() {
		for _, n := range e.nodes {
			if n.host != nil {
				e.stop(n)
			}
		}
	})
	return e
}

func (e *ensemble) config(n *node) Config {
	carry := e.carrier.factory(UUID(e.digest, n.id))
	if e.transport != nil {
		carry = e.transport(n)
	}
	members := e.members
	if n.later {
		members = nil
	}
	return Config{
		Dir: n.dir, Disk: n.disk, Member: n.id, Members: members, Alone: e.alone, Shards: e.shards, Digest: e.digest, Tick: e.tick,
		Transport: carry, Logger: testLogger(e.t),
	}
}

func testLogger(t testing.TB) *slog.Logger {
	level := slog.LevelError
	if os.Getenv("VIVARIUM_TEST_LOG") != "" {
		level = slog.LevelDebug - 4
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func (e *ensemble) start(n *node) {
	e.t.Helper()
	n.disk = e.newDisk(n.dir)
	host, err := Open(e.config(n))
	if err != nil {
		e.t.Fatalf("open %d: %v", n.id, err)
	}
	n.host, n.tapes = host, nil
	for i := range e.shards {
		n.tapes = append(n.tapes, openTape(e.t, n.disk, n.dir, ShardID(i+1)))
	}
	if e.prepare != nil {
		e.prepare(n)
	}
	for i := range e.shards {
		if err := host.StartShard(ShardID(i+1), n.tapes[i]); err != nil {
			e.t.Fatalf("start shard %d of %d: %v", i+1, n.id, err)
		}
	}
}

func (e *ensemble) startAll() {
	e.t.Helper()
	for _, n := range e.nodes {
		e.start(n)
	}
}

func (e *ensemble) stop(n *node) {
	e.t.Helper()
	host := n.host
	n.host = nil
	if err := host.Close(patience); err != nil {
		e.t.Errorf("close %d: %v", n.id, err)
	}
}

// awaitLeader waits until a node knows a leader and returns it.
func awaitLeader(t testing.TB, n *node, shard ShardID) Leader {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		l, changed := n.host.shards[shard-1].leadership()
		if l.Member != 0 {
			return l
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("no leader of shard %d within %v", shard, patience)
		}
	}
}

// write proposes on n until the command is applied on n.
func (e *ensemble) write(n *node, shard ShardID, cmd string) {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	m := n.tapes[shard-1]
	for time.Now().Before(deadline) {
		awaitLeader(e.t, n, shard)
		p, err := n.host.Propose(shard, []byte(cmd))
		if err != nil {
			continue
		}
		if e.applied(m, cmd, p) {
			return
		}
	}
	e.t.Fatalf("%q was not applied within %v", cmd, patience)
}

// applied waits a while for a command. It returns false if the command may be lost.
func (e *ensemble) applied(m *tape, cmd string, p *Proposal) bool {
	return e.appliedUnless(m, cmd, p, nil)
}

// appliedUnless is applied, but gives up when end is closed. A member that is alone loses no
// command except those it reports as dropped, and a second proposal would be applied too.
func (e *ensemble) appliedUnless(m *tape, cmd string, p *Proposal, end <-chan struct{}) bool {
	while := time.Second
	if len(e.nodes) == 1 {
		while = patience
	}
	lost := time.NewTimer(while)
	defer lost.Stop()
	tick := time.NewTicker(e.tick)
	defer tick.Stop()
	for {
		m.mu.Lock()
		n, grew := m.seen[cmd], m.grew
		m.mu.Unlock()
		if n > 0 {
			return true
		}
		if p.Dropped() {
			return false
		}
		select {
		case <-grew:
		case <-tick.C:
		case <-lost.C:
			return false
		case <-end:
			return false
		}
	}
}

func (e *ensemble) barrier(n *node, shard ShardID) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.host.Barrier(ctx, shard, time.Minute); err != nil {
		e.t.Fatalf("barrier on %d: %v", n.id, err)
	}
}

// same checks that all members have the same state, after a barrier on each. A write that was
// proposed again may still be on its way.
func (e *ensemble) same(t *testing.T) {
	t.Helper()
	for shard := range e.shards {
		for _, n := range e.nodes {
			e.barrier(n, ShardID(shard+1))
		}
		eventually(t, "agreement", func() bool {
			want := e.nodes[0].tapes[shard].state()
			for _, n := range e.nodes[1:] {
				if n.tapes[shard].state() != want {
					return false
				}
			}
			return true
		})
	}
}

// node returns a member of the ensemble.
func (e *ensemble) node(m MemberID) *node { return e.nodes[m-1] }
