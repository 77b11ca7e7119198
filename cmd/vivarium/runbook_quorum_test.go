//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

const notServing = "This ZooKeeper instance is not currently serving requests"

// "No quorum": two of three members are down, and are started again.
func TestRunbook_NoQuorum(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll("requestTimeout: 1s", "maxSessionTimeout: 10m")
	n.writes(2, "/before")
	// Without a quorum a session serves reads for about a third of its timeout, until nobody knows
	// whether it still lives.
	reader, writer := newTalker(t, n.clients[0], "600000"), newTalker(t, n.clients[0], "3000")
	reader.do("create /reader", "Created /reader")
	writer.do("create /writer", "Created /writer")
	runs[0].PassOver() // a slow start may have a line like those below
	for _, p := range runs[1:] {
		p.Signal(syscall.SIGKILL)
		p.ExitCode()
	}
	runs[0].Says("msg=\"no connection to member\" member=1 cause=\"dial tcp " + n.addrs[1])
	// Who leads dials the third. The other one may have nothing to say to it.
	until(t, "the leader to say that it does not reach the third", func() bool {
		line := func(of int) string {
			return runs[of-1].Line(fmt.Sprintf("msg=\"no connection to member\" member=%d cause=\"dial tcp %s", of, n.addrs[2]))
		}
		return line(1)+line(2) != ""
	})
	runs[0].Says("msg=\"no quorum\" member=1")
	for _, word := range []string{"mntr", "srvr"} {
		until(t, word+" to say that nobody is served", func() bool {
			return strings.Contains(fourLetters(t, n.clients[0], word), notServing)
		})
	}
	contains(t, fourLetters(t, n.clients[0], "ruok"), "imok")
	reader.do("get -s /before", "dataLength")
	writer.do("create /meanwhile", "ConnectionLoss for /meanwhile") // it may come with the quorum
	n.says("ConnectionLoss", 1, "-timeout", "1000", "get", "/before")

	runs[0].PassOver()
	n.start(3).Says("msg=serving")
	runs[0].Says("msg=\"the quorum is back\"")
	n.writes(1, "/after")
	n.start(2).Says("msg=serving")
	n.says("after, before", 2, "ls", "/")
}

// "No quorum" on one member, and "Members that reach each other one way only", because a firewall
// lets nobody dial the third. The others carry on. When the port is open again, nothing has to be
// restarted.
//
// The firewall is a rule of the kernel's routing, in a network namespace of the test's own. Packets
// of connections that are open do not pass either.
func TestRunbook_AFirewall(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	n.in = namespace(t)
	rule := func(what string) {
		t.Helper()
		_, port, _ := strings.Cut(n.addrs[2], ":")
		words := slices.Concat(n.in, []string{"ip", "rule", what, "pref", "1"},
			[]string{"to", "127.0.0.1", "ipproto", "tcp", "dport", port, "prohibit"})
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	create := func(id int, path string) bool {
		t.Helper()
		p := n.run("shell", "-server", n.clients[id-1], "-timeout", "4000", "create", path)
		p.ExitCode()
		return p.Line("Created "+path)+p.Line("already exists") != ""
	}
	runs := n.startAll()
	for _, p := range runs {
		p.PassOver()
	}
	rule("add")
	// Its connections from the others look open for a while.
	contains(t, runs[2].Says("msg=\"no quorum\""), "no leader")
	// A follower may have nothing to send to the third, and then does not dial it.
	until(t, "the leader to say that it cannot dial the third", func() bool {
		says := func(id int) string {
			return runs[id-1].Line(fmt.Sprintf("msg=\"no connection to member\" member=%d cause=\"dial tcp %s", id, n.addrs[2]))
		}
		return says(1)+says(2) != ""
	})
	until(t, "the others to carry on", func() bool { return create(1, "/one") && create(2, "/two") })
	if create(3, "/three") {
		t.Error("the third serves without a quorum")
	}
	runs[2].PassOver()
	rule("del")
	runs[2].Says("msg=\"the quorum is back\"")
	until(t, "the third to serve", func() bool { return create(3, "/three") })
}

// "All members were stopped": they are killed at once, and started one by one. None is ready before
// two run. Everything acknowledged is there again, and a client comes back with its session.
func TestRunbook_AllMembersWereStopped(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll()
	client := newTalker(t, strings.Join(n.clients, ","), "60000")
	client.do("create -e /client", "Created /client")
	const written = 20
	for i := range written {
		n.writes(i%3+1, fmt.Sprintf("/n-%d", i))
	}
	for _, p := range runs {
		p.Signal(syscall.SIGKILL)
	}
	for _, p := range runs {
		p.ExitCode()
	}
	third := n.start(3)
	third.Says("msg=started")
	third.Says("msg=\"no quorum\"")
	if line := third.Line("msg=ready"); line != "" {
		t.Errorf("one of three: %s", line)
	}
	second := n.start(2)
	for _, p := range []*child.Program{second, third} {
		p.Says("msg=ready")
	}
	for i := range written {
		n.says(fmt.Sprintf(" n-%d,", i), 3, "ls", "/")
	}
	client.do("create -e /again", "Created /again")
	n.says("again, client", 2, "ls", "/")
	n.start(1).Says("msg=serving")
	n.says("again, client", 1, "ls", "/")
}

// namespace makes a network namespace with a loopback interface. Commands after the words that it
// returns run there.
func namespace(t *testing.T) []string {
	t.Helper()
	// Rules before the table of local addresses count for loopback too.
	const script = "ip link set lo up && ip rule add pref 10 lookup local && ip rule del pref 0"
	if out, err := exec.Command("unshare", "-Urn", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Skipf("no namespace can be made: %v, %s", err, out)
	}
	p := child.Run(t, t.TempDir(), "unshare", "-Urn", "sh", "-c",
		script+" && echo made >&2 && exec tail -f /dev/null")
	p.Says("made")
	return []string{"nsenter", "-t", strconv.Itoa(p.Pid()), "-U", "-n", "--preserve-credentials"}
}
