package clienttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A contender waits for one path's lock, in the process or as a client.
type contender struct {
	who    string
	lock   func() error
	unlock func() error
	hold   func() *lock.Hold // nil for clients
}

// inProcess is a contender with a session on a member.
func (e *ensemble) inProcess(path string, on embed.MemberID) contender {
	m := lock.NewMutex(e.Session(on, embed.SessionOptions{}), path)
	var hold *lock.Hold
	return contender{
		who: "a caller",
		lock: func() (err error) {
			hold, err = m.Lock(e.t.Context())
			return err
		},
		unlock: func() error { return hold.Release() },
		hold:   func() *lock.Hold { return hold },
	}
}

// goClient is a contender of go-zookeeper's.
func (e *ensemble) goClient(path string, on embed.MemberID) contender {
	l := zk.NewLock(e.connect(on).Conn, path, anyone)
	return contender{who: "go-zookeeper", lock: l.Lock, unlock: l.Unlock}
}

// kazoo returns contenders of kazoo's, spread over the members.
func (e *ensemble) kazoo(path string, n int) (list []contender) {
	e.t.Helper()
	p := e.process(n, exec.Command(python(e.t), "testdata/lock_kazoo.py", path, e.spreadAddrs(n)))
	for i := range n {
		list = append(list, p.contender("kazoo", i))
	}
	return list
}

// A process holds locks on behalf of contenders, each of which is told on a line of its own.
type process struct {
	answers []chan string

	mu sync.Mutex // held to write to in
	in io.Writer
}

// process starts one, which ends with the test.
func (e *ensemble) process(n int, cmd *exec.Cmd) *process {
	e.t.Helper()
	in, err := cmd.StdinPipe()
	must(e.t, err)
	out, err := cmd.StdoutPipe()
	must(e.t, err)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	must(e.t, cmd.Start())
	p := &process{in: in, answers: make([]chan string, n)}
	for i := range p.answers {
		p.answers[i] = make(chan string, 1)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			who, what, _ := strings.Cut(lines.Text(), " ")
			i, err := strconv.Atoi(who)
			if err != nil || i >= n {
				e.t.Errorf("%s says %q", cmd.Path, lines.Text())
				continue
			}
			p.answers[i] <- what
		}
		for _, ch := range p.answers {
			close(ch)
		}
	})
	e.t.Cleanup(func() {
		_ = in.Close()
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		reader.Wait()
		if err := cmd.Wait(); err != nil {
			e.t.Errorf("%s: %v\n%s", cmd.Path, err, complaints.String())
		}
	})
	return p
}

func (p *process) contender(who string, i int) contender {
	return contender{who: who, lock: func() error { return p.do(i, "lock", "held") }, unlock: func() error { return p.do(i, "unlock", "free") }}
}

// do has a contender do something, and waits until it has.
func (p *process) do(i int, what, done string) error {
	p.mu.Lock()
	_, err := fmt.Fprintln(p.in, i, what)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case got := <-p.answers[i]:
		if got != done {
			return fmt.Errorf("%q to %s", got, what)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("nothing to %s", what)
	}
}

// spreadAddrs are where n clients find the members that they are spread over.
func (e *ensemble) spreadAddrs(n int) string {
	var addrs []string
	for i := range min(n, 3) {
		addrs = append(addrs, e.addrs[e.spread(i)])
	}
	return strings.Join(addrs, ",")
}

// spread is the member of the i-th of many, the second first.
func (e *ensemble) spread(i int) embed.MemberID { return e.Members()[(i+1)%3] }

// curator returns how to start a program that uses Curator.
func curator(t *testing.T, file string) func(args ...string) *exec.Cmd {
	t.Helper()
	jars := []string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar", "guava.jar", "failureaccess.jar"}
	run := func(args ...string) *exec.Cmd {
		cmd, _ := java(jars, append([]string{file}, args...)...)
		return cmd
	}
	_, installed := java(jars)
	_, err := exec.LookPath("javac") // whose classes java needs to run a file
	if _, missing := os.Stat(filepath.Join(javaDir, jars[0])); !installed || err != nil || missing != nil {
		t.Skip("there is no Curator: the Debian packages are zookeeper, libcurator-recipes-java and default-jdk-headless")
	}
	return run
}

