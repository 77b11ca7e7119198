package replica

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A rig is a machine with an image, whose node does nothing and whose log the test holds.
type rig struct {
	*Replica
	log  *enginetest.Log
	disk *disk.Disk
}

func newRig(t testing.TB) *rig {
	d, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	image, err := storage.Open(storage.Options{Disk: d, Dir: filepath.Join(d.Dir(), "image")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{log: &enginetest.Log{}, disk: d}
	silent := slog.New(slog.DiscardHandler)
	n := quietNode{d}
	pipe := outbox.New(command.HomeShard, r.log, enginetest.NewClock().Clock(), enginetest.Origin(), command.Rules{}, n)
	r.Replica = New(Options{Shard: command.HomeShard, Node: n, Raft: r.log, Outbox: pipe, Schemes: tree.BuiltinSchemes(), Member: enginetest.Member,
		TimeoutMin: 10 * time.Second, ReapEvery: time.Minute, Log: silent})
	NewPurger([]*Replica{r.Replica}, r.log, enginetest.Member, silent)
	if err := r.Load(image); err != nil {
		t.Fatal(err)
	}
	return r
}

// apply has the machine apply commands, as entries of the log.
func (r *rig) apply(cmds ...[]byte) {
	for _, cmd := range cmds {
		r.Apply([]replication.Entry{{Index: r.Index() + 1, Cmd: cmd}})
	}
}

// A quietNode is a node without sessions.
type quietNode struct{ disk *disk.Disk }

func (n quietNode) CheckDeadlines()                                                             {}
func (n quietNode) Proved(_, _ time.Duration)                                                   {}
func (n quietNode) BeatInterval() time.Duration                                                 { return 0 }
func (n quietNode) AppliedAtHome() tree.Zxid                                                    { return 0 }
func (n quietNode) Explain(_ replication.ShardID, err error) error                              { return err }
func (n quietNode) Fail(cause error)                                                            { n.disk.Fail(cause) }
func (n quietNode) Gone([]tree.Change)                                                          {}
func (n quietNode) Ended(replication.ShardID, error, ...tree.SessionID)                         {}
func (n quietNode) Expired(tree.SessionID)                                                      {}
func (n quietNode) Left(tree.SessionID)                                                         {}
func (n quietNode) Adopt(*session.Table)                                                        {}
func (n quietNode) Reconcile(replication.ShardID, *tree.Tree, *tree.Tree, *session.Table, bool) {}

// What was applied and is not in the image yet does not lag.
func TestLag_DoesNotWaitForTheImage(t *testing.T) {
	r := newRig(t)
	r.apply(command.EncodeExpire(1))
	if l := r.expirer.lag; l.applied() != 1 || r.image.Applied() != 0 {
		t.Errorf("it takes %d for applied, the machine is at %d, the image at %d", l.applied(), r.Index(), r.image.Applied())
	}
}

// Where more sessions are due than one entry may end, the expirer is woken to propose the next one.
func TestMoreThanAPortionWakesTheExpirer(t *testing.T) {
	r := newRig(t)
	r.Portion = 1
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.FormatLevel}
	open := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeBatch(2, 1, 1, 1, 0, 2, slices.Values([][]byte{open, open})))
	o.Start++
	r.apply(command.EncodeRegister(o, 1, command.Rules{})) // the sessions of the start before are due
	if left := r.mu.table.DueLen(); left != 1 || len(r.expirer.wake) != 1 {
		t.Errorf("%d sessions are due, and the expirer is woken %d times", left, len(r.expirer.wake))
	}
}

