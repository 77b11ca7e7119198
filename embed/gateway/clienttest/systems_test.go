package clienttest

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

var update = flag.Bool("update", false, "record what ZooKeeper's servers answer in testdata/*.golden; needs the Debian package zookeeper")

const patience = testkit.Patience

// A system is three servers that scripts of foreign clients run against: Vivarium's members, or ZooKeeper's.
type system struct {
	name  string
	doors []*door
}

func (s *system) addrs() string {
	var addrs []string
	for _, d := range s.doors {
		addrs = append(addrs, d.listener.Addr().String())
	}
	return strings.Join(addrs, ",")
}

// A door is a way to a server that can be shut: then whoever is inside is cut off, and whoever comes is sent away.
type door struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
	all   sync.WaitGroup
}

func newDoor(t *testing.T, server string) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	d := &door{listener: l, server: server, conns: make(map[net.Conn]struct{})}
	d.all.Go(d.accept)
	t.Cleanup(func() {
		_ = l.Close()
		d.cut()
		d.all.Wait()
	})
	return d
}

func (d *door) accept() {
	for {
		c, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.all.Go(func() { d.pass(c) })
	}
}

// pass lets a client through. A side that says no more says so to the other: that is how four-letter words end.
func (d *door) pass(client net.Conn) {
	defer client.Close()
	if !d.enter(client) {
		return
	}
	defer d.leave(client)
	server, err := net.DialTimeout("tcp", d.server, patience)
	if err != nil {
		return
	}
	defer server.Close()
	if !d.enter(server) {
		return
	}
	defer d.leave(server)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.conns[c] = struct{}{}
	}
	return !d.shut
}

func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for c := range d.conns {
		_ = c.Close()
	}
}

func (d *door) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

// startVivarium starts three members with a gateway each.
func startVivarium(t *testing.T) *system {
	t.Helper()
	e := startEnsemble(t)
	s := &system{name: "Vivarium"}
	for _, id := range e.Members() {
		s.doors = append(s.doors, newDoor(t, e.addrs[id]))
	}
	return s
}

// zooKeeperJars is what ZooKeeper needs of where Debian keeps it.
var zooKeeperJars = []string{"zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-simple.jar", "commons-cli.jar", "commons-io.jar",
	"netty*.jar", "metrics-core*.jar", "snappy-java.jar", "jackson-core.jar", "jackson-databind.jar", "jackson-annotations.jar"}

const javaDir = "/usr/share/java"

// java returns a command with ZooKeeper's classes and others, and false if they are not installed.
func java(more []string, args ...string) (*exec.Cmd, bool) {
	path, err := exec.LookPath("java")
	if _, missing := os.Stat(filepath.Join(javaDir, "zookeeper.jar")); err != nil || missing != nil {
		return nil, false
	}
	var jars []string
	for _, pattern := range slices.Concat(zooKeeperJars, more) {
		found, _ := filepath.Glob(filepath.Join(javaDir, pattern))
		jars = append(jars, found...)
	}
	args = append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
		"-cp", strings.Join(jars, ":")}, args...)
	return exec.Command(path, args...), true
}

