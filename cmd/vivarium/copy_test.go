//go:build unix

package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// An operator moves a subtree of a living ZooKeeper: the command follows until a signal, and says
// that both sides are equal, or what differs.
func TestCopy(t *testing.T) {
	t.Parallel()
	zookeeper.Need(t)
	source := zookeeper.Start(t, 1, "tickTime=2000\n")[0]
	_, target, _ := served(t)
	for _, path := range []string{"/app", "/app/a", "/app/a/b"} {
		mustRun(t, "", "shell", "-server", source, "create", path, "1")
	}
	mustRun(t, "", "shell", "-server", target, "create", "/new", "")
	p := spawn(t, t.TempDir(), "copy", "-from", source+"/app", "-path", "/a", "-as", "/moved", "-server", target+"/new", "-auth", "env:SUPER", "-follow")
	p.Says("walked: ")
	mustRun(t, "", "shell", "-server", source, "set", "/app/a/b", "2")
	mustRun(t, "", "shell", "-server", source, "create", "/app/a/c", "3")
	until(t, "the last change", func() bool {
		code, out, _ := vivarium("shell", "-server", target, "get", "/new/moved/c")
		return code == exitOK && strings.HasPrefix(out, "3")
	})
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK || !strings.Contains(p.Log(), "cutting over") {
		t.Errorf("%d\n%s", code, p.Log())
	}
	for path, want := range map[string]string{"/new/moved": "1", "/new/moved/b": "2", "/new/moved/c": "3"} {
		if got := mustRun(t, "", "shell", "-server", target, "get", path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}

	again := []string{"copy", "-from", source + "/app/a", "-server", target + "/new/moved"}
	if code, _, stderr := fed("", again...); code != exitFailed || !strings.Contains(stderr, "/new/moved: it exists at the target already") {
		t.Errorf("%d, %s", code, stderr)
	}
	again = append(again, "-existing", "overwrite")
	out := mustRun(t, "", again...)
	sums := regexp.MustCompile(`sha256 ([0-9a-f]{64}), 0 ephemerals`).FindAllStringSubmatch(out, -1)
	if !strings.HasPrefix(out, "0 created, 0 changed, 0 deleted\nsource: 3 znodes") || !strings.HasSuffix(out, "\nequal\n") || len(sums) != 2 || sums[0][1] != sums[1][1] {
		t.Error(out)
	}
	mustRun(t, "", "shell", "-server", target, "create", "/new/moved/extra", "")
	if code, out, _ := fed("", again...); code != exitFailed || !strings.HasSuffix(out, "/new/moved/extra: only at the target\ndifferent\n") {
		t.Errorf("%d, %s", code, out)
	}
	if out := mustRun(t, "", append(again, "-prune")...); !strings.HasPrefix(out, "0 created, 0 changed, 1 deleted\n") {
		t.Error(out)
	}
}

// A copy into its own tree does not begin, whatever name the server has.
func TestCopy_IntoItself(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	mustRun(t, "", "shell", "-server", server, "create", "/o", "x")
	_, port, _ := strings.Cut(server, ":")
	args := []string{"copy", "-from", server, "-path", "/o", "-server", "localhost:" + port, "-auth", "env:SUPER"}
	for _, more := range [][]string{{"-as", "/o/copy", "-follow"}, {"-as", "/", "-existing", "overwrite", "-prune"}} {
		code, _, stderr := fed("", append(args, more...)...)
		if code != exitFailed || !strings.Contains(stderr, "one within the other") {
			t.Errorf("%q: %d, %s", more, code, stderr)
		}
	}
	if out := mustRun(t, "", "shell", "-server", server, "ls", "-R", "/"); !strings.HasPrefix(out, "/\n/o\n/zookeeper\n") {
		t.Error(out)
	}
}

// With -follow, the first signal cuts over, and a second one gives up.
func TestCopy_Signals(t *testing.T) {
	ctx, cut, stop := untilCutOver(context.Background(), true)
	must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-cut
	must(t, ctx.Err())
	must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	stop()
	ctx, _, stop = untilCutOver(context.Background(), false)
	must(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-ctx.Done()
	stop()
}

func TestCopy_BadFlags(t *testing.T) {
	at := []string{"copy", "-from", "127.0.0.1:1", "-server", "127.0.0.1:2"}
	for want, args := range map[string][]string{
		"usage: vivarium copy -from":            {"copy", "-h"},
		"-from: server \"\": no host":           {"copy", "-server", "127.0.0.1:2"},
		"-server: server \"\": no host":         {"copy", "-from", "127.0.0.1:1"},
		"want host:port":                        {"copy", "-from", "a:b", "-server", "127.0.0.1:2"},
		"want fail or overwrite":                append(at, "-existing", "skip"),
		"-prune needs -existing overwrite":      append(at, "-prune"),
		"Path must start with / character":      append(at, "-path", "a"),
		"/b/: Path must not end with":           append(at, "-as", "/b/"),
		"/zookeeper/quota belongs":              append(at, "-path", "/zookeeper/quota"),
		"/zookeeper belongs":                    {"copy", "-from", "127.0.0.1:1", "-server", "127.0.0.1:2/zookeeper"},
		"one within the other":                  {"copy", "-from", "127.0.0.1:1,127.0.0.1:2", "-server", "127.0.0.1:2/copy"},
		"-auth: everybody on the machine can":   append(at, "-auth", "digest:super:hunter2"),
		"1 arguments, want 0":                   append(at, "FILE"),
		"flag provided but not defined: -dance": append(at, "-dance"),
	} {
		code, stdout, stderr := fed("", args...)
		wantCode := exitUsage
		if args[1] == "-h" {
			wantCode = exitOK
		}
		if code != wantCode || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, %s%s", args, code, stdout, stderr)
		}
	}
	if within("/ab", "/a") || !within("/a/b", "/a") || !within("/a", "/a") || !within("/a", "/") {
		t.Error("within")
	}
}

// A source or a target that nobody answers for ends the command.
func TestCopy_NoServer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs strings.Builder
	code := run(ctx, []string{"copy", "-from", "127.0.0.1:1", "-server", "127.0.0.1:2"}, strings.NewReader(""), &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), "vivarium copy: source: ") {
		t.Errorf("%d, %s", code, &errs)
	}
}