// D2: A parent whose create counter has come to its end keeps its Pzxid when a child is created.
func TestGapSeesAChildThatMovedNoPzxid(t *testing.T) {
	load := func(paths ...string) *tree.Tree {
		loader := tree.NewLoader(nil)
		for _, path := range append(paths, "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/full") {
			if err := loader.Add(path, tree.Znode{Created: math.MaxInt32}); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := loader.Finish(1)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	g := gap{old: load(), next: load("/full/child"), below: make(map[string]verdict)}
	for _, path := range []string{"/full", "/full/child", "/full/other"} {
		if _, touched := g.touched(path, watch.Once); !touched {
			t.Errorf("%s counts as untouched", path)
		}
	}
	if _, touched := g.touched("/", watch.Recursive); !touched {
		t.Error("the root counts as untouched below")
	}
}

// A log entry has room for few long paths. One that is too large would be refused each time, and nothing ever reaped again.
func TestReapEntriesAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{1, 1000, 64 << 10, 2 * command.BatchBytesMax} {
		var due []command.Mortal
		path := strings.Repeat("x", length)
		for range 2 * reapBatch {
			due = append(due, command.Mortal{Path: path})
		}
		n := portionOf(due)
		if size := len(command.EncodeReap(0, due[:n])); n < 1 || n > reapBatch || n > 1 && size > command.BatchBytesMax {
			t.Errorf("%d znodes with paths of %d bytes make an entry of %d", n, length, size)
		}
	}
}

// What a batch of another member's small writes costs a machine with its image: each sets 64 bytes of a znode of its own.
func BenchmarkApply(b *testing.B) {
	for _, sets := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint("sets=", sets), func(b *testing.B) {
			r := newRig(b)
			m := r.Replica
			const id, seq = 1, 1 << 32
			m.mu.table.LoadOrigin(session.Origin{Member: 2, Start: 1, LastSeq: seq})
			if err := m.mu.table.LoadRecord(session.Record{ID: id, Timeout: 10 * time.Second, Origin: 2}); err != nil {
				b.Fatal(err)
			}
			var creates []tree.Op
			var batch [][]byte
			for i := range sets {
				path := fmt.Sprintf("/k%04d", i)
				creates = append(creates, tree.Op{Kind: tree.KindCreate, Path: path})
				q := command.Request{Kind: command.RequestTxn, Session: id, Ops: []tree.Op{tree.Op{Kind: tree.KindSet, Path: path, Data: make([]byte, 64), Version: tree.AnyVersion}}}
				batch = append(batch, command.EncodeRequest(&q))
			}
			if _, err := m.commit(tree.Header{Zxid: 1}, creates, nil); err != nil {
				b.Fatal(err)
			}
			entries := []replication.Entry{{Cmd: command.EncodeBatch(2, 1, seq, 1700000000123, 0, len(batch), slices.Values(batch))}}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				entries[0].Index = uint64(i + 1)
				binary.BigEndian.PutUint64(entries[0].Cmd[5:], seq+uint64(i+1)) // the seq
				m.Apply(entries)
			}
			b.StopTimer()
			if want := tree.Zxid(b.N*sets + 1); m.mu.Zxid != want || r.disk.Err() != nil {
				b.Fatalf("at zxid %d, want %d: %v", m.mu.Zxid, want, r.disk.Err())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sets), "ns/set")
		})
	}
}

// A look at many znodes goes on over entries that are applied meanwhile.
func TestReaperLooksWhileEntriesAreApplied(t *testing.T) {
	const many = 3 * reapPause
	r := newRig(t)
	seq := uint64(0)
	batch := func(requests ...command.Request) {
		var list [][]byte
		for i := range requests {
			list = append(list, command.EncodeRequest(&requests[i]))
		}
		seq++
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, len(list), slices.Values(list)))
	}
	ttl := func(path string) tree.Op {
		return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.TTL, TTL: time.Minute.Milliseconds()}
	}
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.FormatLevel}
	r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	batch(command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	id := r.mu.table.Sessions(2)[0].ID
	do := func(ops ...tree.Op) { batch(command.Request{Kind: command.RequestTxn, Session: id, Ops: ops}) }
	for i := range many {
		do(ttl(fmt.Sprint("/t", i)))
	}
	var looks sync.WaitGroup
	looks.Go(func() {
		for range 20 {
			if due := r.mortals(time.Now().Add(time.Hour), 2*many); len(due) < many/2 {
				t.Errorf("it saw %d of %d", len(due), many)
			}
		}
	})
	for i := range many / 10 {
		do(tree.Op{Kind: tree.KindDelete, Path: fmt.Sprint("/t", i), Version: tree.AnyVersion})
		do(ttl(fmt.Sprint("/u", i)))
	}
	looks.Wait()
}

// A machine that is closed drops its tree. Whoever reads beside that, and asks after the read whether the node is over, never takes the
// empty tree for what there is.
func TestCloseBesideReads(t *testing.T) {
	r := newRig(t)
	full := r.Tree()
	for range 3000 {
		r.last.Store(nil)
		r.tree.Store(full)
		var over atomic.Bool
		var both sync.WaitGroup
		both.Go(func() { // the order of a node that ends
			over.Store(true)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		for {
			if got := r.Figures(); got.Znodes != full.Len() {
				t.Fatalf("status %+v", got)
			}
			_, there := r.Tree().Exists("/zookeeper/config")
			if over.Load() {
				break
			}
			if !there {
				t.Fatal("a read has seen the empty tree")
			}
		}
		both.Wait()
	}
}
