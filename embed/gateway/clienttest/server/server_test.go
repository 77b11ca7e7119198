//go:build unix

package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

const patience = testkit.Patience

// binary is the path of the program, built as it is shipped.
var binary string

func TestMain(m *testing.M) { os.Exit(child.Main(m, "../../../../cmd/vivarium", &binary)) }

var (
	must  = testkit.Must
	until = testkit.Until
)

var anyone = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// A client is a client of go-zookeeper, with the states that it reported.
type client struct {
	*zk.Conn
	mu      sync.Mutex
	expired bool
}

func connect(t *testing.T, addrs ...string) *client {
	t.Helper()
	c := &client{}
	conn, _, err := zk.Connect(addrs, 20*time.Second, zk.WithLogger(silent{}), zk.WithEventCallback(func(e zk.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.expired = c.expired || e.State == zk.StateExpired
	}))
	must(t, err)
	t.Cleanup(conn.Close)
	c.Conn = conn
	c.hasSession(t)
	return c
}

func (c *client) hasSession(t *testing.T) {
	t.Helper()
	until(t, "a session", func() bool { return c.State() == zk.StateHasSession })
}

// kept fails the test unless the client still has the session.
func (c *client) kept(t *testing.T, id int64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired || c.SessionID() != id {
		t.Fatalf("session %#x, was %#x; expired: %v", c.SessionID(), id, c.expired)
	}
}

// again calls fn until the connection answers. A lost connection answers nothing, and the call may
// have been applied.
func again(t *testing.T, what string, fn func() error) error {
	t.Helper()
	var err error
	until(t, what, func() bool {
		err = fn()
		return err != zk.ErrConnectionClosed && err != zk.ErrNoServer
	})
	return err
}

// owns checks that an ephemeral exists and belongs to a session, even if the client's member lags
// behind.
func owns(t *testing.T, c *client, path string, id int64) {
	t.Helper()
	var stat *zk.Stat
	var ok bool
	must(t, again(t, path, func() (err error) {
		if _, err = c.Sync(path); err == nil {
			ok, stat, err = c.Exists(path)
		}
		return err
	}))
	if !ok || stat.EphemeralOwner != id {
		t.Errorf("%s: %v %+v, want it of %#x", path, ok, stat, id)
	}
}

// An ensemble is three members in processes of their own.
type ensemble struct {
	t       *testing.T
	dir     string
	clients []string // the addresses of the gateways
	members []*child.Program
}

// secret is in every config, and must not appear in a log.
const secret = "super:c2VjcmV0LWRpZ2VzdC1vZi1zdXBlcg=="

func startEnsemble(t *testing.T) *ensemble {
	t.Helper()
	addrs, err := child.FreeAddrs(6)
	must(t, err)
	e := &ensemble{t: t, dir: t.TempDir(), clients: addrs[3:], members: make([]*child.Program, 3)}
	for i := range e.members {
		text := fmt.Sprintf("dir: member-%d\nid: %d\nmembers: {1: %q, 2: %q, 3: %q}\nensemble: test\ntick: 20ms\nmaxSessionTimeout: 1m\nsuperDigest: %q\ngateway: {listen: %q, words: [\"*\"]}\n",
			i+1, i+1, addrs[0], addrs[1], addrs[2], secret, e.clients[i])
		must(t, os.WriteFile(e.file(i), []byte(text), 0o644))
	}
	e.start(0, 1, 2)
	return e
}

func (e *ensemble) file(i int) string { return filepath.Join(e.dir, fmt.Sprintf("%d.yaml", i+1)) }

// start starts members and waits until they serve.
func (e *ensemble) start(members ...int) {
	e.t.Helper()
	for _, i := range members {
		e.members[i] = child.Run(e.t, e.dir, binary, "serve", "-v", "-config", e.file(i))
	}
	for _, i := range members {
		line := e.members[i].Says("msg=serving")
		if want := fmt.Sprintf("clients=%s member=%d shards=1", e.clients[i], i+1); !strings.Contains(line, want) {
			e.t.Errorf("%s: want %s", line, want)
		}
	}
	e.t.Cleanup(func() {
		for _, p := range e.members {
			if line := p.Line(secret); line != "" {
				e.t.Errorf("a secret is logged: %s", line)
			}
		}
	})
}

// kill kills members with SIGKILL, all at once.
func (e *ensemble) kill(members ...int) {
	for _, i := range members {
		e.members[i].Signal(syscall.SIGKILL)
	}
	for _, i := range members {
		e.members[i].ExitCode()
	}
}

// on returns the member that a client is connected to.
func (e *ensemble) on(c *client) int { return slices.Index(e.clients, c.Server()) }

// others returns the addresses of all members except one.
func (e *ensemble) others(i int) []string { return slices.Delete(slices.Clone(e.clients), i, i+1) }