// curator returns contenders of Curator's, spread over the members.
func (e *ensemble) curator(run func(args ...string) *exec.Cmd, path string, n int) (list []contender) {
	e.t.Helper()
	p := e.process(n, run(path, e.spreadAddrs(n)))
	for i := range n {
		list = append(list, p.contender("Curator", i))
	}
	return list
}

// A LeaderLatch of Curator's and callers' elections on one path have one leader, in order of arrival.
func TestElectionIsSharedWithCurator(t *testing.T) {
	run := curator(t, "testdata/Curator.java")
	e := startEnsemble(t)
	p := e.process(2, run("/leader", e.spreadAddrs(2)))
	must(t, p.do(0, "lead", "leads"))
	mine := election.New(e.Session(1, embed.SessionOptions{}), "/leader")
	witness := e.connect(1)
	queued := func(n int) {
		e.Until("a candidate in the queue", func() bool {
			names, _, err := witness.Children("/leader")
			return err == nil && len(names) == n
		})
	}
	queued(1)
	led := make(chan *election.Leadership)
	go func() {
		l, err := mine.Campaign(t.Context(), []byte("mine"))
		if err != nil {
			t.Error(err)
		}
		led <- l
	}()
	queued(2)
	third := make(chan error)
	go func() { third <- p.do(1, "lead", "leads") }()
	queued(3)
	now, err := mine.Leader(t.Context())
	must(t, err)
	if string(now.Value) != "0" {
		t.Errorf("%q leads", now.Value)
	}
	must(t, p.do(0, "resign", "resigned"))
	l := <-led
	if l.Token().Compare(now.Token) <= 0 {
		t.Errorf("token %v after %v", l.Token(), now.Token)
	}
	must(t, l.Resign())
	must(t, <-third)
	must(t, p.do(1, "resign", "resigned"))
}

// Locks of a path are shared by callers in the process, go-zookeeper's clients, and kazoo's or Curator's, eight of each.
func TestLocks(t *testing.T) {
	const path, each = "/shared", 8
	both := func(e *ensemble, list []contender) []contender { // callers come last
		for _, one := range []func(string, embed.MemberID) contender{e.goClient, e.inProcess} {
			for i := range each {
				list = append(list, one(path, e.spread(i)))
			}
		}
		return list
	}
	all := func(t *testing.T, e *ensemble, list []contender) {
		t.Run("exclusive", func(t *testing.T) { exclusive(t, list) })
		t.Run("fair", func(t *testing.T) { fair(t, e, list) })
		t.Run("fenced", func(t *testing.T) { fenced(t, e, list[0]) })
	}
	t.Run("go-zookeeper", func(t *testing.T) {
		e := startEnsemble(t)
		all(t, e, both(e, nil))
	})
	t.Run("kazoo", func(t *testing.T) {
		python(t)
		e := startEnsemble(t)
		all(t, e, both(e, e.kazoo(path, each)))
	})
	t.Run("Curator", func(t *testing.T) {
		run := curator(t, "testdata/Curator.java")
		e := startEnsemble(t)
		all(t, e, both(e, e.curator(run, path, each)))
	})
}

// exclusive: nobody holds the lock beside another, and each gets it.
func exclusive(t *testing.T, list []contender) {
	const turns = 3
	var inside sync.Mutex // held by whoever holds the lock: it must be free
	var all sync.WaitGroup
	for _, c := range list {
		all.Go(func() {
			for range turns {
				if err := c.lock(); err != nil {
					t.Errorf("%s: %v", c.who, err)
					return
				}
				if inside.TryLock() {
					for range 100 { // the others have time to come in, if they can
						runtime.Gosched()
					}
					inside.Unlock()
				} else {
					t.Errorf("%s has the lock beside another", c.who)
				}
				if err := c.unlock(); err != nil {
					t.Errorf("%s: %v", c.who, err)
				}
			}
		})
	}
	all.Wait()
}

