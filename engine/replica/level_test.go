package replica

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// registers returns the Register of a member other than the rig's own.
func registers(m session.MemberID, start uint64, level uint32, schemes ...string) []byte {
	o := session.Origin{Member: m, Start: start, Directory: [16]byte{byte(m)}, Digest: enginetest.Origin().Digest, Level: level}
	return command.EncodeRegister(o, 1, command.Rules{Schemes: schemes})
}

// levelRig is a rig of a build to come, in an ensemble with members 2, 3 and the rig's own, of which
// all have registered.
func levelRig(t *testing.T, of2, of3 uint32) *rig {
	r, own := newRig(t), enginetest.Origin()
	own.Level = command.LevelNext
	r.Become(own, []session.MemberID{enginetest.Member, 2, 3})
	r.apply(command.EncodeRegister(own, 1, command.Rules{}), registers(2, 1, of2), registers(3, 1, of3))
	return r
}

func (r *rig) wantLevel(t *testing.T, want uint32) {
	t.Helper()
	if got := r.Level(); got != want || r.mu.Level != want || r.disk.Err() != nil {
		t.Fatalf("level %d (%d), want %d, disk %v", got, r.mu.Level, want, r.disk.Err())
	}
}

// B5: the level rises when the newest Register of every member agrees, and by one.
func TestRaiseNeedsEveryMember(t *testing.T) {
	r := levelRig(t, 2, 1)
	raise := command.EncodeRaise(2, nil)
	r.wantLevel(t, 1)
	if by := r.HeldDown(2); !slices.Equal(by, []session.MemberID{3}) {
		t.Fatalf("held down by %d", by)
	}
	r.apply(raise)
	r.wantLevel(t, 1)
	r.apply(registers(3, 2, 2), raise, raise, command.EncodeRaise(1, nil))
	r.wantLevel(t, 2)
	if r.HeldDown(2) != nil {
		t.Error("still held down")
	}
}

func TestRaiseNeedsMembersThatHaveNeverRegistered(t *testing.T) {
	r := levelRig(t, 2, 2)
	r.founders = append(r.founders, 4)
	r.apply(command.EncodeRaise(2, nil))
	r.wantLevel(t, 1)
	r.apply(command.EncodeRaise(2, []session.MemberID{4}))
	r.wantLevel(t, 2)
}

func TestRaiseLeavesMembersBehind(t *testing.T) {
	r := levelRig(t, 2, 1)
	r.apply(command.EncodeRaise(2, []session.MemberID{2}))
	r.wantLevel(t, 1)
	r.apply(command.EncodeRaise(2, []session.MemberID{3}))
	r.wantLevel(t, 2)
	r.apply(registers(2, 2, 3), registers(enginetest.Member, 9, 2))
	if by := r.HeldDown(3); !slices.Equal(by, []session.MemberID{enginetest.Member}) {
		t.Errorf("held down from the next level by %d", by)
	}
	r.apply(registers(3, 2, 1)) // it has not been upgraded
	if o, _ := r.Origin(3); o.Start != 1 {
		t.Errorf("a member of level 1 has registered at level 2: %+v", o)
	}
	r.apply(registers(3, 3, 2))
	if o, _ := r.Origin(3); o.Start != 3 {
		t.Errorf("it may not come back: %+v", o)
	}
}

// A member that does not agree to a level fails when the ensemble goes there without it.
func TestRaiseFailsWhoWasLeftBehind(t *testing.T) {
	r := levelRig(t, 2, 2)
	r.Outbox.Origin.Level = 1
	r.apply(registers(enginetest.Member, 9, 1), command.EncodeRaise(2, []session.MemberID{enginetest.Member}))
	if err := r.disk.Err(); !errors.Is(err, command.ErrLevel) || r.Level() != 1 {
		t.Fatalf("level %d, %v", r.Level(), err)
	}
}

// Those that have joined hold the level down too. Who is out never does.
func TestHeldDownByMembersThatHaveJoined(t *testing.T) {
	const next = command.LevelNext
	r := foundedRig(t, 1)
	r.apply(command.EncodeJoin(session.Candidate{Directory: [16]byte{4}}, 1), registers(3, 2, next), registers(4, 1, command.LevelMax))
	held := func(want ...session.MemberID) {
		t.Helper()
		if by := r.HeldDown(next); !slices.Equal(by, want) {
			t.Errorf("held down by %d, want %d", by, want)
		}
	}
	held(2, 4)
	r.apply(command.EncodeRetire(2), command.EncodeRetire(4), command.EncodeRetire(5))
	held()
}

