//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/internal/child"
)

var anyone = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// A client is one of go-zookeeper's, and what it was told of its session.
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

// again asks until the answer is one: a connection that is lost answers nothing, and what it was asked may have been done.
func again(t *testing.T, what string, fn func() error) error {
	t.Helper()
	var err error
	until(t, what, func() bool {
		err = fn()
		return err != zk.ErrConnectionClosed && err != zk.ErrNoServer
	})
	return err
}

// owns checks that an ephemeral is there and of a session, also for who is connected to a member that is behind.
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

// Two lines are a server. It serves, stops when it is told to, and has everything when it comes again.
func TestServe_TwoLines(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	start := func() (p *process, addr string) {
		p = spawn(t, dir, "serve", "-config", "node.yaml")
		line := p.says("msg=serving")
		m := regexp.MustCompile(`clients=(\S+) member=1 shards=1$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatal(line)
		}
		if data := filepath.Join(dir, "data"); !strings.Contains(p.line("msg=starting"), "dir="+data+" ") && !strings.HasSuffix(p.line("msg=starting"), "dir="+data) {
			t.Errorf("it does not say where its data is: %s", p.line("msg=starting"))
		}
		return p, m[1]
	}
	p, addr := start()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	_, err = conn.Write([]byte("srvr"))
	must(t, err)
	answer, err := io.ReadAll(conn)
	must(t, err)
	if !strings.HasPrefix(string(answer), "Zookeeper version: ") || !strings.Contains(string(answer), "\nMode: standalone\n") {
		t.Errorf("srvr: %s", answer)
	}
	_, err = connect(t, addr).Create("/a", []byte("one"), 0, anyone)
	must(t, err)

	data := filepath.Join(dir, "data")
	if code, _, stderr := vivarium("check", data); code != exitUsage || !strings.Contains(stderr, "in use") {
		t.Errorf("check of a member that runs: %d, %s", code, stderr)
	}
	second := spawn(t, dir, "serve", "-config", "node.yaml")
	if code := second.code(); code != exitFailed || second.line("in use") == "" {
		t.Errorf("a second one: %d\n%s", code, strings.Join(second.log, "\n"))
	}

	p.signal(syscall.SIGTERM)
	if code := p.code(); code != exitOK || p.line("msg=stopped") == "" {
		t.Errorf("SIGTERM: %d\n%s", code, strings.Join(p.log, "\n"))
	}
	if code, stdout, stderr := vivarium("check", data); code != exitOK {
		t.Errorf("check: %d\n%s%s", code, stdout, stderr)
	}
	p, addr = start()
	got, _, err := connect(t, addr).Get("/a")
	if string(got) != "one" || err != nil {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	p.signal(syscall.SIGINT)
	if code := p.code(); code != exitOK {
		t.Errorf("SIGINT: %d", code)
	}
}

func TestServe_PortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), fmt.Appendf(nil, "dir: data\ngateway: {listen: %q}\n", l.Addr()), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml", "-log", "json")
	if code := p.code(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	last := p.log[len(p.log)-1]
	var line struct{ Level, Msg, Cause string }
	if err := json.Unmarshal([]byte(last), &line); err != nil || line.Level != "ERROR" || !strings.Contains(line.Cause, l.Addr().String()+": bind: address already in use") {
		t.Errorf("%v: %s", err, last)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("the directory is founded, with all that is fixed then")
	}
}

func TestServe_CheckOnly(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.WriteFile("node.yaml", []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	if code, stdout, stderr := vivarium("serve", "-config", "node.yaml", "-check"); code != exitOK || stdout != "node.yaml: ok\n" || stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 1 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

// One file serves all members: each process is told its id beside it.
func TestServe_IDBesideTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		file, id string
		want     string // of standard error, if it is not ok
	}{
		{"", "2", ""},
		{"id: 1", "2", ""},
		{"", "", "node.yaml: id is 0 or left out"},
		{"", "4", "node.yaml: id is 4, which is none of the members 1, 2, 3"},
		{"id: 2", "0", "invalid value \"0\" for flag -id: ids begin at 1"},
		{"", "vivarium-0", "invalid value \"vivarium-0\" for flag -id"},
	} {
		must(t, os.WriteFile("node.yaml", []byte(c.file+`
dir: data
members: {1: "a:1", 2: "b:1", 3: "c:1"}
gateway: {listen: 127.0.0.1:0}
`), 0o644))
		args := []string{"serve", "-config", "node.yaml", "-check"}
		if c.id != "" {
			args = append(args, "-id", c.id)
		}
		code, _, stderr := vivarium(args...)
		if ok := c.want == ""; ok != (code == exitOK) || !strings.Contains(stderr, c.want) {
			t.Errorf("%q with -id %q: %d %s", c.file, c.id, code, stderr)
		}
	}
	must(t, os.WriteFile("node.yaml", []byte("id: 1\nmembers: {1: \"a:1\", 2: \"b:1\"}\n"), 0o644))
	if c, _ := readConfig("node.yaml", 2); c.ID != 2 {
		t.Errorf("the id is %d, want that of the flag, 2", c.ID)
	}
}

// Both signals wait until the process goes on: the second one is there before it can be closed.
func TestServe_SecondSignal(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	p.says("msg=serving")
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT} {
		p.signal(s)
	}
	if code := p.code(); code != exitFailed || p.line("ended at once") == "" || p.line("msg=stopped") != "" {
		t.Errorf("%d\n%s", code, strings.Join(p.log, "\n"))
	}
}

// One that is sent twice in a moment, as timeout(1) does, is no second one.
func TestServe_EchoOfASignal(t *testing.T) {
	for _, c := range []struct {
		second syscall.Signal
		after  time.Duration
		echo   bool
	}{{syscall.SIGTERM, time.Millisecond, true}, {syscall.SIGTERM, time.Second, false}, {syscall.SIGINT, time.Millisecond, false}} {
		if isEcho(syscall.SIGTERM, c.second, c.after) != c.echo {
			t.Errorf("%v after %v: want %v", c.second, c.after, c.echo)
		}
	}
	timeout, err := exec.LookPath("timeout")
	if err != nil {
		t.Skip("there is no timeout(1)")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	at := func(out, line string) time.Time {
		t.Helper()
		m := regexp.MustCompile(`(?m)^time=(\S+) .*` + line).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("there is no %q:\n%s", line, out)
		}
		when, err := time.Parse(time.RFC3339, m[1])
		must(t, err)
		return when
	}
	for range 3 { // of 20 such ends 12 were taken for a wish to end at once
		cmd := exec.Command(timeout, "0.5", binary, "serve", "-config", "node.yaml")
		cmd.Dir = dir
		raw, _ := cmd.CombinedOutput() // the exit code is timeout's
		out := string(raw)
		if !strings.Contains(out, "ended at once") {
			continue
		}
		// A machine that is busy may have it read the second one as late as somebody's who means it.
		if after := at(out, "ended at once").Sub(at(out, "msg=stopping")); isEcho(syscall.SIGTERM, syscall.SIGTERM, after) {
			t.Errorf("after %v: %s", after, out)
		}
	}
}

// An ensemble is three members in processes of their own.
type ensemble struct {
	t       *testing.T
	dir     string
	clients []string // where the gateways listen
	members []*process
}

// secret is in all the configs, and may be in no log.
const secret = "super:c2VjcmV0LWRpZ2VzdC1vZi1zdXBlcg=="

func startEnsemble(t *testing.T) *ensemble {
	t.Helper()
	addrs, err := child.FreeAddrs(6)
	must(t, err)
	e := &ensemble{t: t, dir: t.TempDir(), clients: addrs[3:], members: make([]*process, 3)}
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
		e.members[i] = spawn(e.t, e.dir, "serve", "-v", "-config", e.file(i))
	}
	for _, i := range members {
		line := e.members[i].says("msg=serving")
		if want := fmt.Sprintf("clients=%s member=%d shards=1", e.clients[i], i+1); !strings.Contains(line, want) {
			e.t.Errorf("%s: want %s", line, want)
		}
	}
	e.t.Cleanup(func() {
		for _, p := range e.members {
			if line := p.line(secret); line != "" {
				e.t.Errorf("a secret is logged: %s", line)
			}
		}
	})
}

// kill ends members with a signal that nothing can be done about, at once.
func (e *ensemble) kill(members ...int) {
	for _, i := range members {
		e.members[i].signal(syscall.SIGKILL)
	}
	for _, i := range members {
		e.members[i].code()
	}
}

// on is the member that a client is connected to.
func (e *ensemble) on(c *client) int { return slices.Index(e.clients, c.Server()) }

// others returns where the members but one listen.
func (e *ensemble) others(i int) []string { return slices.Delete(slices.Clone(e.clients), i, i+1) }

// The member that a client is connected to is killed: its session, ephemeral, watch and lock go on at another.
func TestServe_MemberIsKilled(t *testing.T) {
	e := startEnsemble(t)
	e.survives(func(victim int) { e.kill(victim) })
}

// A member that is stopped in good order: the same, and it ends with 0. One that comes back without its directory is refused, and ends
// with 1.
func TestServe_MemberIsStopped(t *testing.T) {
	e := startEnsemble(t)
	var stopped int
	e.survives(func(victim int) {
		stopped = victim
		e.members[victim].signal(syscall.SIGTERM)
		if code := e.members[victim].code(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
	})
	must(t, os.RemoveAll(filepath.Join(e.dir, fmt.Sprintf("member-%d", stopped+1))))
	p := spawn(t, e.dir, "serve", "-config", e.file(stopped))
	if code := p.code(); code != exitFailed || p.line("must not vote as its old self") == "" {
		t.Errorf("without its directory: exit code %d\n%s", code, strings.Join(p.log, "\n"))
	}
}

// survives lets a client hold all that it can, ends its member, and looks whether it has it still.
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
		t.Error("the watch was not told")
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

// All members are killed at once, while clients write. The clients stay, and so does all that they have and were told was done.
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
	// An end is still one.
	workers[0].Close()
	until(t, "the end of its ephemeral", func() bool {
		ok, _, err := workers[1].Exists("/e0")
		return err == nil && !ok
	})
	e.kill(0, 1, 2)
	for i := range e.members {
		if code, stdout, stderr := vivarium("check", filepath.Join(e.dir, fmt.Sprintf("member-%d", i+1))); code != exitOK || !strings.Contains(stdout, `of the ensemble "test"`) {
			t.Errorf("check of member %d, which was killed: %d\n%s%s", i+1, code, stdout, stderr)
		}
	}
}
