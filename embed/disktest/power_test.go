package disktest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// The power of a node that is alone fails at any moment of its first start, its work, its snapshots
// and its later starts. The node starts on any directory that the disk may then hold, with
// everything acknowledged.
func TestPowerCut_OfANodeAlone(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { powerCuts(t, 1, 3, 20) })
}

// The power of all three members fails at once. Any two of them start again, elect a leader, and
// have everything acknowledged. So does the third when it comes.
func TestPowerCut_OfAllMembersAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { powerCuts(t, 3, 2, 400) })
}

// C8.4: a client's data look like records of the log. They are torn by a power cut before they are
// acknowledged. That is no damage, and the member starts.
func TestPowerCut_InDataLikeRecords(t *testing.T) {
	t.Parallel()
	record := append([]byte("0123\x39\x00\x01"), bytes.Repeat([]byte("x"), 57)...)
	binary.LittleEndian.PutUint32(record, uint32(xxhash.Sum64(record[6:])))
	for try := range 20 {
		synctest.Test(t, func(t *testing.T) {
			ens := embedtest.New(t, 1, embedtest.Options{Seed: uint64(try)})
			s := ens.Session(1, embed.SessionOptions{})
			ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Second})
			s.Submit(t.Context(), embed.OpCreate("/torn", bytes.Repeat(record, 300+150*try), embed.Persistent))
			<-time.After(50 * time.Millisecond)
			ens.Faults(1).SetDisk(embedtest.Disk{Err: syscall.EIO, On: embedtest.Syncs})
			ens.PowerCut(1)
			ens.Faults(1).SetDisk(embedtest.Disk{})
			ens.Restart(1)
		})
	}
}

// powerCuts lets members live some lives, and checks what a power cut would leave before one in so
// many calls.
func powerCuts(t *testing.T, members, lives, odds int) {
	if *everyCall {
		odds = max(1, odds/20)
	}
	g := newGrid(t, members, odds)
	for i := range lives {
		g.live(i)
	}
	g.mu.Lock()
	cuts := g.cuts
	g.cuts = nil
	g.mu.Unlock()
	if len(cuts) == 0 {
		t.Error("the power was never cut")
	}
	renames := 0
	for i, c := range cuts {
		cuts[i] = blackout{} // its files take memory
		if strings.HasPrefix(c.after, "rename") && strings.Contains(c.after, "CURRENT") {
			renames++
		}
		if t.Failed() {
			break
		}
		g.survives(c)
	}
	t.Logf("%d cuts, %d of them between the rename of a CURRENT and what follows", len(cuts), renames)
}

// A grid is the power supply of some members. It copies what a power cut would leave of their
// disks, while they go on.
type grid struct {
	t     *testing.T
	ids   []embed.MemberID
	files *memory.System // of all members, so that a cut is one moment for all
	books *ledger
	odds  int

	mu   sync.Mutex
	rng  *rand.Rand
	last string // the newest call
	cuts []blackout
}

// A blackout is what a power cut leaves.
type blackout struct {
	left  *memory.System
	luck  memory.Luck
	after string    // the last call
	told  presences // everything acknowledged
}

func newGrid(t *testing.T, members, odds int) *grid {
	g := &grid{t: t, files: memory.New(), books: newLedger(), odds: odds, rng: seeded(t)}
	for i := range members {
		g.ids = append(g.ids, embed.MemberID(i+1))
	}
	return g
}

// note is called before every call that changes something.
func (g *grid) note(id embed.MemberID, op disk.Op, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// CURRENT names the MANIFEST. The name may survive a cut that the MANIFEST does not survive.
	switch {
	case strings.HasPrefix(g.last, "rename") && strings.Contains(g.last, "CURRENT"):
		g.cutLocked(memory.RenamesLast)
	case g.rng.IntN(g.odds) == 0:
		g.cutLocked(memory.Luck(g.rng.IntN(int(memory.Lucks))))
	}
	g.last = fmt.Sprintf("%s of %s by member %d", op, filepath.Base(name), id)
	return nil
}

