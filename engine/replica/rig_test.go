package replica

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// A rig is a Replica with an image. Its node does nothing, and the test holds its log.
type rig struct {
	*Replica
	log  *enginetest.Log
	disk *disk.Disk
}

func newRig(t testing.TB) *rig {
	d, err := disk.Open(files.OS, t.TempDir())
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
	box := outbox.New(command.HomeShard, r.log, enginetest.NewClock().Clock(), enginetest.Origin(), command.Rules{}, n)
	r.Replica = New(Options{Shard: command.HomeShard, Node: n, Raft: r.log, Outbox: box, Schemes: tree.BuiltinSchemes(), Founders: []session.MemberID{enginetest.Member},
		TimeoutMin: 10 * time.Second, ReapEvery: time.Minute, Log: silent})
	NewPurger([]*Replica{r.Replica}, r.log, silent)
	if err := r.Load(image); err != nil {
		t.Fatal(err)
	}
	return r
}

// apply makes the replica apply commands as entries of the log.
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
func (n quietNode) Raised(replication.ShardID, uint32, []session.MemberID)                      {}
func (n quietNode) Dismissed(why error)                                                         { n.disk.Fail(why) }
func (n quietNode) Seeded()                                                                     {}
func (n quietNode) MembersChanged()                                                             {}
func (n quietNode) Reconcile(replication.ShardID, *tree.Tree, *tree.Tree, *session.Table, bool) {}
