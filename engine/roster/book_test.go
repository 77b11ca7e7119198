package roster

import (
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/session"
)

// M19: a wrong address costs a dial. It does not keep a member from being found where it said that
// it is, and a handshake there puts that address first again.
func TestBook_AWrongAddressCostsADial(t *testing.T) {
	told := "told:1"
	b := newBook(map[MemberID]string{2: "config:1"}, func(m MemberID) string {
		if m == 2 {
			return told
		}
		return ""
	})
	want := func(of MemberID, addresses ...string) {
		t.Helper()
		for _, a := range addresses {
			if got := b.address(of); got != a {
				t.Fatalf("member %d is dialled at %q, want %q", of, got, a)
			}
		}
	}
	want(3, "", "")
	want(2, "told:1", "config:1", "told:1")
	b.met(2, "heard:1")
	want(2, "heard:1", "told:1", "config:1", "heard:1")
	told = "liar:1"
	b.met(2, "heard:2")
	want(2, "heard:2", "liar:1", "config:1", "heard:2")
	b.met(2, "liar:1") // in one handshake, or in two, the same address is dialled once
	want(2, "liar:1", "config:1", "liar:1")
	if got := b.newest(2); got != "liar:1" || b.newest(3) != "" {
		t.Errorf("the newest address is %q", got)
	}
}

// The book is bounded, whoever claims to be a member. A member that the table has is dialled also
// when the book was emptied.
func TestBook_IsBounded(t *testing.T) {
	b := newBook(nil, func(m MemberID) string { return fmt.Sprint("table:", m) })
	b.met(1, "heard:1")
	for m := MemberID(2); m < 5*session.MembersMax; m++ {
		if m%2 == 0 {
			b.met(m, "heard")
		} else {
			b.address(m)
		}
		if heard, tries := len(b.mu.heard), len(b.mu.tries); heard > 2*session.MembersMax || tries > 2*session.MembersMax {
			t.Fatalf("it remembers %d addresses and %d dials", heard, tries)
		}
	}
	if got := b.address(1); got != "table:1" {
		t.Errorf("a member is dialled at %q", got)
	}
}
