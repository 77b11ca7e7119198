package clienttest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// Clients that accept a server that only reads behave the same with Vivarium as with ZooKeeper.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(t *testing.T, s *system) *exec.Cmd{
		"kazoo": func(t *testing.T, s *system) *exec.Cmd {
			return exec.Command(python(t), "testdata/readonly_kazoo.py", s.addrs())
		},
		"java": func(t *testing.T, s *system) *exec.Cmd {
			zookeeper.Need(t)
			if _, err := exec.LookPath("javac"); err != nil { // java needs its classes to run a source file
				t.Skip("there is no Java client: the Debian package is default-jdk-headless")
			}
			return zookeeper.Java(nil, "testdata/ReadOnly.java", s.addrs())
		},
		"c": func(t *testing.T, s *system) *exec.Cmd {
			return exec.Command(compileC(t, "testdata/readonly.c"), s.addrs())
		},
	} {
		file := filepath.Join("testdata", "readonly_"+name+".golden")
		run := func(t *testing.T, s *system) string { return runScript(t, s, command(t, s)) }
		if *update {
			must(t, os.WriteFile(file, []byte(run(t, startReadOnlyZooKeeper(t))), 0o644))
		}
		t.Run(name+"/ZooKeeper", func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			diff(t, file, run(t, startReadOnlyZooKeeper(t)))
		})
		t.Run(name+"/Vivarium", func(t *testing.T) {
			t.Parallel()
			diff(t, file, run(t, startReadOnlyVivarium(t)))
		})
	}
}

// ZooKeeper's shell with -r prints the same with Vivarium as with ZooKeeper.
func TestReadOnly_ZKCLI(t *testing.T) {
	t.Parallel()
	zookeeper.Need(t)
	const file = "testdata/readonly_zkcli.golden"
	run := func(t *testing.T, s *system) string {
		var text strings.Builder
		for _, step := range []struct {
			state, in string
			stop      bool
		}{
			{"SyncConnected", "create /a x\nget /a\n", false},
			{"ConnectedReadOnly", "get /a\nstat /none\nls -w /\ncreate /b\nset /a y\ndelete /a\nsync /\ngetAcl /a\n", true},
		} {
			if step.stop {
				s.stop(1)
				s.stop(2)
			}
			fmt.Fprintf(&text, "== %s\n%s", step.state, readOnlyShell(t, s, step.state, step.in))
		}
		return text.String()
	}
	if *update {
		must(t, os.WriteFile(file, []byte(run(t, startReadOnlyZooKeeper(t))), 0o644))
	}
	t.Run("ZooKeeper", func(t *testing.T) { t.Parallel(); diff(t, file, run(t, startReadOnlyZooKeeper(t))) })
	t.Run("Vivarium", func(t *testing.T) { t.Parallel(); diff(t, file, run(t, startReadOnlyVivarium(t))) })
}

// readOnlyShell runs the shell with -r. The lines of input follow when it has reached a state: those
// before that get ConnectionLoss, and -waitforconnection waits for a quorum.
func readOnlyShell(t *testing.T, s *system, state, input string) string {
	t.Helper()
	cmd := zookeeper.Java(nil, "org.apache.zookeeper.ZooKeeperMain", "-server", s.doors[0].listener.Addr().String(), "-r", "-timeout", "15000")
	var out buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	late := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	defer func() { _ = cmd.Process.Kill() }() // if it has not ended by itself
	until(t, "the shell to be "+state, func() bool { return strings.Contains(out.String(), "state:"+state+" ") })
	_, err = io.WriteString(in, input+"quit\n")
	must(t, err)
	must(t, cmd.Wait())
	// The thread of the events prints the state at any time.
	_, text, _ := strings.Cut(tidy(out.String()), "JLine support is disabled\n")
	return eventLine.ReplaceAllString(text, "")
}

var eventLine = regexp.MustCompile(`(?m)^WatchedEvent .*\n`)

// startReadOnlyVivarium starts three members whose gateways may only read without a quorum.
func startReadOnlyVivarium(t *testing.T) *system {
	t.Helper()
	cfg := gateway.Config{ReadOnly: true}
	e := startEnsembleWith(t, cfg)
	id := func(which int) embed.MemberID { return e.Members()[which] }
	s := &system{name: "Vivarium", stop: func(which int) { e.Stop(id(which)) }}
	s.start = func(which int) {
		e.Start(id(which))
		e.open(id(which), cfg)
	}
	for _, id := range e.Members() {
		s.doors = append(s.doors, newDoor(t, e.addrs[id]))
	}
	return s
}

// startReadOnlyZooKeeper starts three servers of ZooKeeper that do the same. They cannot without
// local sessions.
func startReadOnlyZooKeeper(t *testing.T) *system {
	t.Helper()
	zookeeper.Need(t)
	addrs, servers := zookeeper.StartStoppable(t, 3, zooKeeperTimes+"localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n", "-Dreadonlymode.enabled=true")
	s := &system{name: "ZooKeeper", stop: func(which int) { servers[which].Stop() }, start: func(which int) { servers[which].Start() }}
	for _, addr := range addrs {
		s.doors = append(s.doors, newDoor(t, addr))
	}
	return s
}
