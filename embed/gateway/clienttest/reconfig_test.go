package clienttest

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

const configPath = "/zookeeper/config"

// A growing system has members that clients may change.
type growing struct {
	*system
	e *embedtest.Ensemble
}

// startGrowing starts three founders and some more members, with a gateway each, and waits until
// the config lists them all.
func startGrowing(t *testing.T, more int) *growing {
	t.Helper()
	s := &growing{&system{name: "Vivarium"}, embedtest.New(t, 3, embedtest.Options{Join: true, Config: func(c *embed.Config) {
		c.SuperDigest = embed.Digest("super:test")
	}})}
	for range more {
		s.e.Ready(s.e.Join())
	}
	addrs, err := child.FreeAddrs(3 + more)
	must(t, err)
	for i, place := range s.e.Members() {
		door := newDoor(t, addrs[i])
		g, err := gateway.Start(s.e.Node(place), gateway.Config{Listen: addrs[i], Words: []string{"*"}, ConnectionsPerAddress: -1,
			Reconfig: true, Advertise: door.listener.Addr().String()})
		must(t, err)
		t.Cleanup(func() { _ = g.Close() })
		s.doors = append(s.doors, door)
	}
	c := s.connect(t)
	s.e.Until("the config of all members", func() bool {
		data, _, err := c.Get(configPath)
		return err == nil && strings.Count(string(data), ";127.0.0.1:") == 3+more
	})
	return s
}

// connect connects a superuser to the first member.
func (s *growing) connect(t *testing.T) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{s.doors[0].listener.Addr().String()}, sessionTimeout, zk.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(c.Close)
	s.e.Until("a session", func() bool { return c.State() == zk.StateHasSession })
	return c
}

// line returns what a member says in the config.
func (s *growing) line(place int, role string) string {
	return fmt.Sprintf("server.%d=member-%d.test:1:0:%s;%s", place, place, role, s.doors[place-1].listener.Addr())
}

// go-zookeeper reads the config with a watch, promotes an observer, and removes members.
func TestReconfig(t *testing.T) {
	t.Parallel()
	s := startGrowing(t, 1)
	c := s.connect(t)
	data, stat, watch, err := c.GetW(configPath)
	must(t, err)
	want := strings.Join([]string{s.line(1, "participant"), s.line(2, "participant"), s.line(3, "participant"), s.line(4, "observer")}, "\n")
	if version := fmt.Sprintf("\nversion=%x", stat.Mzxid); string(data) != want+version || stat.Version != -1 {
		t.Errorf("the config is\n%s\nwant\n%s%s", data, want, version)
	}
	_, err = c.IncrementalReconfig(nil, []string{"4"}, -1)
	is(t, "without permission", err, zk.ErrNoAuth)
	must(t, c.AddAuth("digest", []byte("super:test")))
	_, err = c.IncrementalReconfig(nil, []string{"4"}, stat.Mzxid+1)
	is(t, "another version", err, zk.ErrBadVersion)
	_, err = c.IncrementalReconfig([]string{"server.9=nine.test:1:2:participant;3"}, nil, -1)
	is(t, "a server that is no member", err, zk.ErrBadArguments)

	var promoted *zk.Stat
	s.e.Until("the observer to be stable", func() bool {
		promoted, err = c.IncrementalReconfig([]string{s.line(4, "participant")}, nil, stat.Mzxid)
		return err == nil
	})
	if event := <-watch; event.Type != zk.EventNodeDataChanged || event.Path != configPath || promoted.Mzxid <= stat.Mzxid {
		t.Errorf("event %+v, the config has %+v after %+v", event, promoted, stat)
	}
	_, err = c.Reconfig([]string{s.line(1, "participant"), s.line(2, "participant"), s.line(4, "participant")}, promoted.Mzxid)
	must(t, err)
	data, _, err = c.Get(configPath)
	must(t, err)
	if strings.Contains(string(data), "server.3=") || !strings.Contains(string(data), s.line(4, "participant")) {
		t.Errorf("after both changes the config is\n%s", data)
	}
}

// kazoo's reconfig gets the same from Vivarium as from ZooKeeper.
func TestReconfig_Kazoo(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	compareOn(t, "reconfig_kazoo", func(t *testing.T) *system {
		// The digest is that of super:test. ZooKeeper makes system properties of keys that it does
		// not know.
		return startZooKeeperWith(t, 3, "reconfigEnabled=true\nDigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n")
	}, func(t *testing.T) *system { return startGrowing(t, 0).system }, func(t *testing.T, s *system) string {
		return runScript(t, s, exec.Command(interpreter, "testdata/reconfig_kazoo.py", s.addrs()))
	})
}

// Curator's EnsembleTracker follows the config: from one address it comes to know all members, and
// later no longer the one that is removed.
func TestReconfig_Curator(t *testing.T) {
	t.Parallel()
	run := curator(t, "testdata/CuratorEnsemble.java")
	s := startGrowing(t, 1)
	addrs := strings.Split(s.addrs(), ",")
	known := func(addrs []string) string {
		return "known: " + strings.Join(slices.Sorted(slices.Values(addrs)), ",") + "\n"
	}
	want := known(addrs) + "removed: true\n" + known(addrs[:3])
	if got := runScript(t, s.system, run(addrs[0], "4", "4")); got != want {
		t.Errorf("Curator prints\n%s\nwant\n%s", got, want)
	}
}

// zkCli shows the members, and changes them.
func TestReconfig_ZKCLI(t *testing.T) {
	t.Parallel()
	if !zookeeper.Installed() {
		t.Skip(zookeeper.Missing)
	}
	s := startGrowing(t, 1)
	out, code := zkCLI(t, s.system, strings.Join([]string{"config", "reconfig -remove 4", "addauth digest super:test", "config -w",
		"reconfig -v 1 -remove 4", "reconfig -remove x", "reconfig -remove 4", "config -c", "quit", ""}, "\n"))
	var members bytes.Buffer
	for place := 1; place <= 3; place++ {
		members.WriteString(s.line(place, "participant") + "\n")
	}
	for _, want := range []string{
		regexp.QuoteMeta(members.String()+s.line(4, "observer")) + `\nversion=[0-9a-f]+\n`,
		`Insufficient permission : .*\n`,
		`version No is not valid : .*\n|.*BadVersion.*\n`,
		`WatchedEvent state:SyncConnected type:NodeDataChanged path:/zookeeper/config`,
		`Committed new configuration:\n` + regexp.QuoteMeta(members.String()) + `version=[0-9a-f]+\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("zkCli does not print %s", want)
		}
	}
	if t.Failed() || code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