// startZooKeeper starts servers of ZooKeeper's, with the session timeouts of startVivarium's. It is false if there are none.
func startZooKeeper(t *testing.T, members int) (*system, bool) {
	t.Helper()
	if _, ok := java(nil); !ok {
		return nil, false
	}
	ports := freePorts(t, 3*members)
	s := &system{name: "ZooKeeper"}
	for i := range members {
		dir := t.TempDir()
		var cfg strings.Builder
		fmt.Fprintf(&cfg, "tickTime=200\ninitLimit=100\nsyncLimit=100\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nforceSync=no\nadmin.enableServer=false\n",
			leastTimeout.Milliseconds(), embed.DefaultMaxSessionTimeout.Milliseconds())
		fmt.Fprintf(&cfg, "4lw.commands.whitelist=*\nextendedTypesEnabled=true\nenforceQuota=true\nmaxClientCnxns=0\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n", dir, ports[i])
		for j := 0; j < members && members > 1; j++ {
			fmt.Fprintf(&cfg, "server.%d=127.0.0.1:%d:%d\n", j+1, ports[members+j], ports[2*members+j])
		}
		must(t, os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(cfg.String()), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(i+1)), 0o644))
		cmd, _ := java(nil, "-Dznode.container.checkIntervalMs=3600000", "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		s.doors = append(s.doors, newDoor(t, fmt.Sprintf("127.0.0.1:%d", ports[i])))
	}
	end := time.Now().Add(3 * patience) // JVMs, where many tests run at once
	for _, d := range s.doors {
		for !strings.Contains(ask(d.server, "srvr"), "Mode: ") {
			if time.Now().After(end) {
				t.Fatal("ZooKeeper does not start")
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	return s, true
}

// leastTimeout is the least session timeout of an ensemble of embedtest's.
const leastTimeout = 720 * time.Millisecond

// freePorts are not in use when it returns, and nobody else is given them.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	addrs, err := child.FreeAddrs(n)
	must(t, err)
	for _, addr := range addrs {
		a, err := net.ResolveTCPAddr("tcp", addr)
		must(t, err)
		ports = append(ports, a.Port)
	}
	return ports
}

// ask returns what a server says to a four-letter word; empty if nobody is there.
func ask(addr, word string) string {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, word)
	text, _ := io.ReadAll(c)
	return string(text)
}

// compare checks a transcript of Vivarium's against the one that ZooKeeper's servers gave when it was recorded, and if they are installed
// that they give it still. run makes a transcript.
func compare(t *testing.T, name string, run func(t *testing.T, s *system) string) {
	golden := filepath.Join("testdata", name+".golden")
	if *update {
		s, ok := startZooKeeper(t, 3)
		if !ok {
			t.Fatal("the Debian package zookeeper is not installed")
		}
		must(t, os.WriteFile(golden, []byte(run(t, s)), 0o644))
	}
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel() // they wait more than they compute
		s, ok := startZooKeeper(t, 3)
		if !ok {
			t.Skip("the Debian package zookeeper is not installed")
		}
		diff(t, golden, run(t, s))
	})
	t.Run("Vivarium", func(t *testing.T) {
		t.Parallel()
		diff(t, golden, run(t, startVivarium(t)))
	})
}

// diff says in which lines a text is not the file's, with the last title before them.
func diff(t *testing.T, file, text string) {
	t.Helper()
	recorded, err := os.ReadFile(file)
	must(t, err)
	if text == string(recorded) {
		return
	}
	want, got := strings.Split(string(recorded), "\n"), strings.Split(text, "\n")
	title, said := "", 0
	for len(want) > 0 && len(got) > 0 && said < 40 {
		if want[0] == got[0] {
			if strings.HasPrefix(want[0], "== ") {
				title = want[0]
			}
			want, got = want[1:], got[1:]
			continue
		}
		w, g := apart(want, got)
		t.Errorf("%s %s\nwant %s\ngot  %s", file, title, strings.Join(want[:w], "\n     "), strings.Join(got[:g], "\n     "))
		want, got = want[w:], got[g:]
		said++
	}
	if rest := slices.Concat(want, got); said == 0 && len(rest) > 0 {
		t.Errorf("%s: %d lines, and %d are recorded", file, len(strings.Split(text, "\n")), len(strings.Split(string(recorded), "\n")))
	}
}

// apart returns after how many lines of each two texts go on alike.
func apart(a, b []string) (int, int) {
	for sum := 1; sum < len(a)+len(b); sum++ {
		for i := max(0, sum-len(b)+1); i <= sum && i < len(a); i++ {
			if a[i] == b[sum-i] {
				return i, sum - i
			}
		}
	}
	return len(a), len(b)
}
