package transporttest

import (
	"errors"
	"reflect"
	"testing"
)

// A member is found by its name in the address, whoever is expected there, else by its id. A fault
// of the link holds for both.
func TestMeshNames(t *testing.T) {
	m, f := NewMesh(), NewFaults()
	n := f.Network(m.Network(1))
	for _, id := range []uint64{10, 2, membersEnd, membersEnd | 2} {
		l, err := m.Network(id).Listen()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for to, want := range map[Target]error{
		{Member: 2}:                                    nil,
		{Member: 3, Address: "member-10.test:1"}:       nil,
		{Member: 2, Address: "member-3.test:1"}:        ErrNoListener,
		{Address: "member-2.test:1"}:                   nil,
		{Address: "member-10.test:7"}:                  nil,
		{Address: "member-3.test:1"}:                   ErrNoListener,
		{Address: "members.test:1"}:                    ErrNoListener,
		{Address: "member-2.test"}:                     ErrNoListener,
		{Address: "member-2:1"}:                        ErrNoListener,
		{Address: "x-2.test:1"}:                        ErrNoListener,
		{Address: "member-.test:1"}:                    ErrNoListener,
		{Address: "member--2.test:1"}:                  ErrNoListener,
		{Address: "member-9223372036854775808.test:1"}: ErrNoListener, // no member
		{}: ErrNoListener,
	} {
		conn, err := n.Dial(t.Context(), to)
		if !errors.Is(err, want) {
			t.Errorf("%+v: %v", to, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	f.Set(2, Fault{Cut: true})
	for _, to := range []Target{{Member: 2}, {Address: "member-2.test:1"}, {Member: 10, Address: "member-2.test:1"}, {Member: 2, Address: "two:1"}} {
		if _, err := n.Dial(t.Context(), to); !errors.Is(err, ErrCut) {
			t.Errorf("%+v over a cut link: %v", to, err)
		}
	}
}

// The name of all members stands for those that listen, and every other name for itself.
func TestMeshResolve(t *testing.T) {
	m := NewMesh()
	n := m.Network(1)
	resolved := func(address string, want ...Target) {
		t.Helper()
		if got, err := n.Resolve(t.Context(), address); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", address, got, err)
		}
	}
	resolved("members.test:7")
	for _, id := range []uint64{10, 2, membersEnd | 2} {
		l, err := m.Network(id).Listen()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	resolved("members.test:7", Target{Address: "member-2.test:7", Host: "members.test"}, Target{Address: "member-10.test:7", Host: "members.test"})
	resolved("member-3.test:7", Target{Address: "member-3.test:7", Host: "member-3.test"})
	resolved("192.0.2.1:7", Target{Address: "192.0.2.1:7", Host: "192.0.2.1"})
	if got, err := n.Resolve(t.Context(), "members.test"); err == nil {
		t.Errorf("without a port it is %v", got)
	}
}
