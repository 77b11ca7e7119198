//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// fed runs a command in this process with some input.
func fed(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// mustRun runs a command that must succeed, and returns its output.
func mustRun(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := fed(stdin, args...)
	if code != exitOK {
		t.Fatalf("%q: %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// asked returns the output of a command that asks members. On a busy machine they may not answer in
// time; then it is run again.
func asked(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	until(t, fmt.Sprintf("%q to get an answer", args), func() bool {
		code, out, _ := vivarium(args...)
		stdout = out
		return code == exitOK
	})
	return stdout
}

// served starts a server that is alone, and returns where clients reach it.
func served(t *testing.T) (dir, addr string, p *child.Program) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\nsuperDigest: "+embed.Digest("super:pw")+"\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	p = spawn(t, dir, "serve", "-config", "node.yaml")
	line := p.Says("msg=serving")
	m := regexp.MustCompile(`clients=(\S+) `).FindStringSubmatch(line)
	if m == nil {
		t.Fatal(line)
	}
	return dir, m[1], p
}

// withoutStat removes from lines what an import does not bring back.
func withoutStat(lines string) []string {
	var list []string
	for _, l := range strings.Split(regexp.MustCompile(`,"stat":\{[^}]*\}|,"shard":\d+`).ReplaceAllString(lines, ""), "\n") {
		if !strings.Contains(l, `"path":"/zookeeper`) && !strings.Contains(l, `"ephemeral"`) && !strings.Contains(l, `"end"`) {
			list = append(list, l)
		}
	}
	return list
}

// An operator backs up a running ensemble, verifies the file, looks into it, and creates what it
// has on another server, as a whole and a part of it.
func TestBackup(t *testing.T) {
	t.Parallel()
	addrs, err := child.FreeAddrs(3)
	must(t, err)
	dir := t.TempDir()
	members := map[embed.MemberID]string{1: addrs[0], 2: addrs[1], 3: addrs[2]}
	config := filepath.Join(dir, "node.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "ensemble: orders\nmembers: {1: %q, 2: %q, 3: %q}\n", addrs[0], addrs[1], addrs[2]), 0o644))
	nodes := make(map[embed.MemberID]*embed.Node)
	for id := range members {
		n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, fmt.Sprint(id)), ID: id, Members: members, Ensemble: "orders", Tick: 20 * time.Millisecond,
			RequestTimeout: patience, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		defer n.Close()
		nodes[id] = n
	}
	ctx := testkit.Context(t)
	s, err := nodes[1].NewSession(ctx, embed.SessionOptions{Timeout: time.Minute}) // its ephemeral shall stay
	must(t, err)
	for i := range 300 {
		_, err := s.Put(ctx, fmt.Sprintf("/a/%d", i), []byte{byte(i), 0xff})
		must(t, err)
	}
	_, _, err = s.CreateWith(ctx, "/a/acl", nil, embed.CreateOptions{Mode: embed.TTL, TTL: time.Hour, ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "u:hash"}}})
	must(t, err)
	_, err = s.Create(ctx, "/a/e", nil, embed.Ephemeral)
	must(t, err)

	file := filepath.Join(dir, "orders.backup")
	out := asked(t, "backup", "-config", config, file)
	if !strings.Contains(out, `sound: `) || !strings.Contains(out, `of the ensemble "orders", by member`) || !strings.Contains(out, "\nshard 1: ") {
		t.Error(out)
	}
	if verified := mustRun(t, "", "verify", file); verified != out {
		t.Errorf("verify says\n%s, backup said\n%s", verified, out)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v", info.Mode())
	}
	if entries, err := filepath.Glob(filepath.Join(dir, "*.tmp-*")); len(entries) > 0 || err != nil {
		t.Errorf("it left %v, %v", entries, err)
	}
	piped := asked(t, "backup", "-config", config, "-")
	mustRun(t, piped, "verify", "-")

	lines := mustRun(t, "", "export", file)
	if n := strings.Count(lines, "\n"); n < 304 || !strings.Contains(lines, `{"path":"/a/0","data":"AP8=","mode":"persistent"`) {
		t.Errorf("%d lines\n%.500s", n, lines)
	}
	if live := asked(t, "export", "-config", config); live != lines {
		t.Error("what a member exports is not what its backup has")
	}
	if one := mustRun(t, "", "export", "-path", "/a/7", file); !strings.HasSuffix(one, "\n{\"end\":1}\n") || strings.Count(one, "\n") != 2 || !strings.Contains(one, `"/a/7"`) {
		t.Error(one)
	}
	if code, out, stderr := fed("", "export", "-path", "/none", file); code != exitFailed || out != "" || !strings.Contains(stderr, "/none: the backup does not have this znode") {
		t.Errorf("of what is not there: %d, %s%s", code, out, stderr)
	}

	_, server, _ := served(t)
	super := []string{"import", "-server", server, "-auth", "env:SUPER"}
	if out := mustRun(t, lines, append(super, "-")...); out != "302 created, 0 overwritten, 0 existed, 0 deleted, 0 kept, 1 ephemerals left out\n" {
		t.Error(out)
	}
	if code, out, stderr := fed("", append(super, file)...); code != exitFailed || !strings.Contains(stderr, "/a: znode already exists") || !strings.HasPrefix(out, "0 created") {
		t.Errorf("again: %d, %s%s", code, out, stderr)
	}
	if out := mustRun(t, "", append(super, "-existing", "skip", file)...); out != "0 created, 0 overwritten, 302 existed, 0 deleted, 0 kept, 1 ephemerals left out\n" {
		t.Error(out)
	}
	mustRun(t, "", "shell", "-server", server, "set", "/a/7", "a mistake")
	if out := mustRun(t, "", append(super, "-existing", "overwrite", "-path", "/a/7", file)...); !strings.HasPrefix(out, "0 created, 1 overwritten") {
		t.Error(out)
	}
	if code, _, stderr := fed(lines, "import", "-server", server+"/none", "-"); code != exitFailed || !strings.Contains(stderr, "/a: znode does not exist") {
		t.Errorf("below what does not exist: %d, %s", code, stderr)
	}
}

// A stopped server gives a backup of its directory, and what was imported there comes out again. A
// file that is cut, changed or empty is refused (rancher#18599: one without a byte was kept).
func TestBackup_OfADirectory(t *testing.T) {
	t.Parallel()
	dir, server, p := served(t)
	lines := `{"path":"/b","text":"é \"q\"","mode":"persistent","acl":[{"perms":31,"scheme":"world","id":"anyone"}]}
{"path":"/b/c","mode":"container","acl":[{"perms":1,"scheme":"ip","id":"10.0.0.0/8"},{"perms":31,"scheme":"world","id":"anyone"}]}
{"path":"/b/c/d","data":"/w==","mode":"persistent","acl":[{"perms":31,"scheme":"world","id":"anyone"}]}
`
	mustRun(t, lines, "import", "-server", server, "-")
	data := filepath.Join(dir, "data")
	file := filepath.Join(dir, "file")
	if code, _, stderr := fed("", "backup", "-dir", data, file); code != exitFailed || !strings.Contains(stderr, "in use") {
		t.Errorf("while it runs: %d, %s", code, stderr)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Fatal(p.Log())
	}
	mustRun(t, "", "backup", "-dir", data, file)
	if got := withoutStat(mustRun(t, "", "export", file)); !slices.Equal(got[1:], strings.Split(lines, "\n")) {
		t.Errorf("%q", got)
	}
	if direct := withoutStat(mustRun(t, "", "export", "-dir", data, "-path", "/b")); !slices.Equal(direct, strings.Split(lines, "\n")) {
		t.Errorf("%q", direct)
	}

	whole, err := os.ReadFile(file)
	must(t, err)
	for name, bad := range map[string][]byte{"cut": whole[:len(whole)-1], "changed": append(slices.Clone(whole[:100]), append([]byte{^whole[100]}, whole[101:]...)...), "empty": {}} {
		at := filepath.Join(dir, name)
		must(t, os.WriteFile(at, bad, 0o600))
		for _, command := range [][]string{{"verify", at}, {"export", at}, {"import", "-server", "127.0.0.1:1", at}} {
			if code, _, stderr := fed("", command...); code != exitFailed || !strings.Contains(stderr, "damaged or incomplete backup") {
				t.Errorf("%q: %d, %s", command, code, stderr)
			}
		}
	}
	if code, _, stderr := fed("", "verify", filepath.Join(dir, "node.yaml")); code != exitFailed || !strings.Contains(stderr, "not a backup") {
		t.Errorf("another file: %d, %s", code, stderr)
	}
}

// Whatever goes wrong, the file that was there before stays, and nothing else is left.
func TestBackup_Fails(t *testing.T) {
	dir := t.TempDir()
	config, file := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "file")
	must(t, os.WriteFile(config, []byte("members: {1: \"127.0.0.1:1\"}\n"), 0o644))
	must(t, os.WriteFile(file, []byte("the last one"), 0o600))
	for want, args := range map[string][]string{
		"usage: vivarium backup": {"backup", file},
		"usage: vivarium export": {"export"},
		"usage: vivarium import": {"import", file},
		"usage: vivarium verify": {"verify"},
		"no such file":           {"verify", filepath.Join(dir, "none")},
		"connection refused":     {"backup", "-config", config, file},
		"it holds no member":     {"backup", "-dir", dir, file},
		"not a directory":        {"backup", "-dir", dir, file + "/below"},
	} {
		code, stdout, stderr := fed("", args...)
		if code == exitOK || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, %s%s", args, code, stdout, stderr)
		}
	}
	got, err := os.ReadFile(file)
	if entries, _ := os.ReadDir(dir); len(entries) != 2 || string(got) != "the last one" || err != nil {
		t.Errorf("%v, %q, %v", entries, got, err)
	}
}

// A signal ends the command, and leaves nothing behind.
func TestBackup_Stopped(t *testing.T) {
	t.Parallel()
	dir, _, p := served(t)
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Fatal(p.Log())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	file := filepath.Join(dir, "file")
	if code := run(ctx, []string{"backup", "-dir", filepath.Join(dir, "data"), file}, strings.NewReader(""), &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "canceled") {
		t.Errorf("%d, %s%s", code, &out, &errs)
	}
	if left, err := filepath.Glob(file + "*"); len(left) > 0 || err != nil {
		t.Errorf("it left %v, %v", left, err)
	}
}
