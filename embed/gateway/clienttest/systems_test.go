package clienttest

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

var update = flag.Bool("update", false, "record what ZooKeeper's servers answer in testdata/*.golden; needs the Debian package zookeeper")

const patience = testkit.Patience

// A system is three servers that scripts of foreign clients run against: members of Vivarium or
// servers of ZooKeeper.
type system struct {
	name  string
	doors []*door
	// stop and start stop and start a server; nil if the system cannot.
	stop, start func(which int)
}

func (s *system) addrs() string {
	var addrs []string
	for _, d := range s.doors {
		addrs = append(addrs, d.listener.Addr().String())
	}
	return strings.Join(addrs, ",")
}

// A door leads to a server and can be shut. When it shuts, it cuts off the clients that are
// connected and refuses new ones.
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

// pass lets a client through. When one side stops sending, pass tells the other side: that is how
// four-letter words end.
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

// startZooKeeper starts servers of ZooKeeper with the session timeouts of startVivarium. It skips
// the test if ZooKeeper is not installed.
func startZooKeeper(t *testing.T, members int) *system {
	t.Helper()
	zookeeper.Need(t)
	s := &system{name: "ZooKeeper"}
	for _, addr := range zookeeper.Start(t, members, zooKeeperTimes) {
		s.doors = append(s.doors, newDoor(t, addr))
	}
	return s
}

// zooKeeperTimes are lines of the servers' configuration.
var zooKeeperTimes = fmt.Sprintf("tickTime=200\ninitLimit=100\nsyncLimit=100\nforceSync=no\nminSessionTimeout=%d\nmaxSessionTimeout=%d\n",
	leastTimeout.Milliseconds(), embed.DefaultMaxSessionTimeout.Milliseconds())

// leastTimeout is the least session timeout of embedtest's ensembles.
const leastTimeout = 720 * time.Millisecond

// compare checks a transcript of Vivarium against the transcript that was recorded from ZooKeeper's
// servers. If ZooKeeper is installed, it also checks that its servers still give the recorded one.
// run makes a transcript.
func compare(t *testing.T, name string, run func(t *testing.T, s *system) string) {
	golden := filepath.Join("testdata", name+".golden")
	if *update {
		must(t, os.WriteFile(golden, []byte(run(t, startZooKeeper(t, 3))), 0o644))
	}
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel() // they wait more than they compute
		diff(t, golden, run(t, startZooKeeper(t, 3)))
	})
	t.Run("Vivarium", func(t *testing.T) {
		t.Parallel()
		diff(t, golden, run(t, startVivarium(t)))
	})
}

// diff reports the lines in which a text differs from a file, with the last title before them.
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

// apart returns the number of lines of each text after which the two continue alike.
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