// A level of a later build is an error that names both levels, and the image stays as it was.
func TestRaiseBeyondThisBuildFailsTheNode(t *testing.T) {
	r := levelRig(t, 9, 9)
	r.apply(registers(enginetest.Member, 9, 9))
	const beyond = command.LevelNext + 1
	r.apply(command.EncodeRaise(command.LevelNext, nil), command.EncodeRaise(beyond, nil))
	err := r.disk.Err()
	for _, level := range []uint32{command.LevelNext, beyond} {
		if !errors.Is(err, command.ErrLevel) || !strings.Contains(err.Error(), fmt.Sprint("level ", level)) {
			t.Fatal(err)
		}
	}
	if r.Level() != command.LevelNext {
		t.Errorf("level %d", r.Level())
	}
}

// A scheme is in force once all members have it, and for good.
func TestSchemesGrowWhenAllMembersHaveThem(t *testing.T) {
	r := newRig(t)
	extra := tree.BuiltinSchemes()["digest"]
	r.schemes = tree.Schemes{"a": extra, "b": extra, "c": extra}
	want := func(names ...string) {
		t.Helper()
		if got := r.mu.Rules.Schemes; !slices.Equal(got, names) || r.disk.Err() != nil {
			t.Fatalf("in force: %q, want %q, disk %v", got, names, r.disk.Err())
		}
	}
	r.apply(registers(2, 1, 2, "a"), registers(3, 1, 2, "a"))
	want("a")
	r.apply(registers(2, 2, 2, "a", "b"))
	want("a") // not on member 3
	r.apply(registers(3, 2, 2, "a", "b", "c"))
	want("a", "b")
	r.apply(registers(2, 3, 2, "a", "c"))
	want("a", "b")
	if o, _ := r.Origin(2); o.Start != 2 || !slices.Equal(o.Schemes, []string{"a", "b"}) {
		t.Errorf("a member without a scheme in force has registered: %+v", o)
	}
}

// The image is written at the level in use, and a start finds that level.
func TestImageHasTheLevel(t *testing.T) {
	for level, fields := range map[uint32]int{command.LevelMax: 6, command.LevelNext: 7} {
		r := levelRig(t, command.LevelNext, command.LevelNext)
		r.apply(command.EncodeExpire(1, command.LevelMax))
		if level == command.LevelNext {
			r.apply(command.EncodeRaise(level, nil), command.EncodeExpire(1, level))
		}
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := r.Drop(); err != nil {
			t.Fatal(err)
		}
		options := storage.Options{Disk: r.disk, Dir: filepath.Join(r.disk.Dir(), "image")}
		_, err := storage.Check(options, func(table storage.Table, _, value []byte) error {
			if table == storage.Meta && int(value[0]&0xf) != fields {
				t.Errorf("level %d: the state has %d fields", level, value[0]&0xf)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		image, err := storage.Open(options)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		again := newRig(t)
		again.Outbox.Origin.Level = command.LevelNext
		if err := again.Load(image); err != nil {
			t.Fatal(err)
		}
		again.wantLevel(t, level)
		held := newRig(t)
		if err := held.Load(image); (level > 1) != errors.Is(err, command.ErrLevel) {
			t.Errorf("level %d: a member that agrees to level 1 only gets %v", level, err)
		}
	}
}

// A build that does not read the next level does not take its commands for others.
func TestApply_ACommandOfTheNextLevel(t *testing.T) {
	r := newRig(t)
	r.apply(command.EncodeRegister(enginetest.Origin(), 1, command.Rules{}), command.EncodeExpire(1, command.LevelNext))
	if err := r.disk.Err(); !errors.Is(err, command.ErrMalformed) {
		t.Errorf("the node goes on: %v", err)
	}
}

// In ZooKeeper the Pzxid of a znode stops with its create counter. Here it does not.
func TestPzxidOfAFullParent(t *testing.T) {
	r := newRig(t)
	open := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: time.Second})
	o := enginetest.Origin()
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeBatch(o.Member, o.Start, 1, 1, 0, 1, slices.Values([][]byte{open})))
	seq := uint64(1)
	create := func(path string) {
		seq++
		txn := command.EncodeRequest(&command.Request{Kind: command.RequestTxn, Session: r.mu.table.Sessions(o.Member)[0].ID,
			Ops: []tree.Op{{Kind: tree.KindCreate, Path: path}}})
		r.apply(command.EncodeBatch(o.Member, o.Start, seq, 1, 0, 1, slices.Values([][]byte{txn})))
	}
	create("/full")
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	full := r.image.NewBatch()
	full.Put(storage.Znodes, []byte("/full"), command.EncodeZnode(tree.Znode{Created: math.MaxInt32}))
	if err := errors.Join(full.Commit(r.image.Applied()), r.Load(r.image)); err != nil {
		t.Fatal(err)
	}
	create("/full/child")
	if stat, ok := r.Tree().Exists("/full"); !ok || stat.NumChildren != 1 || stat.Pzxid == 0 {
		t.Errorf("%+v", stat)
	}
}