// fair: who came first is served first, and the tokens of callers grow, whoever was served between.
func fair(t *testing.T, e *ensemble, list []contender) {
	// A caller has the lock; the kinds take turns in the queue behind it.
	first := list[len(list)-1]
	must(t, first.lock())
	var rest []contender
	for kinds := split(list[:len(list)-1]); len(kinds) > 0; {
		for i, k := range kinds {
			rest, kinds[i] = append(rest, k[0]), k[1:]
		}
		kinds = slices.DeleteFunc(kinds, func(k []contender) bool { return len(k) == 0 })
	}
	witness := e.connect(1)
	var mu sync.Mutex
	var order []int
	var last lock.Token
	served := func(who int, c contender) { // and still the one who holds the lock
		mu.Lock()
		defer mu.Unlock()
		order = append(order, who)
		if c.hold == nil {
			return
		}
		if now := c.hold().Token(); now.Compare(last) <= 0 {
			t.Errorf("token %v after %v", now, last)
		} else {
			last = now
		}
	}
	served(0, first)
	var all sync.WaitGroup
	for i, c := range rest {
		all.Go(func() {
			if err := c.lock(); err != nil {
				t.Errorf("%s: %v", c.who, err)
				return
			}
			served(i+1, c)
			if err := c.unlock(); err != nil {
				t.Errorf("%s: %v", c.who, err)
			}
		})
		e.Until("a contender in the queue", func() bool {
			names, _, err := witness.Children("/shared")
			return err == nil && len(names) == i+2
		})
	}
	must(t, first.unlock())
	all.Wait()
	if !slices.IsSorted(order) || len(order) != len(rest)+1 {
		t.Errorf("served in the order %v", order)
	}
}

// split puts contenders of each kind together.
func split(list []contender) (kinds [][]contender) {
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(c contender) bool { return c.who != list[0].who })
		if n < 0 {
			n = len(list)
		}
		kinds, list = append(kinds, list[:n]), list[n:]
	}
	return kinds
}

// fenced: a caller is cut off, its contender is taken away, and a client that is not on its member has the lock. The caller believes in
// its Hold still, and yet nothing is written under it: neither by its own node when it is back nor by another.
func fenced(t *testing.T, e *ensemble, client contender) {
	mine, other := e.Session(1, embed.SessionOptions{Timeout: time.Minute}), e.Session(2, embed.SessionOptions{Timeout: time.Minute})
	_, err := other.Create(t.Context(), "/data", nil, embed.Persistent)
	must(t, err)
	hold, err := lock.NewMutex(mine, "/shared").Lock(t.Context())
	must(t, err)
	e.MoveLeader(3)
	e.Isolate(1)
	_, err = other.Multi(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("held"), embed.AnyVersion))
	must(t, err)
	must(t, other.Delete(t.Context(), hold.Path(), embed.AnyVersion))
	must(t, client.lock())
	if hold.Err() != nil {
		t.Errorf("the hold has ended by its own clock: %v", hold.Err())
	}
	_, err = other.Multi(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("another's"), embed.AnyVersion))
	is(t, "a write by another session", err, embed.ErrNotHeld)
	late := mine.Submit(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("late"), embed.AnyVersion))
	e.HealAll()
	_, err = late.Result()
	is(t, "a write from where it was cut off", err, embed.ErrNotHeld)
	must(t, client.unlock())
	next, err := lock.NewMutex(other, "/shared").Lock(t.Context())
	must(t, err)
	if next.Token().Compare(hold.Token()) <= 0 {
		t.Errorf("token %v after %v", next.Token(), hold.Token())
	}
	_, err = other.Multi(t.Context(), lock.Guard(next), embed.OpSet("/data", []byte("next"), embed.AnyVersion))
	must(t, err)
}