// The member that a client is connected to is killed. Its session, ephemeral, watch and lock
// continue on another member.
func TestServe_MemberIsKilled(t *testing.T) {
	e := startEnsemble(t)
	e.survives(func(victim int) { e.kill(victim) })
}

// A member is stopped in an orderly way, with the same result, and its exit code is 0. A member
// that comes back without its directory joins as a new one.
func TestServe_MemberIsStopped(t *testing.T) {
	e := startEnsemble(t)
	var stopped int
	e.survives(func(victim int) {
		stopped = victim
		e.members[victim].Signal(syscall.SIGTERM)
		if code := e.members[victim].ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	must(t, os.RemoveAll(filepath.Join(e.dir, fmt.Sprintf("member-%d", stopped+1))))
	child.Run(t, e.dir, binary, "serve", "-config", e.file(stopped)).Says("member=4 shards=")
}

// survives lets a client hold everything that it can, ends its member, and checks that the client
// still has everything.
func (e *ensemble) survives(end func(victim int)) {
	t := e.t
	c := connect(t, e.clients...)
	victim, id := e.on(c), c.SessionID()
	witness := connect(t, e.others(victim)...)
	_, err := c.Create("/mine", nil, zk.FlagEphemeral, anyone)
	must(t, err)
	_, err = c.Create("/watched", nil, 0, anyone)
	must(t, err)
	_, _, changed, err := c.GetW("/watched")
	must(t, err)
	mine, theirs := zk.NewLock(c.Conn, "/lock", anyone), zk.NewLock(witness.Conn, "/lock", anyone)
	must(t, mine.Lock())
	got := make(chan error, 1)
	go func() { got <- theirs.Lock() }()
	until(t, "another contender", func() bool {
		names, _, err := witness.Children("/lock")
		return err == nil && len(names) == 2
	})

	end(victim)
	until(t, "a connection to another member", func() bool { return c.State() == zk.StateHasSession && e.on(c) != victim })
	c.kept(t, id)
	owns(t, witness, "/mine", id)
	must(t, again(t, "a write", func() error { _, err := witness.Set("/watched", []byte("x"), -1); return err }))
	select {
	case ev := <-changed:
		if ev.Type != zk.EventNodeDataChanged || ev.Path != "/watched" {
			t.Errorf("watch: %+v", ev)
		}
	case <-time.After(patience):
		t.Error("the watch delivered nothing")
	}
	select {
	case err := <-got:
		t.Fatalf("a lock that is held was granted: %v", err)
	default:
	}
	must(t, again(t, "an unlock", mine.Unlock))
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(patience):
		t.Fatal("a lock that is free is not granted")
	}
}

// All members are killed at once, while clients write. The clients keep their sessions and
// everything that was acknowledged.
func TestServe_AllAreKilled(t *testing.T) {
	e := startEnsemble(t)
	const clients = 6
	type worker struct {
		*client
		id    int64
		acked []string
	}
	workers := make([]*worker, clients)
	_, err := connect(t, e.clients...).Create("/w", nil, 0, anyone)
	must(t, err)
	stop := make(chan struct{})
	var enough, all sync.WaitGroup
	for i := range workers {
		w := &worker{client: connect(t, e.clients[i%3], e.clients[(i+1)%3], e.clients[(i+2)%3])}
		w.id = w.SessionID()
		workers[i] = w
		_, err := w.Create(fmt.Sprintf("/e%d", i), nil, zk.FlagEphemeral, anyone)
		must(t, err)
		enough.Add(1)
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path := fmt.Sprintf("/w/%d-%d", i, n)
				if _, err := w.Create(path, []byte(path), 0, anyone); err == nil {
					w.acked = append(w.acked, path)
				} else if n < 50 {
					t.Errorf("%s: %v", path, err)
				}
				if n == 50 {
					enough.Done()
				}
			}
		})
	}
	enough.Wait()
	e.kill(0, 1, 2)
	close(stop)
	e.start(0, 1, 2)
	all.Wait()
	for i, w := range workers {
		w.hasSession(t)
		w.kept(t, w.id)
		for _, path := range w.acked {
			var data []byte
			must(t, again(t, path, func() (err error) { data, _, err = w.Get(path); return err }))
			if string(data) != path {
				t.Errorf("%s has %q", path, data)
			}
		}
		w.kept(t, w.id)
		owns(t, workers[(i+1)%clients].client, fmt.Sprintf("/e%d", i), w.id)
	}
	// A closed session still ends.
	workers[0].Close()
	until(t, "the end of its ephemeral", func() bool {
		ok, _, err := workers[1].Exists("/e0")
		return err == nil && !ok
	})
	e.kill(0, 1, 2)
	for i := range e.members {
		out, err := exec.Command(binary, "check", filepath.Join(e.dir, fmt.Sprintf("member-%d", i+1))).CombinedOutput()
		if err != nil || !strings.Contains(string(out), `of the ensemble "test"`) {
			t.Errorf("check of member %d, which was killed: %v\n%s", i+1, err, out)
		}
	}
}
