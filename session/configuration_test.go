package session

import "testing"

// The lines of ZooKeeper's dynamic configuration: who votes is a participant, a learner an
// observer. Nobody else has a line.
func TestConfiguration(t *testing.T) {
	home := func(p Part) []Place { return []Place{{Part: p, Change: 1}} }
	v := &MembersView{List: []Member{
		// A founder whose place is not reported yet.
		{ID: 1, Wish: Voter, Address: "one.test:7946", Client: "one.test:02181"},
		{ID: 2, Wish: Out, Reason: Removed, Address: "two.test:7946", Places: home(Voter)},
		{ID: 3, Wish: Out, Reason: Removed, Address: "three.test:7946", Places: home(Out)},
		{ID: 4, Wish: Voter, Address: "[2001:db8::4]:7946", Client: "[2001:db8::4]:2181", Places: home(Learner)},
		{ID: 5, Wish: Learner, Places: []Place{{}, {Part: Learner, Change: 1}}}, // not on the home shard yet
		{ID: 6, Wish: Learner, Observer: true, Address: "10.0.0.6:7946", Client: "10.0.0.6:2181\nserver.9=x:1:2", Places: home(Learner)},
		{ID: 7, Wish: Learner},
	}}
	const want = "server.1=one.test:7946:0:participant;one.test:2181\n" +
		"server.2=two.test:7946:0:participant\n" +
		"server.4=[2001:db8::4]:7946:0:observer;[2001:db8::4]:2181\n" +
		"server.6=10.0.0.6:7946:0:observer\n"
	if got := v.Configuration(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := (&MembersView{}).Configuration(); got != "" {
		t.Errorf("nobody: %q", got)
	}
	// If one address is not known, the others' lines would say that it is gone.
	v.List[0].Address = ""
	if got := v.Configuration(); got != "" {
		t.Errorf("an incomplete list: %q", got)
	}
}

func TestParseAddress(t *testing.T) {
	for _, good := range []string{"a:1", "A-b_c.test.:65535", "10.0.0.1:80", "[::1]:80", "[::ffff:10.0.0.1]:80", "[FE80::1]:80"} {
		if got, ok := parseAddress(good); !ok || got != good {
			t.Errorf("%q: %q, %v", good, got, ok)
		}
	}
	if got, ok := parseAddress("a:0080"); !ok || got != "a:80" {
		t.Errorf("a port with zeros before it: %q, %v", got, ok)
	}
	for _, bad := range []string{"", ":", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:+1", "a:http", "a:1 ", "a b:1", "a\n:1", "a:1\n", "a;b:1", "a=b:1", "a,b:1",
		"a|b:1", "ä:1", "\xff:1", "::1:80", "[::1:80", "::1]:80", "[]:80", "[g]:80", "[fe80::1%lo]:80", "[[::1]]:80", "a:1:2"} {
		if got, ok := parseAddress(bad); ok {
			t.Errorf("%q passes as %q", bad, got)
		}
	}
}
