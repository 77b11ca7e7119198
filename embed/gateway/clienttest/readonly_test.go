package clienttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
			if _, err := exec.LookPath("javac"); err != nil || !zookeeper.Installed() {
				t.Skip("there is no Java client: the Debian packages are zookeeper and default-jdk-headless")
			}
			return zookeeper.Java(nil, "testdata/ReadOnly.java", s.addrs())
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
	if !zookeeper.Installed() {
		t.Skip(zookeeper.Missing)
	}
	addrs, servers := zookeeper.StartStoppable(t, 3, zooKeeperTimes+"localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n", "-Dreadonlymode.enabled=true")
	s := &system{name: "ZooKeeper", stop: func(which int) { servers[which].Stop() }, start: func(which int) { servers[which].Start() }}
	for _, addr := range addrs {
		s.doors = append(s.doors, newDoor(t, addr))
	}
	return s
}