func (g *grid) cutLocked(luck memory.Luck) {
	told := g.books.told() // what is told after the cut may not survive it
	g.cuts = append(g.cuts, blackout{left: g.files.PowerCut(luck, g.rng), luck: luck, after: g.last, told: told})
}

// start starts a member on its directory.
func (g *grid) start(files *memory.System, id embed.MemberID, mesh *transporttest.Mesh, fault func(disk.Op, string) error) (*embed.Node, error) {
	cfg := embed.Config{Dir: memberDir("/", id), ID: id, Shards: shardsflag.N, Tick: 10 * time.Millisecond, Logger: embedkit.Quiet}
	seams := inside.Seams{Files: files, Fault: fault}
	if len(g.ids) > 1 {
		cfg.Members = make(map[embed.MemberID]string)
		for _, other := range g.ids {
			cfg.Members[other] = fmt.Sprintf("member-%d.test:1", other)
		}
		seams.Network = func(transport.Network) transport.Network { return mesh.Network(uint64(id)) }
	}
	cfg.Inside = &seams
	return embed.Start(cfg)
}

// live runs the members until they have written for a while.
func (g *grid) live(i int) {
	ctx := bounded(g.t)
	mesh := transporttest.NewMesh()
	var members []*embed.Node
	for _, id := range g.ids {
		m, err := g.start(g.files, id, mesh, func(op disk.Op, name string) error { return g.note(id, op, name) })
		must(g.t, err)
		members = append(members, m)
	}
	must(g.t, members[0].Ready(ctx))
	if i == 0 {
		s, err := members[0].NewSession(ctx, embed.SessionOptions{})
		must(g.t, err)
		_, err = s.Create(ctx, "/w", nil, embed.Persistent)
		must(g.t, err)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for j, m := range members {
		for k := range 2 {
			load.Go(func() { g.books.writeUntil(stop, m, fmt.Sprintf("%d-%d-%d", i, j, k), small(g.t)) })
		}
	}
	begin := g.books.writes.Load()
	for part := range int64(4) {
		until(g.t, "writes", func() bool { return g.books.writes.Load() >= begin+(part+1)*20 })
		for _, m := range members {
			must(g.t, embedkit.EngineOf(m).RequestSnapshot())
		}
	}
	close(stop)
	load.Wait()
	for _, m := range members {
		if i%2 == 0 {
			embedkit.EngineOf(m).Kill()
		}
		must(g.t, m.Close())
	}
}

// survives starts the members on what a power cut left.
func (g *grid) survives(c blackout) {
	what := fmt.Sprintf("luck %d after %s", c.luck, c.after)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	mesh := transporttest.NewMesh()
	order := g.rng.Perm(len(g.ids))
	var members []*embed.Node
	defer func() {
		for _, m := range members {
			if err := m.Close(); err != nil {
				g.t.Errorf("%s: close: %v", what, err)
			}
		}
	}()
	for _, j := range order {
		m, err := g.start(c.left, g.ids[j], mesh, nil)
		if err != nil {
			g.t.Errorf("%s: member %d: %v", what, g.ids[j], err)
			return
		}
		members = append(members, m)
		if missing := len(order) - len(members); missing > 0 && (len(c.told) == 0 || missing >= len(members)) {
			continue // no quorum yet, and perhaps the founders have yet to meet
		}
		s, err := m.NewSession(ctx, embed.SessionOptions{})
		if err == nil {
			err = c.told.check(ctx, g.t, s)
		}
		// /w may not exist yet.
		if err != nil && !(len(c.told) == 0 && errors.Is(err, embed.ErrNoNode)) {
			g.t.Errorf("%s: member %d: %v, %v", what, g.ids[j], err, m.Err())
		}
	}
}
