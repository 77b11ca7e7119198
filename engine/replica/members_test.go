package replica

import (
	"reflect"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
)

// The first lineage in the log of the home shard counts, from the level on that has members. The
// image keeps it, and the members.
func TestFound(t *testing.T) {
	r := levelRig(t, 3, 3)
	found := func(first byte) []byte {
		return command.EncodeFound(session.Lineage{first}, []session.MemberID{enginetest.Member, 2, 3, 4})
	}
	want := func(lineage byte) {
		t.Helper()
		if got := r.Lineage(); got != (session.Lineage{lineage}) {
			t.Fatalf("the lineage is %v", got)
		}
	}
	r.members = append(r.members, 4)
	r.apply(found(1), command.EncodeRaise(2, []session.MemberID{4}), found(1))
	want(0)
	r.apply(command.EncodeRaise(3, []session.MemberID{4}))
	want(0)
	r.apply(found(2), found(3))
	want(2)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	r.apply(registers(4, 1, 3)) // a founder that was left behind
	members := []session.Member{{ID: enginetest.Member, Directory: enginetest.Origin().Directory}}
	for id := session.MemberID(2); id <= 4; id++ {
		members = append(members, session.Member{ID: id, Directory: [16]byte{byte(id)}})
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
