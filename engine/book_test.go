package engine

import (
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/session"
)

// The book tries the address that a member said last, then those of the table and of the config.
func TestBook_TriesAll(t *testing.T) {
	b := newBook(map[MemberID]string{1: "config:1", 2: "config:2"}, func(m MemberID) string {
		return map[MemberID]string{1: "table:1", 3: "table:3"}[m]
	})
	b.met(1, "heard:1")
	for i, want := range []string{"heard:1", "table:1", "config:1", "heard:1"} {
		if got := b.address(1); got != want || b.newest(1) != "heard:1" {
			t.Errorf("dial %d is to %q, the newest is %q", i, got, b.newest(1))
		}
	}
	for m, want := range map[MemberID]string{2: "config:2", 3: "table:3", 4: ""} {
		if got := b.address(m); got != want {
			t.Errorf("member %d is dialled at %q", m, got)
		}
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
