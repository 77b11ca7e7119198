//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// These tests make situations of docs/runbook.md with real processes, look for what the page says
// that one sees, and do what it says.

// A night has the addresses and the directory of a few members.
type night struct {
	t       *testing.T
	dir     string
	addrs   []string // of the members, from 1
	clients []string
	in      []string // words before each command, such as those of namespace
}

func newNight(t *testing.T, n int) *night {
	t.Helper()
	addrs, err := child.FreeAddrs(2 * n)
	must(t, err)
	return &night{t: t, dir: t.TempDir(), addrs: addrs[:n], clients: addrs[n:]}
}

func (n *night) data(id int) string { return filepath.Join(n.dir, fmt.Sprintf("data-%d", id)) }

// start runs member id. Each line of more is one more of its config.
func (n *night) start(id int, more ...string) *child.Program {
	n.t.Helper()
	return n.serve(id, n.addrs[id-1], more...)
}

// startAll runs all members with the same lines of config, and waits until all serve.
func (n *night) startAll(more ...string) (runs []*child.Program) {
	n.t.Helper()
	for id := range len(n.addrs) {
		runs = append(runs, n.start(id+1, more...))
	}
	for _, p := range runs {
		p.Says("msg=serving")
	}
	return runs
}

// serve is start with another address of the member in its own row of members.
func (n *night) serve(id int, own string, more ...string) *child.Program {
	n.t.Helper()
	var members []string
	for i, addr := range n.addrs {
		if i+1 == id {
			addr = own
		}
		members = append(members, fmt.Sprintf("%d: %q", i+1, addr))
	}
	return n.serveWith(id, members, more...)
}

func (n *night) serveWith(id int, members []string, more ...string) *child.Program {
	n.t.Helper()
	return n.run("serve", "-config", n.config(id, members, more...))
}

// run runs the program where the members run.
func (n *night) run(args ...string) *child.Program {
	n.t.Helper()
	all := slices.Concat(n.in, []string{binary}, args)
	return child.Run(n.t, n.dir, all[0], all[1:]...)
}

// tick is the members' tick. It is shorter than the default, and so are elections, and the time
// before a learner votes.
const tick = "tick: 20ms"

// config writes the config of member id, and returns the file's name. Without members it has no id
// either.
func (n *night) config(id int, members []string, more ...string) string {
	n.t.Helper()
	if len(members) > 0 {
		more = append(more, fmt.Sprintf("id: %d\nmembers: {%s}", id, strings.Join(members, ", ")))
	}
	text := fmt.Sprintf("dir: %s\ngateway: {listen: %q, words: [\"*\"]}\n%s\n",
		n.data(id), n.clients[id-1], strings.Join(append(more, tick), "\n"))
	file := filepath.Join(n.dir, fmt.Sprintf("%d.yaml", id))
	must(n.t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// shell runs a command of the shell at a member, and returns what it prints.
func (n *night) shell(id int, words ...string) string {
	n.t.Helper()
	_, stdout, stderr := vivarium(append([]string{"shell", "-server", n.clients[id-1]}, words...)...)
	return stdout + stderr
}

// says runs a command of the shell until it prints a text. Before that it may fail, because a
// leader has gone.
func (n *night) says(want string, id int, words ...string) {
	n.t.Helper()
	var answer string
	defer func() {
		if !strings.Contains(answer, want) {
			n.t.Logf("%q at member %d says %q, want %q", words, id, answer, want)
		}
	}()
	until(n.t, fmt.Sprintf("the shell to say %q", want), func() bool {
		answer = n.shell(id, words...)
		return strings.Contains(answer, want)
	})
}

// writes creates a znode at a member. If nobody knows the outcome, it tries again.
func (n *night) writes(id int, path string) {
	n.t.Helper()
	until(n.t, path+" to be created", func() bool {
		answer := n.shell(id, "create", path)
		return strings.Contains(answer, "Created "+path) || strings.Contains(answer, "already exists")
	})
}

// known waits until the directories of all members have the ensemble's lineage. Without it nobody is
// admitted, and members that do not know it may be given another one.
func (n *night) known() {
	n.t.Helper()
	for id := range n.clients {
		until(n.t, "the directories to have the lineage", func() bool { return hasLineage(n.data(id + 1)) })
	}
}

// contains reports an error of the test if an answer lacks a text.
func contains(t *testing.T, answer, want string) {
	t.Helper()
	if !strings.Contains(answer, want) {
		t.Errorf("%q lacks %q", answer, want)
	}
}

// end stops a member with a signal and waits.
func end(t *testing.T, p *child.Program) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Errorf("SIGTERM: %d", code)
	}
}

// mntr returns what a gateway answers to mntr, or what went wrong.
func mntr(t *testing.T, addr string) string {
	t.Helper()
	return fourLetters(t, addr, "mntr")
}

func fourLetters(t *testing.T, addr, word string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte(word)); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

// "A wrong config": a founder that has another config than the others, and a member whose config was
// changed later.
func TestRunbook_WrongConfig(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	first := n.start(1)
	n.start(2)
	third := n.start(3, "ensemble: orders")
	third.Says("members 1, 2 are missing; this node has Ensemble \\\"orders\\\", Members 1, 2, 3 and Shards 1")
	first.Says("has Ensemble \\\"orders\\\", Members 1, 2, 3 and Shards 1")
	end(t, third)
	if third.Line("msg=ready") != "" {
		t.Error("a member of another ensemble was ready")
	}
	third = n.start(3)
	third.Says("msg=serving")
	end(t, third)

	third = n.start(3, "ensemble: orders")
	if code := third.ExitCode(); code != exitFailed || third.Line("belongs to the ensemble") == "" {
		t.Errorf("another ensemble: %d\n%s", code, third.Log())
	}
	third = n.start(3, "shards: 4")
	if code := third.ExitCode(); code != exitFailed ||
		third.Line("was founded with Shards 1, the config says 4") == "" {
		t.Errorf("other shards: %d\n%s", code, third.Log())
	}
	third = n.start(3)
	third.Says("msg=serving")
}

