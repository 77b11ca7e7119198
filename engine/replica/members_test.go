package replica

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// The first lineage in the log of the home shard counts. The image keeps it, and the members.
func TestFound(t *testing.T) {
	r := levelRig(t, 1, 1)
	found := func(first byte) []byte {
		return command.EncodeFound(session.Lineage{first}, []session.MemberID{enginetest.Member, 2, 3, 4}, 1, 7)
	}
	want := func(lineage byte) {
		t.Helper()
		if got := r.Lineage(); got != (session.Lineage{lineage}) {
			t.Fatalf("the lineage is %v", got)
		}
	}
	r.founders = append(r.founders, 4)
	want(0)
	r.apply(found(2), found(3))
	want(2)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	r.apply(registers(4, 1, 1)) // a founder that was missing
	members := []session.Member{{ID: enginetest.Member, Directory: enginetest.Origin().Directory, Wish: session.Voter}}
	for id := session.MemberID(2); id <= 4; id++ {
		members = append(members, session.Member{ID: id, Directory: [16]byte{byte(id)}, Wish: session.Voter})
	}
	if got := r.mu.members.All(); !reflect.DeepEqual(got, members) {
		t.Errorf("members %v, want %v", got, members)
	}

	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil {
		t.Fatal(err)
	}
	if got := l.members.All(); l.members.Lineage() != (session.Lineage{2}) || !reflect.DeepEqual(got, members) {
		t.Errorf("the image has lineage %v, members %v", l.members.Lineage(), got)
	}
}

// M39: a process that lost its directory comes back as a new member. What only its former self
// could use ends at once; remote clients keep their time. M35: the former member never registers
// again.
func TestJoin_EndsWhatTheFormerSelfHeld(t *testing.T) {
	r := foundedRig(t, 1)
	open := func(m session.MemberID, remote bool) tree.SessionID {
		seq := uint64(1)
		if o, ok := r.mu.table.Origin(m); ok {
			seq = o.LastSeq + 1
		}
		request := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: time.Minute, Remote: remote})
		r.apply(command.EncodeBatch(m, 1, seq, 1, 0, 1, slices.Values([][]byte{request})))
		id := tree.SessionID(r.mu.Zxid)
		lives(t, r, id, true)
		return id
	}
	local, remote, other := open(2, false), open(2, true), open(3, false)

	join := session.Candidate{Directory: [16]byte{22}, Address: "two:2", Former: session.Former{ID: 2, Directory: [16]byte{9}}}
	r.apply(command.EncodeJoin(join, 5))
	lives(t, r, local, true) // the joiner does not know the directory, so it was not that member
	join.Directory, join.Former.Directory = [16]byte{23}, [16]byte{2}
	r.apply(command.EncodeJoin(join, 6), command.EncodeJoin(join, 7))
	lives(t, r, local, false)
	lives(t, r, remote, true)
	lives(t, r, other, true)

	r.apply(registers(2, 9, 3), registers(5, 1, 3)) // by directories that begin with the member's id
	if o, _ := r.Origin(2); o.Start != 1 {
		t.Errorf("the former member has registered: %+v", o)
	}
	if o, _ := r.Origin(5); o.Start != 0 {
		t.Errorf("member 5 has registered from the directory of somebody else: %+v", o)
	}
	r.apply(command.EncodeReport(5, 1, session.Place{Part: session.Learner, Change: 9}, 7))
	want := []session.Member{
		{ID: 4, Directory: [16]byte{22}, Address: "two:2", Wish: session.Learner, Since: 5},
		{ID: 5, Directory: [16]byte{23}, Address: "two:2", Wish: session.Learner, Since: 6, Places: []session.Place{{Part: session.Learner, Change: 9}}},
	}
	if got := r.mu.members.All()[3:]; !reflect.DeepEqual(got, want) {
		t.Errorf("members %+v, want %+v", got, want)
	}
}

// lives checks whether a session exists.
func lives(t *testing.T, r *rig, id tree.SessionID, want bool) {
	t.Helper()
	if _, got := r.mu.table.Get(id); got != want {
		t.Fatalf("session %d exists: %v", id, got)
	}
}

// foundedRig is a levelRig that is founded, on so many shards.
func foundedRig(t *testing.T, shards uint32) *rig {
	r := levelRig(t, 1, 1)
	r.apply(command.EncodeFound(session.Lineage{1}, []session.MemberID{enginetest.Member, 2, 3}, shards, 7))
	return r
}

