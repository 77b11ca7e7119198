package engine

import "testing"

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
