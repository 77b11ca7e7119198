package shell

import (
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

var update = flag.Bool("update", false, "record testdata/*.golden from ZooKeeper's own shell and server")

// node starts a node that is alone.
func node(t *testing.T) *embed.Node {
	t.Helper()
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Tick: 5 * time.Millisecond,
		MinSessionTimeout: patience, SessionTimeout: patience, MaxSessionTimeout: patience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// start opens a gateway on a new node.
func start(t *testing.T) *gateway.Gateway {
	t.Helper()
	g, err := gateway.Start(node(t), gateway.Config{Listen: "127.0.0.1:0", FirstFrame: patience, WriteTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// sh runs the shell and returns its exit code and what it printed to stdout and stderr.
func sh(t *testing.T, stdin string, args ...string) (code int, out string) {
	t.Helper()
	var b safeBuffer
	code = Run(t.Context(), args, strings.NewReader(stdin), &b, &b)
	return code, b.String()
}

// scripts returns the names of testdata/*.txt.
func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || files == nil {
		t.Fatal("no scripts", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".txt")
	}
	return files
}

func golden(name string) string { return filepath.Join("testdata", name+".golden") }

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The shell prints what zkCli printed when the golden files were recorded with it and ZooKeeper.
func TestPrintsAsZkCli(t *testing.T) {
	if *update {
		record(t)
	}
	t.Setenv("TZ", "UTC")
	for _, name := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			_, out := sh(t, read(t, "testdata/"+name+".txt"), "-server", start(t).Addr().String())
			compare(t, name, out)
		})
	}
}

// ZooKeeper's own shell prints the same against Vivarium.
func TestZkCliAgainstVivarium(t *testing.T) {
	needZooKeeper(t)
	for _, name := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, name, zkCli(t, start(t).Addr().String(), read(t, "testdata/"+name+".txt")))
		})
	}
}

// This shell prints the same against ZooKeeper.
func TestPrintsAsZkCliAgainstZooKeeper(t *testing.T) {
	needZooKeeper(t)
	for _, name := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, out := sh(t, read(t, "testdata/"+name+".txt"), "-server", startZooKeeper(t))
			compare(t, name, out)
		})
	}
}

func record(t *testing.T) {
	needZooKeeper(t)
	for _, name := range scripts(t) {
		out := normal(zkCli(t, startZooKeeper(t), read(t, "testdata/"+name+".txt")))
		if err := os.WriteFile(golden(name), []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func compare(t *testing.T, name, out string) {
	t.Helper()
	got, want := normal(out), read(t, golden(name))
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			from := max(i-3, 0)
			t.Fatalf("%s line %d:\n got %s\nwant %s", golden(name), i+1, strings.Join(a[from:min(i+4, len(a))], "\n     "),
				strings.Join(b[from:min(i+4, len(b))], "\n     "))
		}
	}
}

// normalizers replace what differs between runs, and what differs from zkCli on purpose (see
// doc.go).
var normalizers = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`0x0*[1-9a-f][0-9a-f]*`), "0xN"},
	{regexp.MustCompile(`= \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC 20\d\d`), "= DATE"},
	{regexp.MustCompile(`^org\.apache\.commons\.cli\.\w+: `), ""},
	{regexp.MustCompile(`^(ZooKeeper|vivarium shell) -server .*`), "USAGE"},
	{regexp.MustCompile(`^ZooKeeper CLI version: .*`), "ZooKeeper CLI version"},
	{regexp.MustCompile(`^(KeeperErrorCode = InvalidACL|Acl is not valid :) .*`), "$1"},
	{regexp.MustCompile(`get \[-s\] \[-w\] \[-b\] \[-x\] path$`), "get [-s] [-w] path"},
	{regexp.MustCompile(`set path data \[-s\] \[-v version\] \[-b\]$`), "set [-s] [-v version] path data"},
	{regexp.MustCompile(`path \[-c\|-d\|-p\|-r\|-a\] \[-l\]$`), "path [-c|-d|-a] [-l]"},
}

var dropped = regexp.MustCompile(`^(|WATCHER::|SLF4J: .*|Connecting to .*|Welcome to .*|JLine support is disabled|\t(help|evict|locks|revoke) .*|Command not found: Command not found help|Cause: .*` +
	`|WatchedEvent state:(SyncConnected|Closed) type:None path:null)$`)

var identity = regexp.MustCompile(`^(ip|digest): `)

// zkCli 3.8 does not always notice that deleteall has failed: its callback may come too late.
var raced = regexp.MustCompile(`^Failed to delete some node\(s\) in the subtree!$`)

// normal removes from a transcript what a test does not compare. It moves events to the end,
// because zkCli prints them at any time.
func normal(out string) string {
	var lines, events []string
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		for _, n := range normalizers {
			line = n.from.ReplaceAllString(line, n.to)
		}
		switch {
		case dropped.MatchString(line), raced.MatchString(line):
		case strings.HasPrefix(line, "WatchedEvent "):
			events = append(events, line)
		default:
			lines = append(lines, line)
		}
	}
	for i := range lines { // a server lists identities in any order
		if lines[i] == "Auth scheme: User" {
			end := i + 1
			for end < len(lines) && identity.MatchString(lines[end]) {
				end++
			}
			slices.Sort(lines[i+1 : end])
		}
	}
	// If one removewatches removes watches of several kinds, zkCli prints the events in any order.
	for i := 1; i < len(events); i++ {
		if removed := regexp.MustCompile(`type:\w+WatchRemoved (path:.*)`); removed.MatchString(events[i]) && removed.MatchString(events[i-1]) &&
			removed.FindStringSubmatch(events[i])[1] == removed.FindStringSubmatch(events[i-1])[1] && events[i] < events[i-1] {
			events[i], events[i-1] = events[i-1], events[i]
		}
	}
	return strings.Join(slices.Concat(lines, events), "\n") + "\n"
}

const zkCliPath = "/usr/share/zookeeper/bin/zkCli.sh"

func needZooKeeper(t *testing.T) {
	t.Helper()
	if !*update {
		testkit.ByNight(t, "it needs Java")
	}
	if _, err := os.Stat(zkCliPath); err != nil || !zookeeper.Installed() {
		t.Skip(zookeeper.Missing)
	}
}

// zkCli runs a script in ZooKeeper's shell.
func zkCli(t *testing.T, server, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), zkCliPath, "-server", server)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8", "JVMFLAGS=-Dfile.encoding=UTF-8 -XX:TieredStopAtLevel=1")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// startZooKeeper starts a server and returns its address.
func startZooKeeper(t *testing.T) string { return zookeeper.Start(t, 1, "tickTime=2000\n")[0] }