// ask applies a batch of a member's stream with one request.
func (r *rig) ask(m session.MemberID, start, seq uint64, q command.Request) {
	r.apply(command.EncodeBatch(m, start, seq, 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
}

// M51: a deposed leader's wish is refused by number. What readers see changes with each wish.
func TestWant(t *testing.T) {
	r := foundedRig(t, 1)
	before := r.Members()
	r.apply(command.EncodeGovern(1, 2), command.EncodeGovern(2, 3), command.EncodeWant(1, 2, session.Out, session.Silent, 5))
	if m, _ := r.Members().Find(2); m.Wish != session.Voter || r.Members().Ensemble.Governor != 3 {
		t.Fatalf("a former leader's wish counts: %+v", r.Members())
	}
	r.apply(command.EncodeWant(2, 2, session.Out, session.Silent, 5), command.EncodeWant(0, 3, session.Out, session.Removed, 6))
	gone, _ := r.Members().Find(2)
	removed, _ := r.Members().Find(3)
	if gone.Reason != session.Silent || removed.Reason != session.Removed || removed.Since != 6 {
		t.Errorf("members %+v", r.Members().List)
	}
	if m, _ := before.Find(2); m.Wish != session.Voter || before.Ensemble.Govern != 0 {
		t.Errorf("an earlier view has changed: %+v", before)
	}
	if view := r.Members(); view != r.Members() {
		t.Error("a reader gets a copy of its own")
	}
}

// M35: nothing of a member that is out is accepted, also after a restart.
func TestRetire(t *testing.T) {
	r := foundedRig(t, 1)
	r.apply(command.EncodeRetire(2), command.EncodeRetire(2), command.EncodeRetire(9))
	r.ask(2, 1, 1, command.Request{Kind: command.RequestOpen, Timeout: time.Minute})
	r.apply(registers(2, 2, 3), registers(9, 1, 3))
	checks := func(table *session.Table) {
		t.Helper()
		o, _ := table.Origin(2)
		if _, registered := table.Origin(9); registered || o.Start != 1 || o.LastSeq != 0 || !table.IsRetired(9) || !o.Retired || table.Len() > 0 {
			t.Errorf("retired: %+v; member 9 has registered: %v", o, registered)
		}
	}
	checks(r.mu.table)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil {
		t.Fatal(err)
	}
	checks(l.table)

	if r.Retired(enginetest.Member) || !r.Retired(9) {
		t.Error("readers see something else")
	}
}

// M33: a member that is out sends on. Nothing is accepted, and the first refusal fails its node.
func TestRetire_FailsTheNode(t *testing.T) {
	r := foundedRig(t, 1)
	r.apply(command.EncodeRetire(enginetest.Member))
	if err := r.disk.Err(); err != nil {
		t.Fatal(err)
	}
	r.ask(enginetest.Member, enginetest.Origin().Start, 1, command.Request{Kind: command.RequestAnnounce})
	if err := r.disk.Err(); !errors.Is(err, session.ErrRetired) {
		t.Errorf("the node fails with %v", err)
	}
}

// M35: when a member is out of all shards and its last session has gone, the image has no record of
// it, and it never registers again.
func TestMemberIsForgotten(t *testing.T) {
	r := foundedRig(t, 1)
	r.ask(2, 1, 1, command.Request{Kind: command.RequestOpen, Timeout: 4 * time.Second})
	r.apply(command.EncodeWant(0, 2, session.Out, session.Left, 1))
	out := command.EncodeReport(2, 1, session.Place{Part: session.Out, Change: 9}, 7)
	r.apply(command.EncodeRetire(2), out)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	if _, known := r.Members().Find(2); !known || !r.HasSessions(2) {
		t.Fatal("a member is forgotten that has a session")
	}
	for {
		step, _, more := r.mu.table.NextStep(2)
		if !more {
			break
		}
		r.apply(command.EncodeSilence(step, time.Second, 1))
	}
	if _, known := r.Members().Find(2); known || r.HasSessions(2) {
		t.Fatal("a member that has nothing left is not forgotten")
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.members.View(), r.Members()) || !l.members.Gone(2) {
		t.Errorf("the image has %+v, want %+v", l.members.View(), r.Members())
	}
	r.apply(registers(2, 2, 3), out)
	if o, _ := r.Origin(2); o.Start != 1 {
		t.Errorf("it has registered: %+v", o)
	}
}

func TestAnnounce(t *testing.T) {
	r := levelRig(t, 1, 1)
	announce := func(seq uint64) {
		q := command.Request{Kind: command.RequestAnnounce, Announce: command.Announce{Name: "n", Address: "a:1", Client: "a:2", Zone: "z"}}
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
	}
	announce(1) // there are no members yet
	r.apply(command.EncodeRaise(2, nil), command.EncodeRaise(3, nil), command.EncodeFound(session.Lineage{1}, []session.MemberID{1, 2, 3}, 1, 7))
	announce(2)
	want := session.Member{ID: 2, Directory: [16]byte{2}, Name: "n", Address: "a:1", Client: "a:2", Zone: "z", Wish: session.Voter}
	if got := r.mu.members.All()[1]; !reflect.DeepEqual(got, want) {
		t.Errorf("member %+v, want %+v", got, want)
	}
}

// M29: after a forced recovery no zxid comes twice, on no shard, and nothing of the lost members is
// accepted any more. A second copy of the command changes nothing, and one with a later zxid only that.
func TestRecover(t *testing.T) {
	r := foundedRig(t, 1)
	first := session.Recovery{Lineage: session.Lineage{2}, Parent: session.Lineage{1}, Survivor: enginetest.Member}
	lost := []session.MemberID{2, 3}
	r.apply(command.EncodeRecover(session.Recovery{Lineage: session.Lineage{2}, Parent: session.Lineage{9}, Survivor: enginetest.Member}, lost, 1<<33, 4))
	if r.mu.Zxid >= 1<<32 || r.Lineage() != (session.Lineage{1}) || r.Retired(2) {
		t.Fatalf("of another lineage: zxid %x, lineage %v", r.mu.Zxid, r.Lineage())
	}
	r.apply(command.EncodeRecover(first, lost, 1<<32, 5))
	check := func() {
		t.Helper()
		if r.mu.Zxid != 1<<32 || r.Visible() != 1<<32 || r.Lineage() != (session.Lineage{2}) {
			t.Fatalf("zxid %x, of which readers see %x, lineage %v", r.mu.Zxid, r.Visible(), r.Lineage())
		}
		for _, m := range lost {
			if !r.Retired(m) {
				t.Errorf("member %d may still send", m)
			}
		}
		if r.Retired(enginetest.Member) {
			t.Error("the survivor must be silent")
		}
	}
	check()
	r.apply(command.EncodeRecover(first, append(lost, enginetest.Member), 1<<32, 6))
	check()
	r.apply(registers(2, 2, 3))
	if o, _ := r.Origin(2); o.Start == 2 {
		t.Errorf("a lost member has registered: %+v", o)
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.members.View(), r.Members()) || l.state.Zxid != 1<<32 {
		t.Errorf("the image has %+v, zxid %x", l.members.View(), l.state.Zxid)
	}
	was := r.Members()
	r.apply(command.EncodeRecover(first, lost, 1<<34, 7))
	if r.mu.Zxid != 1<<34 || !reflect.DeepEqual(r.Members(), was) {
		t.Errorf("a first start that is repeated: zxid %x, members %+v", r.mu.Zxid, r.Members())
	}
}

// On a further shard only zxids and streams are concerned. A repeat is harmless: nobody registers
// between two copies.
func TestRecover_OnAFurtherShard(t *testing.T) {
	r := levelRig(t, 1, 1)
	r.Shard = 2
	r.apply(registers(5, 1, 1))
	for range 2 {
		r.apply(command.EncodeRecover(session.Recovery{Lineage: session.Lineage{2}, Parent: session.Lineage{1}, Survivor: 5}, []session.MemberID{2}, 1<<32, 5))
	}
	if r.mu.Zxid != 1<<32 || !r.Retired(2) || r.Retired(5) {
		t.Errorf("zxid %x, retired: %v, the survivor: %v", r.mu.Zxid, r.Retired(2), r.Retired(5))
	}
}

// The survivor's log of a further shard reaches further than its log of the home shard. The session
// there is unknown at home, so the recovery has to end it; else its lock would stay for ever.
func TestRecover_EndsOrphans(t *testing.T) {
	home := foundedRig(t, 2)
	other := levelRig(t, 1, 1)
	other.Shard = 2
	NewPurger([]*Replica{home.Replica, other.Replica}, nil, slog.New(slog.DiscardHandler))
	// Member 2 opened session 77 and recorded shard 2 at home. The survivor's home log lacks that.
	other.ask(2, 1, 1, command.Request{Kind: command.RequestIntroduce, Session: 77, Timeout: 4 * time.Second})
	other.ask(2, 1, 2, command.Request{Kind: command.RequestTxn, Session: 77, Ops: []tree.Op{{Kind: tree.KindCreate, Path: "/lock", ACL: tree.OpenACL(), Mode: tree.Ephemeral}}})
	// A member that the survivor's home log does not know, but that registered on shard 2.
	other.apply(registers(4, 1, 1))
	r := session.Recovery{Lineage: session.Lineage{2}, Parent: session.Lineage{1}, Survivor: 1}
	cmd := command.EncodeRecover(r, []session.MemberID{2, 3}, 1<<32, 5)
	other.apply(cmd)
	home.apply(cmd)
	if other.mu.Zxid < 1<<32 || home.mu.Zxid < 1<<32 {
		t.Fatal(other.mu.Zxid, home.mu.Zxid, home.disk.Err(), other.disk.Err())
	}
	if !other.Retired(4) {
		t.Error("member 4, which home does not know, may still send on shard 2")
	}
	for rounds := 0; len(other.Orphans(home.Replica)) > 0; rounds++ {
		if rounds > 0 {
			t.Fatalf("orphans after a purge: %+v", other.Orphans(home.Replica))
		}
		other.apply(command.EncodePurge(6, other.Orphans(home.Replica)))
	}
	if _, open := other.mu.table.Get(77); open && !other.mu.table.IsEnding(77) {
		t.Error("session 77 goes on, and is unknown at home")
	}
}
