package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// A counted is a running engine that counts the fsyncs of its Raft log.
type counted struct {
	*Engine
	logSyncs atomic.Int64
}

// startCounted starts an ensemble of n members on a network in memory, and waits until all serve.
func startCounted(t *testing.T, n int) []*counted {
	t.Helper()
	mesh := transporttest.NewMesh()
	members := make(map[MemberID]string)
	for id := range n {
		members[MemberID(id+1)] = fmt.Sprintf("member-%d.test:1", id+1)
	}
	var list []*counted
	for id := range n {
		c := &counted{}
		cfg := Config{
			Dir: filepath.Join(t.TempDir(), "node"), Member: MemberID(id + 1), Members: members, Alone: n == 1, Shards: 1,
			Tick: DefaultTick, RequestTimeout: time.Minute, MinSessionTimeout: SessionTimeoutFloor(DefaultTick), ContainerCheckInterval: time.Minute,
			MaxSessionTimeout: time.Hour, MaxDataSize: DefaultMaxDataSize, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Seams: Seams{Network: func(transport.Network) transport.Network { return mesh.Network(uint64(id + 1)) }, Fault: func(op disk.Op, name string) error {
				if op == disk.OpSync && strings.Contains(name, "raft") {
					c.logSyncs.Add(1)
				}
				return nil
			}},
		}
		if !testkit.Night() {
			cfg.Dir, cfg.Seams.Files = "/node", memory.New()
		}
		e, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		c.Engine = e
		list = append(list, c)
	}
	for _, c := range list {
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// countWrites writes one at a time on a member. It returns how many fsyncs of its log each member
// made for that.
func countWrites(t *testing.T, ensemble []*counted, on *counted, writes int) []int64 {
	t.Helper()
	// The timeout is an hour, so no beat comes in between. An election costs fsyncs too, so the
	// test repeats its measurement.
	s, err := on.OpenSession(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for {
		before, syncs := on.Status()[0].Leader, make([]int64, len(ensemble))
		var applied uint64
		for i := range writes + 1 {
			if i == 1 { // the first write flushes out what was still going on
				waitApplied(t, ensemble, on.Status()[0].Applied)
				for j, c := range ensemble {
					syncs[j] = -c.logSyncs.Load()
				}
			}
			op := tree.Op{Kind: tree.KindSet, Path: "/", Data: make([]byte, 64), Version: tree.AnyVersion}
			if _, err := s.Submit(t.Context(), []tree.Op{op}).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			applied = on.Status()[0].Applied
		}
		waitApplied(t, ensemble, applied)
		for j, c := range ensemble {
			syncs[j] += c.logSyncs.Load()
		}
		if on.Status()[0].Leader == before {
			return syncs
		}
	}
}

// waitApplied waits until all members have applied an entry.
func waitApplied(t *testing.T, ensemble []*counted, index uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, c := range ensemble {
		for c.Status()[0].Applied < index {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("member %d has not applied entry %d", c.cfg.Member, index)
			}
		}
	}
}

// A lone write costs one fsync of the Raft log on each member, and none of the image.
func TestWriteCostsOneFsyncPerMember(t *testing.T) {
	const writes = 100
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint("members=", members), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				ensemble := startCounted(t, members)
				for _, on := range ensemble {
					// On a busy computer, Raft sends again what was only late. That costs fsyncs too,
					// but not every time.
					for round := 1; ; round++ {
						syncs := countWrites(t, ensemble, on, writes)
						t.Logf("%d writes on member %d of %d, which follows member %d: fsyncs of the log on each member %v",
							writes, on.cfg.Member, members, on.Status()[0].Leader.Member, syncs)
						total := int64(0)
						for _, n := range syncs {
							total += n
						}
						// A member that lags accepts two writes with one fsync. A majority has made
						// every write durable.
						if majority := int64(members/2 + 1); total < majority*writes {
							t.Errorf("%d writes cost %d fsyncs in all, want %d at least", writes, total, majority*writes)
						}
						if slices.Max(syncs) <= writes+writes/20 { // a few are Raft's own
							break
						}
						if round == 5 {
							t.Errorf("%d writes cost a member %d fsyncs", writes, slices.Max(syncs))
							break
						}
					}
				}
			})
		})
	}
}

// The image is written in the background: many writes, few fsyncs.
func TestImageCostsNoFsyncPerWrite(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ensemble := startCounted(t, 1)
		on := ensemble[0]
		all, log := on.disk.Syncs(), on.logSyncs.Load()
		countWrites(t, ensemble, on, 200)
		if image := int64(on.disk.Syncs()-all) - (on.logSyncs.Load() - log); image > 20 {
			t.Errorf("200 writes cost %d fsyncs of the image", image)
		}
	})
}
