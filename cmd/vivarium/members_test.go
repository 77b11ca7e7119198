//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// untilMembers asks for the members until the command answers with the code, and a line of its
// output matches each pattern.
func untilMembers(t *testing.T, file string, want int, patterns ...string) {
	t.Helper()
	var code int
	var stdout, stderr string
	for deadline := time.Now().Add(testkit.Patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		code, stdout, stderr = vivarium("members", "-config", file)
		all := code == want
		for _, p := range patterns {
			all = all && regexp.MustCompile("(?m)"+p).MatchString(stdout+stderr)
		}
		if all {
			return
		}
	}
	t.Fatalf("want %d and %q: %d\n%s%s", want, patterns, code, stdout, stderr)
}

// removes has the command remove a member. On a busy machine it is refused while a voter does not
// answer in time.
func removes(t *testing.T, file, id string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("-remove %s: %s", id, last)
		}
	}()
	until(t, "member "+id+" to be removed", func() bool {
		code, stdout, stderr := vivarium("members", "-config", file, "-remove", id)
		last = stdout + stderr
		return code == exitOK && stdout == "member "+id+" is out of the ensemble\n"
	})
}

// refused has the command refuse to remove a member, and say why.
func refused(t *testing.T, file, id, why string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("-remove %s: %s", id, last)
		}
	}()
	until(t, "a refusal to remove member "+id, func() bool {
		code, stdout, stderr := vivarium("members", "-config", file, "-remove", id)
		if last = stdout + stderr; code == exitOK {
			t.Fatalf("it removed member %s: %s", id, last)
		}
		return code == exitFailed && strings.Contains(stderr, why)
	})
}

// An operator sees who answers, is refused what would cost the quorum, and removes a member that is
// gone.
func TestMembers(t *testing.T) {
	t.Parallel()
	addrs, err := child.FreeAddrs(3)
	must(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "node.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "join: [%q, %q, %q]\n", addrs[0], addrs[1], addrs[2]), 0o644))
	if code, stdout, stderr := vivarium("members", "-config", file); code != exitFailed || stdout != "" || !strings.Contains(stderr, addrs[0]) {
		t.Errorf("without members: %d, %s%s", code, stdout, stderr)
	}
	nodes := make(map[embed.MemberID]*embed.Node)
	for id := embed.MemberID(1); id <= 3; id++ {
		n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, fmt.Sprint(id)), ID: id, Join: addrs, Tick: 20 * time.Millisecond,
			Members: map[embed.MemberID]string{1: addrs[0], 2: addrs[1], 3: addrs[2]}, Name: fmt.Sprintf("pod-%d", id), Zone: "east"})
		must(t, err)
		defer n.Close()
		nodes[id] = n
	}
	untilMembers(t, file, exitOK, `^1 +voter +yes +\d+ +`+addrs[0]+` +pod-1 +east +-$`, `^2 +voter +yes .* pod-2 `, `^3 +voter +yes .* pod-3 `)
	refused(t, file, "9", "9")

	must(t, nodes[3].Close())
	untilMembers(t, file, exitOK, `^3 +voter +no +\?`)
	refused(t, file, "2", "without member 2 the voters would be 1, 3, and of them only 1 answer")
	removes(t, file, "3")
	untilMembers(t, file, exitOK, `^1 +voter +yes`, `^2 +voter +yes`)

	must(t, nodes[2].Close())
	untilMembers(t, file, exitFailed, `^1 +voter +\? +\?`, `^2 +voter +\? +\?`, "member 1 knows of no leader")
}

func TestMembers_CommandLine(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(empty, []byte("dir: data\n"), 0o644))
	for want, args := range map[string][]string{
		"usage: vivarium members": {},
		"no such file":            {"-config", "none.yaml"},
		"ids begin at 1":          {"-config", empty, "-remove", "0"},
		"join and members are empty: name a member that can be asked": {"-config", empty},
	} {
		if code, stdout, stderr := vivarium(append([]string{"members"}, args...)...); code == exitOK || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// SIGTERM takes a member with ephemeral out of the ensemble.
func TestServe_EphemeralLeaves(t *testing.T) {
	t.Parallel()
	addrs, err := child.FreeAddrs(2)
	must(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "node.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "dir: data\nephemeral: true\ntick: 20ms\njoin: [%q]\nmembers: {1: %q}\ngateway: {listen: 127.0.0.1:0}\n", addrs[0], addrs[0]), 0o644))
	var runs []*child.Program
	for i, addr := range addrs {
		own := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.Mkdir(own, 0o755))
		p := spawn(t, own, "serve", "-config", config, "-advertise", addr)
		p.Says(fmt.Sprintf("member=%d shards=1", i+1))
		runs = append(runs, p)
	}
	untilMembers(t, config, exitOK, `^1 +voter +yes`, `^2 +learner +yes`)
	runs[1].Signal(syscall.SIGTERM)
	if code := runs[1].ExitCode(); code != exitOK || runs[1].Line("msg=stopped") == "" || runs[1].Line("level=ERROR") != "" {
		t.Errorf("SIGTERM: %d\n%s", code, runs[1].Log())
	}
	untilMembers(t, config, exitOK, `(?s)\AID [^\n]*\n1 +voter[^\n]*\n(2 +out [^\n]*\n)?\z`)
}
