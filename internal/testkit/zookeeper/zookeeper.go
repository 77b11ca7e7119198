package zookeeper

import (
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

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// Missing is what to say where ZooKeeper is not installed.
const Missing = "there is no ZooKeeper here: install the Debian package zookeeper"

// Server is the class whose argument is a server's configuration file.
const Server = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

// javaDir is where Debian keeps classes.
const javaDir = "/usr/share/java"

// jars are what ZooKeeper needs.
var jars = []string{
	"zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-simple.jar", "commons-cli.jar", "commons-io.jar",
	"netty*.jar", "metrics-core*.jar", "snappy-java.jar", "jackson-core.jar", "jackson-databind.jar", "jackson-annotations.jar",
}

// Installed reports whether Java, ZooKeeper and the further jars are installed.
func Installed(more ...string) bool {
	_, err := exec.LookPath("java")
	for _, jar := range append([]string{"zookeeper.jar"}, more...) {
		if _, missing := os.Stat(filepath.Join(javaDir, jar)); missing != nil {
			return false
		}
	}
	return err == nil
}

// Need skips a test that needs Java, ZooKeeper or further jars, by day or where one of them is not
// installed.
func Need(t testing.TB, more ...string) {
	t.Helper()
	testkit.ByNight(t, "it needs Java")
	if !Installed(more...) {
		t.Skip(Missing)
	}
}

// ClassPath returns Java's class path with ZooKeeper's classes and the further jars.
func ClassPath(more ...string) string {
	var files []string
	for _, pattern := range slices.Concat(jars, more) {
		found, _ := filepath.Glob(filepath.Join(javaDir, pattern))
		files = append(files, found...)
	}
	return strings.Join(files, ":")
}

// Java returns a command that starts Java quickly, in little memory and without logs, with
// ZooKeeper's classes and the further jars.
func Java(more []string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", ClassPath(more...)}, args...)...)
}

// Start starts an ensemble of n servers that ends with the test. It returns their addresses when
// all servers serve. Start turns on the features of ZooKeeper that Vivarium always has. config adds
// lines to each server's configuration; one of them must set tickTime.
func Start(t testing.TB, n int, config string) (addrs []string) {
	t.Helper()
	addrs, _ = StartStoppable(t, n, config)
	return addrs
}

// StartStoppable is Start with servers that can be stopped and started again. An ensemble of
// several serves when a majority of them runs. options are Java's.
func StartStoppable(t testing.TB, n int, config string, options ...string) (addrs []string, servers []*Process) {
	t.Helper()
	return start(t, n, config, func(int, string) string { return "" }, options...)
}

// A Process is a server that can be stopped.
type Process struct {
	t    testing.TB
	args []string
	cmd  *exec.Cmd // nil: it does not run
}

// Start starts the server, and does not wait until it serves.
func (p *Process) Start() {
	p.t.Helper()
	p.cmd = Java(nil, p.args...)
	testkit.Must(p.t, p.cmd.Start())
}

// Stop ends the server with a signal that it cannot see.
func (p *Process) Stop() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	p.cmd = nil
}

// StartAnnounced is Start with an ensemble whose last servers are observers. Its config tells
// clients where all servers are. Clients that follow the config then bypass whatever is in between.
func StartAnnounced(t testing.TB, n, observers int, config string) (addrs []string) {
	t.Helper()
	addrs, _ = start(t, n, config, func(i int, port string) string {
		role := "participant"
		if i >= n-observers {
			role = "observer"
		}
		return ":" + role + ";127.0.0.1:" + port
	})
	return addrs
}

// StartIn starts a server that is alone, with its data in a directory, where an earlier one may have
// left some. kill ends it with a signal that it cannot see; the end of the test does the same.
// options are Java's.
func StartIn(t testing.TB, dir, config string, options ...string) (addr string, kill func()) {
	t.Helper()
	addrs, err := child.FreeAddrs(1)
	testkit.Must(t, err)
	_, port, err := net.SplitHostPort(addrs[0])
	testkit.Must(t, err)
	file := filepath.Join(dir, "zoo.cfg")
	config += fmt.Sprintf("%sdataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\n", common, dir, port)
	testkit.Must(t, os.WriteFile(file, []byte(config), 0o644))
	cmd := Java(nil, append(options, "-Dznode.container.checkIntervalMs=3600000", Server, file)...)
	testkit.Must(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	testkit.Until(t, "ZooKeeper to serve", func() bool { return strings.Contains(Ask(addrs[0], "srvr"), "Mode: ") })
	return addrs[0], kill
}

// common turns on what Vivarium always has, and what tests ask.
const common = "extendedTypesEnabled=true\nenforceQuota=true\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nadmin.enableServer=false\n"

// start starts an ensemble. end returns the end of a server's line in the config.
func start(t testing.TB, n int, config string, end func(i int, port string) string, options ...string) (addrs []string, servers []*Process) {
	t.Helper()
	addrs, err := child.FreeAddrs(3 * n) // for clients, for the leader, for elections
	testkit.Must(t, err)
	ports := make([]string, len(addrs))
	for i, addr := range addrs {
		_, ports[i], err = net.SplitHostPort(addr)
		testkit.Must(t, err)
	}
	config += common
	for i := range n {
		if n > 1 {
			config += fmt.Sprintf("server.%d=127.0.0.1:%s:%s%s\n", i+1, ports[n+i], ports[2*n+i], end(i, ports[i]))
		}
	}
	for i := range n {
		dir := t.TempDir()
		file := filepath.Join(dir, "zoo.cfg")
		own := fmt.Sprintf("dataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\n", dir, ports[i])
		testkit.Must(t, os.WriteFile(file, []byte(config+own), 0o644))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(i+1)), 0o644))
		p := &Process{t: t, args: slices.Concat(options, []string{"-Dznode.container.checkIntervalMs=3600000", Server, file})}
		p.Start()
		t.Cleanup(p.Stop)
		servers = append(servers, p)
	}
	for _, addr := range addrs[:n] {
		testkit.Until(t, "ZooKeeper to serve", func() bool { return strings.Contains(Ask(addr, "srvr"), "Mode: ") })
	}
	return addrs[:n], servers
}

// Ask returns a server's answer to a four-letter word. It is empty if nobody listens there.
func Ask(addr, word string) string {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, word)
	text, _ := io.ReadAll(c) // half an answer has half the lines
	return string(text)
}
