//go:build unix

// Package bare founds ensembles of dragonboat alone, with Vivarium's settings and with state
// machines that do nothing. They are the floor under everything that is built on dragonboat.
package bare

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// An Ensemble is several members of dragonboat in this process.
type Ensemble struct {
	hosts   []*dragonboat.NodeHost
	shards  int
	applied atomic.Uint64 // entries, on the first member
}

// StartTan founds an ensemble on the log that Vivarium uses, without that log's second fsync after
// each commit. The members lead the shards in turn.
func StartTan(dir string, members, shards int) (*Ensemble, error) {
	return start(dir, members, shards, config.ExpertConfig{LogDBFactory: tanFactory{}, LogDB: config.LogDBConfig{Shards: 1, KVWriteBufferSize: 64 << 10}})
}

// StartPebble founds an ensemble on dragonboat's default log, with one store for all shards of a
// member.
func StartPebble(dir string, members, shards int) (*Ensemble, error) {
	c := config.ExpertConfig{LogDB: config.GetTinyMemLogDBConfig()}
	c.LogDB.Shards = 1
	return start(dir, members, shards, c)
}

func start(dir string, members, shards int, c config.ExpertConfig) (*Ensemble, error) {
	for _, name := range []string{"dragonboat", "raft", "rsm", "transport", "grpc", "logdb", "tan", "pebblekv", "config", "settings", "order", "util"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	e := &Ensemble{shards: shards}
	if err := e.start(dir, members, c); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Ensemble) start(dir string, members int, c config.ExpertConfig) error {
	addrs, err := child.FreeAddrs(members)
	if err != nil {
		return err
	}
	targets := make(map[uint64]dragonboat.Target)
	for i, addr := range addrs {
		targets[uint64(i+1)] = addr
	}
	n := uint64(e.shards)
	c.Engine = config.EngineConfig{ExecShards: 1, CommitShards: n, ApplyShards: n, SnapshotShards: n + 1, CloseShards: 1}
	for i, addr := range addrs {
		nh, err := dragonboat.NewNodeHost(config.NodeHostConfig{
			NodeHostDir: filepath.Join(dir, fmt.Sprint(i)), RTTMillisecond: 50, RaftAddress: addr, Expert: c})
		if err != nil {
			return err
		}
		e.hosts = append(e.hosts, nh)
		for shard := uint64(1); shard <= n; shard++ {
			create := func(_, replica uint64) statemachine.IOnDiskStateMachine {
				if replica == 1 {
					return idle{&e.applied}
				}
				return idle{new(atomic.Uint64)}
			}
			if err := nh.StartOnDiskReplica(targets, false, create, config.Config{ReplicaID: uint64(i + 1), ShardID: shard,
				CheckQuorum: true, PreVote: true, HeartbeatRTT: 2, ElectionRTT: 10}); err != nil {
				return err
			}
		}
	}
	return e.spread()
}

// spread transfers the leaderships.
func (e *Ensemble) spread() error {
	return measure.Until("the leaderships to be spread", func() bool {
		all := true
		for i := range e.shards {
			shard, want := uint64(i+1), uint64(i%len(e.hosts)+1)
			for _, nh := range e.hosts {
				if leader, _, ok, err := nh.GetLeaderID(shard); err != nil || !ok || leader != want {
					all = false
					// the next attempt follows if this one fails
					_ = nh.RequestLeaderTransfer(shard, want)
				}
			}
		}
		return all
	})
}

// Leader returns the member that leads a shard. Both count from 0.
func (e *Ensemble) Leader(shard int) (member int, err error) {
	id, _, ok, err := e.hosts[0].GetLeaderID(uint64(shard + 1))
	if err == nil && !ok {
		err = fmt.Errorf("no member leads shard %d", shard)
	}
	return int(id) - 1, err
}

// proposalTimeout is how long a proposal waits. When there are very many, proposals of followers
// get lost: dragonboat does not send them again.
const proposalTimeout = 10 * time.Second

// Proposer returns a function that proposes so many bytes to a shard on a member, and waits until
// they are applied. Members and shards count from 0.
func (e *Ensemble) Proposer(member, shard, bytes int) func() error {
	nh := e.hosts[member]
	session, cmd := nh.GetNoOPSession(uint64(shard+1)), make([]byte, bytes)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), proposalTimeout)
		defer cancel()
		_, err := nh.SyncPropose(ctx, session, cmd)
		return err
	}
}

// Applied returns how many entries of all shards the first member has applied.
func (e *Ensemble) Applied() uint64 { return e.applied.Load() }

// Close stops all members.
func (e *Ensemble) Close() {
	for _, nh := range e.hosts {
		nh.Close()
	}
}

// tanFactory makes a tan that does not fsync a second time after every commit.
type tanFactory struct{}

func (tanFactory) Name() string { return tan.Factory.Name() }

func (tanFactory) Create(c config.NodeHostConfig, cb config.LogDBCallback, dirs, wals []string) (raftio.ILogDB, error) {
	db, err := tan.Factory.Create(c, cb, dirs, wals)
	return &filling{ILogDB: db, saved: make(map[uint64]raftpb.State)}, err
}

// filling sets the State of each Update. dragonboat leaves it empty when it has not changed, and
// tan takes an empty State for a new one. The type serves the one step worker of an ensemble that
// was just founded.
type filling struct {
	raftio.ILogDB
	saved map[uint64]raftpb.State // by shard
}

func (f *filling) SaveRaftState(updates []raftpb.Update, worker uint64) error {
	filled := make([]raftpb.Update, 0, len(updates))
	for _, u := range updates {
		if raftpb.IsEmptyState(u.State) {
			u.State = f.saved[u.ShardID]
		}
		f.saved[u.ShardID] = u.State
		filled = append(filled, u)
	}
	return f.ILogDB.SaveRaftState(filled, worker)
}

// idle is a state machine that only counts entries.
type idle struct{ applied *atomic.Uint64 }

func (m idle) Open(<-chan struct{}) (uint64, error) { return 0, nil }
func (m idle) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	m.applied.Add(uint64(len(entries)))
	return entries, nil
}
func (m idle) Lookup(any) (any, error)                              { return nil, nil }
func (m idle) Sync() error                                          { return nil }
func (m idle) PrepareSnapshot() (any, error)                        { return nil, nil }
func (m idle) SaveSnapshot(any, io.Writer, <-chan struct{}) error   { return nil }
func (m idle) RecoverFromSnapshot(io.Reader, <-chan struct{}) error { return nil }
func (m idle) Close() error                                         { return nil }
