package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// A registry knows members by their names.
type registry struct{}

func (registry) Create(string, uint64, config.TargetValidator) (raftio.INodeRegistry, error) {
	return registry{}, nil
}
func (registry) Close() error              { return nil }
func (registry) Add(_, _ uint64, _ string) {}
func (registry) Remove(_, _ uint64)        {}
func (registry) RemoveShard(uint64)        {}
func (registry) Resolve(_, replica uint64) (target, key string, err error) {
	return uuidOf(replica), uuidOf(replica), nil
}

// A counter is a state machine that counts its entries and adds up their content. It survives its
// host, as if it were on a disk.
type counter struct {
	mu        sync.Mutex
	applied   uint64
	count     uint64
	sum       uint64
	installed int
}

func (c *counter) Open(<-chan struct{}) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applied, nil
}

func (c *counter) Update(entries []sm.Entry) ([]sm.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range entries {
		c.applied = e.Index
		c.count++
		c.sum += binary.BigEndian.Uint64(e.Cmd)
		entries[i].Result = sm.Result{Value: c.count}
	}
	return entries, nil
}

func (c *counter) Lookup(any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [2]uint64{c.count, c.sum}, nil
}

func (c *counter) Sync() error { return nil }

func (c *counter) PrepareSnapshot() (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [3]uint64{c.applied, c.count, c.sum}, nil
}

// ballast makes a snapshot several chunks long.
const ballast = 5 << 20

func (c *counter) SaveSnapshot(state any, w io.Writer, _ <-chan struct{}) error {
	for _, n := range state.([3]uint64) {
		if err := binary.Write(w, binary.BigEndian, n); err != nil {
			return err
		}
	}
	_, err := w.Write(make([]byte, ballast))
	return err
}

func (c *counter) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	var state [3]uint64
	if err := binary.Read(r, binary.BigEndian, &state); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, r); n != ballast || err != nil {
		return fmt.Errorf("%d bytes of ballast: %w", n, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied, c.count, c.sum = state[0], state[1], state[2]
	c.installed++
	return nil
}

func (c *counter) Close() error { return nil }

func (c *counter) state() (count, sum uint64, installed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.sum, c.installed
}

// A member is a dragonboat host with our transport.
type member struct {
	*dragonboat.NodeHost
	transport *Transport
	machine   *counter
	log       *logbook
}

// startMember starts a host on a mesh. The machine and the directory may have been used before.
func startMember(t *testing.T, n Network, id uint64, dir string, machine *counter) *member {
	t.Helper()
	m := &member{machine: machine, log: &logbook{}}
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	o := among(Options{Self: identity(id), Network: n, Listener: l, Target: targetOf}, 1, 2, 3)
	if n, ok := n.(*noting); ok {
		o.Address = n.at.of
	}
	o.Logger = slog.New(m.log)
	m.transport = New(o)
	nh := config.NodeHostConfig{
		NodeHostDir: dir, RTTMillisecond: 10, RaftAddress: fmt.Sprintf("member-%d", id), NodeHostID: uuidOf(id), DeploymentID: deployment,
		Expert: config.ExpertConfig{
			TransportFactory: m.transport.Factory(), NodeRegistryFactory: registry{}, LogDBFactory: tan.Factory,
			Engine: config.EngineConfig{ExecShards: 1, CommitShards: 1, ApplyShards: 1, SnapshotShards: 2, CloseShards: 1},
			LogDB:  config.GetTinyMemLogDBConfig(),
		},
	}
	nh.Expert.LogDB.Shards = 1
	if m.NodeHost, err = dragonboat.NewNodeHost(nh); err != nil {
		t.Fatal(err)
	}
	err = m.StartOnDiskReplica(map[uint64]string{1: uuidOf(1), 2: uuidOf(2), 3: uuidOf(3)}, false,
		func(uint64, uint64) sm.IOnDiskStateMachine { return machine },
		config.Config{
			ReplicaID: id, ShardID: 1, ElectionRTT: 20, HeartbeatRTT: 2, CheckQuorum: true, PreVote: true,
			SnapshotEntries: 50, CompactionOverhead: 10,
		})
	if err != nil {
		m.NodeHost.Close()
		t.Fatal(err)
	}
	return m
}

// propose proposes until a proposal is applied.
func (m *member) propose(t *testing.T, n uint64) {
	t.Helper()
	cmd := binary.BigEndian.AppendUint64(nil, n)
	until(t, "proposal", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.SyncPropose(ctx, m.GetNoOPSession(1), cmd)
		return err == nil
	})
}

// read reads linearizably, so it asks the leader.
func (m *member) read(t *testing.T) {
	t.Helper()
	until(t, "read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.SyncRead(ctx, 1, nil)
		return err == nil
	})
}

// logRange returns the first and the last index of the member's log.
func (m *member) logRange(t *testing.T) (first, last uint64) {
	t.Helper()
	r, err := m.GetLogReader(1)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetRange()
}

var quiet sync.Once

