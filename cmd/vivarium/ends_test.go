//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// A fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A trouble is how a command ends when something is not as it should be.
type trouble struct {
	what   string // cut: its input; full: its output; odd: its target; none: it has no such thing
	args   string // words, the first is the command
	stdin  string
	code   int
	stdout string // a part; empty: nothing; *: anything
	stderr string // a part; empty: nothing
}

// Each command, with an input that is cut, an output that is full, and a target that is odd. What is
// not whole is never called so, and never by silence: the code is 0 only if all was read, done and
// written. The code is 2 for what cannot be used, before anything is done.
func TestEnds(t *testing.T) {
	world(t)
	_, server, _ := served(t)
	live(t)
	const lost = "vivarium: the output is lost: no space left on device"
	ends := []trouble{
		{"cut", "serve -config cut.yaml -check", "", exitUsage, "", "cut.yaml: line "},
		{"cut", "serve -config node.yaml -seed cut.backup", "", exitUsage, "", "-seed: cut.backup: damaged or incomplete backup"},
		{"full", "serve -config node.yaml -check", "", exitFailed, "", lost},
		{"odd", "serve -config .", "", exitUsage, "", "is a directory"},
		{"odd", "serve -config none.yaml", "", exitUsage, "", "none.yaml: no such file"},
		{"odd", "serve -config node.yaml -seed .", "", exitUsage, "", "is a directory"},

		{"cut", "shell -server " + server + " ", "ls /zookeeper\nls /", exitOK, "[src, zookeeper]", ""}, // as other shells do
		{"full", "shell -server " + server + " ls /", "", exitFailed, "", "Output is lost: no space left on device"},
		{"odd", "shell -server " + server + "/none ls /", "", exitFailed, "", "Node does not exist: /"},
		{"odd", "shell -server nowhere:port", "", exitUsage, "", "want host:port"},

		{"cut", "members -config cut.yaml", "", exitUsage, "", "cut.yaml: line "},
		{"full", "members -config live.yaml", "", exitFailed, "", lost},
		{"odd", "members -config node.yaml", "", exitFailed, "", "join and members are empty"},
		{"odd", "members -config .", "", exitUsage, "", "is a directory"},

		{"cut", "check cut-data", "", exitFailed, "cut-data: damaged", ""},
		{"full", "check data", "", exitFailed, "", lost},
		{"full", "check cut-data", "", exitFailed, "", ""},
		{"odd", "check whole.backup", "", exitUsage, "", "whole.backup is no directory"},
		{"odd", "check none", "", exitUsage, "", "no such file"},
		{"odd", "check empty", "", exitUsage, "", "it holds no member's data"},

		{"cut", "audit journal", "", exitOK, "zxid=0x1 ", ""}, // a crash tears a last record
		{"full", "audit journal", "", exitFailed, "", "vivarium audit: no space left on device"},
		{"odd", "audit empty", "", exitFailed, "", "empty has no audit files"},
		{"odd", "audit data", "", exitFailed, "", "data has no audit files"},
		{"odd", "audit none", "", exitUsage, "", "no such file"},
		{"odd", "audit whole.backup", "", exitUsage, "", "whole.backup is no directory"},

		{"cut", "backup -dir cut-data b", "", exitFailed, "", "is damaged"},
		{"full", "backup -dir data -", "", exitFailed, "", "vivarium backup: no space left on device"},
		{"full", "backup -config live.yaml -", "", exitFailed, "", "no space left on device"},
		{"full", "backup -dir data new.backup", "", exitFailed, "", lost}, // the file is there, and nobody has read its sum
		{"full", "backup -dir data /dev/full", "", exitFailed, "", "no space left on device"},
		{"odd", "backup -dir data .", "", exitUsage, "", ". is a directory"},
		{"odd", "backup -dir data none/b", "", exitUsage, "", "none: no such file"},
		{"odd", "backup -dir data dangling", "", exitUsage, "", "dangling is a symbolic link to nothing"},
		{"odd", "backup -dir data link", "", exitOK, "link: sound", ""},
		{"odd", "backup -dir data /dev/null", "", exitOK, "/dev/null: sound", ""},
		{"odd", "backup -dir none b", "", exitUsage, "", "none: no such file"},
		{"odd", "backup -dir whole.backup b", "", exitUsage, "", "whole.backup is no directory"},
		{"odd", "backup -dir empty b", "", exitFailed, "", "it holds no member's data"},
		{"odd", "backup -config none.yaml b", "", exitUsage, "", "no such file"},

		{"cut", "verify cut.backup", "", exitFailed, "", "cut.backup: damaged or incomplete backup"},
		{"cut", "verify zero", "", exitFailed, "", "zero: damaged or incomplete backup"},
		{"full", "verify whole.backup", "", exitFailed, "", lost},
		{"odd", "verify .", "", exitUsage, "", ". is a directory"},
		{"odd", "verify none", "", exitUsage, "", "no such file"},
		{"odd", "verify whole.jsonl", "", exitFailed, "", "whole.jsonl: not a backup"},

		{"cut", "export cut.backup", "", exitFailed, "", "cut.backup: damaged or incomplete backup"},
		{"cut", "export -dir cut-data", "", exitFailed, "", "is damaged"},
		{"full", "export whole.backup", "", exitFailed, "", "vivarium export: whole.backup: no space left on device"},
		{"odd", "export .", "", exitUsage, "", ". is a directory"},
		{"odd", "export none", "", exitUsage, "", "no such file"},
		{"odd", "export whole.jsonl", "", exitFailed, "", "whole.jsonl: not a backup"},
		{"odd", "export -path /none whole.backup", "", exitFailed, "", "/none: the backup does not have this znode"},
		{"odd", "export -dir none", "", exitUsage, "", "no such file"},

		{"cut", "import -server " + server + " cut.backup", "", exitFailed, "", "cut.backup: damaged or incomplete backup"},
		{"cut", "import -server " + server + " cut.jsonl", "", exitFailed, "", "cut.jsonl: line 1: not as an export wrote it"},
		{"cut", "import -server " + server + " -dry-run no-end.jsonl", "", exitOK, "*", "the lines have no end"}, // it may be written by hand
		{"cut", "import -server " + server + " -dry-run -prune no-end.jsonl", "", exitFailed, "", "the lines have no end"},
		{"full", "import -server " + server + " -dry-run whole.jsonl", "", exitFailed, "", lost},
		{"odd", "import -server " + server + " .", "", exitUsage, "", ". is a directory"},
		{"odd", "import -server " + server + " none", "", exitUsage, "", "no such file"},
		{"odd", "import -server " + server + "/none whole.jsonl", "", exitFailed, "*", "znode does not exist"},

		{"cut", "convert -from-zookeeper cut-zookeeper b", "", exitFailed, "", "a wrong end mark"},
		{"full", "convert -from-zookeeper zookeeper -", "", exitFailed, "", "vivarium convert: no space left on device"},
		{"full", "convert -from-zookeeper zookeeper /dev/full", "", exitFailed, "", "no space left on device"},
		{"full", "convert -from-zookeeper zookeeper new.backup", "", exitFailed, "", lost},
		{"odd", "convert -from-zookeeper none b", "", exitUsage, "", "no such file"},
		{"odd", "convert -from-zookeeper zookeeper -logs whole.backup b", "", exitUsage, "", "whole.backup is no directory"},
		{"odd", "convert -from-zookeeper empty b", "", exitFailed, "", "neither a snapshot nor a log"},
		{"odd", "convert -from-zookeeper zookeeper .", "", exitUsage, "", ". is a directory"},

		{"none", "copy cut", "", 0, "", ""}, // its source is a server; package transfer cuts that off
		{"full", "copy -from " + server + " -path /src -server " + server + " -as /dst", "", exitFailed, "", lost},
		{"odd", "copy -from " + server + " -path /none -server " + server + " -as /dst", "", exitFailed, "0 created", "/none"},
		{"odd", "copy -from " + server + " -path /src -server " + server + " -as /none/dst", "", exitFailed, "0 created", "its parent must exist"},

		{"cut", "recover -look cut-data", "", exitFailed, "", "is damaged"},
		{"full", "recover -look data", "", exitFailed, "", lost},
		{"odd", "recover -look none", "", exitUsage, "", "no such file"},
		{"odd", "recover -look empty", "", exitUsage, "", "it holds no member's data"},

		{"cut", "user alice", "", exitUsage, "", "the password is empty"},
		{"full", "user alice", "secret\n", exitFailed, "", lost},
		{"odd", "user a:b", "secret\n", exitUsage, "", "vivarium user: "},

		{"full", "version", "", exitFailed, "", lost},
		{"full", "help", "", exitFailed, "", lost},
	}
	for _, path := range []string{"/src", "/src/a"} {
		mustRun(t, "", "shell", "-server", server, "create", path, "1")
	}
	for _, e := range ends {
		if e.what == "none" {
			continue
		}
		var out, errs bytes.Buffer
		var stdout io.Writer = &out
		if e.what == "full" {
			stdout = fullDisk{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		code := run(ctx, strings.Fields(e.args), strings.NewReader(e.stdin), stdout, &errs)
		cancel()
		if code != e.code || e.stdout != "*" && !has(out.String(), e.stdout) || !has(errs.String(), e.stderr) {
			t.Errorf("%s: %s: %d\n%s\n%s", e.what, e.args, code, &out, &errs)
		}
	}
	for _, c := range commands {
		if c.name == "version" {
			continue
		}
		for _, what := range []string{"cut", "full", "odd"} {
			if !slices.ContainsFunc(ends, func(e trouble) bool {
				return strings.HasPrefix(e.args, c.name+" ") && (e.what == what || e.what == "none" && strings.HasSuffix(e.args, what))
			}) {
				t.Errorf("%s has no row for what is %s", c.name, what)
			}
		}
	}
	if to, err := os.Readlink("link"); err != nil || to != "target" {
		t.Errorf("the link is %q, %v", to, err)
	}
}

// live starts a member that others may ask, with live.yaml.
func live(t *testing.T) {
	t.Helper()
	addrs, err := child.FreeAddrs(1)
	must(t, err)
	n, err := embed.Start(embed.Config{Dir: "live", ID: 1, Members: map[embed.MemberID]string{1: addrs[0]}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	must(t, n.Ready(testkit.Context(t)))
	must(t, os.WriteFile("live.yaml", fmt.Appendf(nil, "members: {1: %q}\n", addrs[0]), 0o600))
}

// The program itself, on the device that is always full. The shell looks after its output on its own.
func TestEnds_FullDevice(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range []string{"version", "help", "shell help"} {
		c := exec.Command(binary, strings.Fields(args)...)
		var errs bytes.Buffer
		c.Stdout, c.Stderr = full, &errs
		if err := c.Run(); c.ProcessState.ExitCode() != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: %v, %s", args, err, &errs)
		}
	}
}

// A backup goes into a FIFO, and leaves it one.
func TestBackup_IntoAFIFO(t *testing.T) {
	world(t)
	must(t, syscall.Mkfifo("fifo", 0o600))
	read := make(chan []byte, 1)
	go func() {
		b, _ := os.ReadFile("fifo")
		read <- b
	}()
	if out := mustRun(t, "", "backup", "-dir", "data", "fifo"); !strings.HasPrefix(out, "fifo: sound: ") {
		t.Error(out)
	}
	if _, err := backup.Verify(bytes.NewReader(<-read)); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat("fifo"); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Error(info.Mode(), err)
	}
}

// world makes the files of TestEnds in a directory that the test then works in.
func world(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	n, err := embed.Start(embed.Config{Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	s, err := n.NewSession(testkit.Context(t), embed.SessionOptions{})
	must(t, err)
	for i := range 20 {
		_, err := s.Create(testkit.Context(t), fmt.Sprintf("/%d", i), bytes.Repeat([]byte("x"), 1000), embed.Persistent)
		must(t, err)
	}
	must(t, n.Close())
	write := func(name string, data []byte) { must(t, os.WriteFile(name, data, 0o600)) }
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		must(t, err)
		return b
	}
	write("node.yaml", []byte("dir: unused\ngateway: {listen: 127.0.0.1:0}\n"))
	write("cut.yaml", []byte("dir: unused\ngateway: {listen: 127.0"))
	mustRun(t, "", "backup", "-dir", "data", "whole.backup")
	write("whole.jsonl", []byte(mustRun(t, "", "export", "-path", "/7", "whole.backup")))
	write("cut.backup", read("whole.backup")[:1000])
	write("cut.jsonl", read("whole.jsonl")[:1000])
	write("no-end.jsonl", slices.Concat(bytes.SplitAfter(read("whole.jsonl"), []byte("\n"))[:1]...))
	write("zero", nil)
	write("target", read("whole.backup"))
	must(t, os.Symlink("target", "link"))
	must(t, os.Symlink("nowhere", "dangling"))
	must(t, os.Mkdir("empty", 0o700))

	must(t, os.CopyFS("cut-data", os.DirFS("data")))
	logs, err := filepath.Glob("cut-data/raft/*/*/tandb/node-1-1/*.log")
	must(t, err)
	for _, name := range logs {
		must(t, os.Truncate(name, 100))
	}

	f, err := audit.Open(audit.Config{Dir: "journal"})
	must(t, err)
	for z := range 3 {
		f.Record(embed.AuditRecord{Time: time.Now(), Op: "set", Path: "/a", Zxid: embed.Zxid(z), Result: "ok"})
	}
	must(t, f.Close())
	name := "journal/audit-0000000001.jsonl"
	write(name, read(name)[:len(read(name))-10])

	old := filepath.Join(testdata, "zookeeper", "3.8.0-0")
	must(t, os.CopyFS("zookeeper", os.DirFS(old)))
	must(t, os.CopyFS("cut-zookeeper", os.DirFS(old)))
	newest, err := filepath.Glob("cut-zookeeper/version-2/log.*")
	must(t, err)
	name = newest[len(newest)-1]
	log := read(name)
	log[bytes.LastIndexByte(log, 'B')] = 'C'
	write(name, log)
}
