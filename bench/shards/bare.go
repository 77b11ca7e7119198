//go:build unix

package main

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

	"github.com/vivarium-go/vivarium/internal/child"
)

// bare is an ensemble of dragonboat with the settings that Vivarium gives it and machines that do nothing.
type bare struct {
	hosts   []*dragonboat.NodeHost
	shards  int
	applied atomic.Uint64 // entries, on the first member
}

// startTan founds an ensemble on the log that Vivarium uses.
func startTan(dir string, shards int) (ensemble, error) {
	return startBare(dir, shards, config.ExpertConfig{LogDBFactory: tanFactory{}, LogDB: config.LogDBConfig{Shards: 1, KVWriteBufferSize: 64 << 10}})
}

// startPebble founds an ensemble on dragonboat's default log, one store for all shards of a member.
func startPebble(dir string, shards int) (ensemble, error) {
	c := config.ExpertConfig{LogDB: config.GetTinyMemLogDBConfig()}
	c.LogDB.Shards = 1
	return startBare(dir, shards, c)
}

func startBare(dir string, shards int, c config.ExpertConfig) (ensemble, error) {
	for _, name := range []string{"dragonboat", "raft", "rsm", "transport", "grpc", "logdb", "tan", "pebblekv", "config", "settings", "order", "util"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	b := &bare{shards: shards}
	if err := b.start(dir, c); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bare) start(dir string, c config.ExpertConfig) error {
	addrs, err := child.FreeAddrs(members)
	if err != nil {
		return err
	}
	targets := make(map[uint64]dragonboat.Target)
	for i, addr := range addrs {
		targets[uint64(i+1)] = addr
	}
	n := uint64(b.shards)
	c.Engine = config.EngineConfig{ExecShards: 1, CommitShards: n, ApplyShards: n, SnapshotShards: n + 1, CloseShards: 1}
	for i, addr := range addrs {
		nh, err := dragonboat.NewNodeHost(config.NodeHostConfig{
			NodeHostDir: filepath.Join(dir, fmt.Sprint(i)), RTTMillisecond: 50, RaftAddress: addr, Expert: c})
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, nh)
		for shard := uint64(1); shard <= n; shard++ {
			create := func(_, replica uint64) statemachine.IOnDiskStateMachine {
				if replica == 1 {
					return idle{&b.applied}
				}
				return idle{new(atomic.Uint64)}
			}
			if err := nh.StartOnDiskReplica(targets, false, create, config.Config{ReplicaID: uint64(i + 1), ShardID: shard,
				CheckQuorum: true, PreVote: true, HeartbeatRTT: 1, ElectionRTT: 10}); err != nil {
				return err
			}
		}
	}
	return b.spread()
}

// spread hands the leaderships out.
func (b *bare) spread() error {
	return until("the leaderships to be spread", func() bool {
		all := true
		for i := range b.shards {
			shard, want := uint64(i+1), uint64(i%members+1)
			for _, nh := range b.hosts {
				if leader, _, ok, err := nh.GetLeaderID(shard); err != nil || !ok || leader != want {
					all = false
					_ = nh.RequestLeaderTransfer(shard, want) // one that fails is asked for again
				}
			}
		}
		return all
	})
}

func (b *bare) writer(i int) (func() error, error) {
	shard := i % b.shards
	nh := b.hosts[shard%members]
	session, cmd := nh.GetNoOPSession(uint64(shard+1)), make([]byte, payload)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := nh.SyncPropose(ctx, session, cmd)
		return err
	}, nil
}

func (b *bare) entries() uint64 { return b.applied.Load() }

func (b *bare) close() {
	for _, nh := range b.hosts {
		nh.Close()
	}
}

// tanFactory makes a tan that does not fsync once more after every commit.
type tanFactory struct{}

func (tanFactory) Name() string { return tan.Factory.Name() }

func (tanFactory) Create(c config.NodeHostConfig, cb config.LogDBCallback, dirs, wals []string) (raftio.ILogDB, error) {
	db, err := tan.Factory.Create(c, cb, dirs, wals)
	return &filling{ILogDB: db, saved: make(map[uint64]raftpb.State)}, err
}

// filling gives each Update the State that dragonboat leaves empty when it has not changed, and that tan takes for a new
// one. It is for the one step worker of an ensemble that has just been founded.
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

// idle is a machine that does nothing but count.
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