// Three hosts of dragonboat talk through the transport. They elect a leader and commit proposals of
// every member. They go on when one is cut off. When its link heals they send it a snapshot, also
// after a restart. Nothing is left behind.
func TestDragonboat(t *testing.T) {
	carriers := []string{"tcp"}
	if testkit.Night() {
		carriers = append(carriers, "mesh") // package replication has tests with this one by day
	}
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			quiet.Do(func() {
				for _, name := range []string{"dragonboat", "raft", "rsm", "transport", "logdb", "config", "raftpb", "tan", "server", "registry", "settings", "utils", "grpc", "vfs"} {
					logger.GetLogger(name).SetLevel(logger.CRITICAL)
				}
			})
			mesh := newWeb()
			var at addresses
			network := func(id uint64) Network {
				if carrier == "mesh" {
					return mesh.Network(id)
				}
				return &noting{Network: TCP("127.0.0.1:0", nil, false), at: &at, id: id}
			}
			dirs := map[uint64]string{1: t.TempDir(), 2: t.TempDir(), 3: t.TempDir()}
			members := map[uint64]*member{}
			for id := range dirs {
				members[id] = startMember(t, network(id), id, dirs[id], &counter{})
			}
			defer func() {
				for _, m := range members {
					m.NodeHost.Close()
				}
				noGoroutines(t)
			}()

			proposed := uint64(0)
			proposeOn := func(id, n uint64) {
				members[id].propose(t, n)
				proposed++
			}
			// A proposal that was tried twice may be applied twice.
			agree := func() {
				t.Helper()
				until(t, "agreement", func() bool {
					count, sum, _ := members[1].machine.state()
					for _, m := range members {
						if c, s, _ := m.machine.state(); c != count || s != sum || c < proposed {
							return false
						}
					}
					return true
				})
			}
			for i := range uint64(30) {
				proposeOn(1+i%3, i)
			}
			agree()
			for id, m := range members { // sends every kind of message that is forwarded
				m.read(t)
				until(t, "leadership moved", func() bool {
					m.RequestLeaderTransfer(1, id)
					return leaderOf(t, m) == id
				})
			}

			stopped := func(id uint64) {
				if carrier == "mesh" {
					for other := range members {
						if other != id {
							mesh.set(id, other, transporttest.Fault{Cut: true})
						}
					}
					return
				}
				members[id].NodeHost.Close()
			}
			back := func(id uint64) {
				if carrier == "mesh" {
					for other := range members {
						if other != id {
							mesh.set(id, other, transporttest.Fault{})
						}
					}
					return
				}
				members[id] = startMember(t, network(id), id, dirs[id], members[id].machine)
			}
			for round, id := range []uint64{3, leaderOf(t, members[1])} {
				before := members[id].machine
				_, _, installed := before.state()
				_, last := members[id].logRange(t)
				const more = 10 // more may come until it is stopped
				stopped(id)
				since := time.Now()
				alive := 1 + id%3
				for other, m := range members {
					// The log is cut in the background. Entries for a member that is away are held
					// for a while.
					until(t, "log without what is missed", func() bool {
						if other == id {
							return true
						}
						proposeOn(alive, 1)
						first, _ := m.logRange(t)
						return first > last+more && time.Since(since) > 2*holdMax
					})
				}
				back(id)
				agree()
				if _, _, now := members[id].machine.state(); now == installed {
					t.Errorf("round %d: member %d caught up without a snapshot", round, id)
				}
				proposeOn(id, 1)
				agree()
			}
			for id, m := range members {
				if log := m.log.String(); strings.Contains(log, "dropped") || strings.Contains(log, "panic") {
					t.Errorf("member %d dropped what a member sent:\n%s", id, log)
				}
			}
		})
	}
}

// noting records the port of a listener.
type noting struct {
	Network
	at *addresses
	id uint64
}

func (n *noting) Listen() (l net.Listener, err error) {
	if l, err = n.Network.Listen(); err == nil {
		n.at.m.Store(n.id, l.Addr().String())
	}
	return l, err
}

// leaderOf waits for a leader.
func leaderOf(t *testing.T, m *member) (id uint64) {
	t.Helper()
	until(t, "leader", func() bool {
		leader, _, ok, err := m.GetLeaderID(1)
		id = leader
		return ok && err == nil
	})
	return id
}

// A host whose transport is shut leaves Raft at once. The others elect another leader, and the host
// ends.
func TestDragonboatShut(t *testing.T) {
	mesh := transporttest.NewMesh()
	members := map[uint64]*member{}
	for id := uint64(1); id <= 3; id++ {
		members[id] = startMember(t, mesh.Network(id), id, t.TempDir(), &counter{})
	}
	members[1].propose(t, 1)
	old := leaderOf(t, members[1])
	members[old].transport.Shut()
	other := members[1+old%3]
	until(t, "another leader", func() bool { return leaderOf(t, other) != old })
	other.propose(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	cmd := binary.BigEndian.AppendUint64(nil, 3)
	if _, err := members[old].SyncPropose(ctx, members[old].GetNoOPSession(1), cmd); err == nil {
		t.Fatal("a member that is out commits")
	}
	for _, m := range members {
		m.NodeHost.Close()
	}
	noGoroutines(t)
}
