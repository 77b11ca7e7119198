package tree

import (
	"testing"
	"time"
)

// A znode's age counts from its newest write, by the writer's clock. Children that come and go do
// not change it. A loaded znode is as old as the clock.
func TestMortalsAreDated(t *testing.T) {
	tr := New(nil)
	zxid := Zxid(0)
	now := time.Duration(0)
	do := func(ops ...Op) {
		t.Helper()
		zxid, now = zxid+1, now+time.Second
		tr.At(now)
		if _, err := tr.Apply(Header{Zxid: zxid, Session: 7, System: ops[0].Kind == KindLose}, ops); err != nil {
			t.Fatal(err)
		}
		tr.Publish()
	}
	want := func(seconds map[string]int) {
		t.Helper()
		n := 0
		tr.Mortals(func(m Mortal) bool {
			if n++; m.Since != time.Duration(seconds[m.Path])*time.Second {
				t.Errorf("%s is of %v, want %d s", m.Path, m.Since, seconds[m.Path])
			}
			return true
		})
		if n != len(seconds) {
			t.Errorf("%d mortals, want %d", n, len(seconds))
		}
	}
	do(Op{Kind: KindCreate, Path: "/t", Mode: TTL, TTL: 1})
	do(Op{Kind: KindCreate, Path: "/c", Mode: Container})
	do(Op{Kind: KindCreate, Path: "/e", Mode: Ephemeral, TTL: 1})
	want(map[string]int{"/t": 1, "/c": 2})
	do(Op{Kind: KindSet, Path: "/t", Version: AnyVersion})
	do(Op{Kind: KindLose, Path: "/e", Version: AnyVersion})
	want(map[string]int{"/t": 4, "/c": 2, "/e": 5})
	do(Op{Kind: KindCreate, Path: "/t/x"})
	do(Op{Kind: KindDelete, Path: "/t/x", Version: AnyVersion}, Op{Kind: KindCheck, Path: "/c", Version: AnyVersion})
	want(map[string]int{"/t": 4, "/c": 2, "/e": 5})
	tr.Mortals(func(Mortal) bool {
		do(Op{Kind: KindCreate, Path: "/c/x"}, Op{Kind: KindDelete, Path: "/c/x", Version: AnyVersion})
		return false
	})
	do(Op{Kind: KindDelete, Path: "/t", Version: AnyVersion}, Op{Kind: KindCreate, Path: "/t", Mode: TTL, TTL: 1})
	do(Op{Kind: KindDelete, Path: "/c", Version: AnyVersion})
	want(map[string]int{"/t": 9, "/e": 5})
	l := NewLoader(nil)
	if err := tr.Drain(func(path string, z Znode, exists bool) error {
		if !exists {
			return nil
		}
		return l.Add(path, z)
	}); err != nil {
		t.Fatal(err)
	}
	next, err := l.Finish(zxid)
	if err != nil {
		t.Fatal(err)
	}
	tr = next
	want(map[string]int{"/t": 0, "/e": 0})
}