// "Members that reach each other one way only": the third says an address at which nobody listens. It
// is corrected on the third alone.
func TestRunbook_OneWay(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll()
	n.known()
	wrong, err := child.FreeAddrs(1)
	must(t, err)
	right := n.addrs[2]
	end(t, runs[2])
	n.addrs[2] = wrong[0]
	third := n.serve(3, wrong[0], fmt.Sprintf("listen: %q", right))
	third.Says("msg=serving")
	untilMembers(t, n.config(1, nil, fmt.Sprintf("join: [%q]", n.addrs[0])), exitOK, `^3 +voter +yes .*`+regexp.QuoteMeta(wrong[0]))
	for id := 1; id <= 2; id++ {
		end(t, runs[id-1])
		runs[id-1] = n.start(id)
		runs[id-1].Says("msg=serving")
	}
	third.Says("msg=\"no quorum\"")
	// It may say that before it has reached both. Then the next such cause does.
	until(t, "the third to say who does not connect", func() bool {
		for line := range strings.Lines(third.Log()) {
			if strings.Contains(line, "member 1 does not connect to this one") &&
				strings.Contains(line, "member 2 does not connect to this one") {
				return true
			}
		}
		return false
	})
	runs[0].Says("msg=\"no connection to member\" member=1 cause=\"dial tcp " + wrong[0])
	end(t, third)

	n.serve(3, right).Says("msg=serving")
	runs[0].Says("msg=\"connected to member\" member=1 peer=3")
}

// "The tree is too large": what fills it is found, a delete makes room, and a hard quota stops the
// one that fills it before the others have no room.
func TestRunbook_TreeIsTooLarge(t *testing.T) {
	t.Parallel()
	n := newNight(t, 1)
	n.start(1, "maxTreeSize: 100000").Says("msg=serving")
	job := strings.Repeat("x", 20_000)
	for _, path := range []string{"/app", "/app/jobs", "/other"} {
		n.says("Created "+path, 1, "create", path)
	}
	made, answer := 0, ""
	for ; made < 10; made++ {
		answer = n.shell(1, "create", "-s", "/app/jobs/job-", job)
		if !strings.Contains(answer, "Created ") {
			break
		}
	}
	contains(t, answer, "Quota has exceeded")
	n.says("Quota has exceeded", 1, "set", "/other", job)
	digits := made * len(job) / 10_000 // the first ones
	contains(t, mntr(t, n.clients[0]), fmt.Sprintf("zk_approximate_data_size\t%d", digits))
	n.says("[app, other, zookeeper]", 1, "ls", "/")
	n.says(fmt.Sprint(made+1), 1, "getAllChildrenNumber", "/app")

	for _, words := range [][]string{{"delete", "/app/jobs/job-0000000000"}, {"set", "/other", job}} {
		if answer := n.shell(1, words...); answer != "" {
			t.Errorf("%s %s says %q", words[0], words[1], answer)
		}
	}
	n.says(job, 1, "get", "/other")
	n.shell(1, "setquota", "-N", fmt.Sprint(made+1), "/app")
	n.says(fmt.Sprintf("Output stat for /app count=%d", made+1), 1, "listquota", "/app")
	n.says("Quota has exceeded", 1, "create", "-s", "/app/jobs/job-")
	n.says("Created /other/a", 1, "create", "/other/a")
}

// "Many sessions end at once", clients that cannot come back: the gateway counts what it refuses,
// and a higher limit lets them in.
func TestRunbook_ConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addrs, err := child.FreeAddrs(1)
	must(t, err)
	serve := func(most int) *child.Program {
		must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), fmt.Appendf(nil,
			"dir: data\ngateway: {listen: %q, words: [mntr], connectionsPerAddress: %d, firstFrame: 10m}\n",
			addrs[0], most), 0o644))
		p := spawn(t, dir, "serve", "-config", "node.yaml")
		p.Says("msg=serving")
		return p
	}
	p := serve(2)
	var held []*client.Client
	for range 2 {
		c := connected(t, addrs[0])
		defer c.Close()
		held = append(held, c)
	}
	refused, err := net.Dial("tcp", addrs[0])
	must(t, err)
	defer refused.Close()
	if n, err := refused.Read(make([]byte, 1)); err == nil {
		t.Errorf("the third connection got %d bytes", n)
	}
	must(t, held[0].Close())
	until(t, "the gateway says what it has refused", func() bool {
		return strings.Contains(mntr(t, addrs[0]), "zk_connection_rejected\t")
	})
	if answer := mntr(t, addrs[0]); strings.Contains(answer, "zk_connection_rejected\t0\n") {
		t.Error(answer)
	}
	end(t, p)

	serve(60)
	for range 3 {
		conn, err := net.Dial("tcp", addrs[0])
		must(t, err)
		defer conn.Close()
	}
	if answer := mntr(t, addrs[0]); !strings.Contains(answer, "zk_connection_rejected\t0\n") {
		t.Error(answer)
	}
}
