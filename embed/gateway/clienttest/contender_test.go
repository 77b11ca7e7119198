package clienttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
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
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// A contender waits for a share of what a path offers, in the process or as a remote client. A
// contender that wants all of it excludes all others.
type contender struct {
	who     string
	weight  int // how much it wants
	acquire func() error
	release func() error
	hold    func() hold // nil for clients

	// change, if not nil, changes the weight of a contender that is in. From then on it has weight
	// to, and during the change at most between. It returns false if the change was not possible.
	change      func() (bool, error)
	between, to int
	most        int // the most turns that it takes; 0 means no limit
}

// A hold is what a caller holds: a lock.Hold, or an election.Leadership.
type hold interface {
	Err() error
	Token() lock.Token
}

// caller returns a contender in the process.
func caller[H hold](t *testing.T, weight int, acquire func(context.Context) (H, error), release func(H) error) contender {
	return callerWith(t, new(H), weight, acquire, release)
}

// callerWith returns a caller whose hold other functions can read.
func callerWith[H hold](t *testing.T, held *H, weight int, acquire func(context.Context) (H, error), release func(H) error) contender {
	return contender{
		who: "a caller", weight: weight,
		acquire: func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			*held, err = acquire(ctx)
			return err
		},
		release: func() error {
			if err := (*held).Err(); err != nil {
				return fmt.Errorf("it is lost: %w", err)
			}
			return release(*held)
		},
		hold: func() hold { return *held },
	}
}

// mutex returns a caller that locks a mutex.
func (e *ensemble) mutex(s *embed.Session, path string) contender {
	return caller(e.t, 1, lock.NewMutex(s, path).Lock, (*lock.Hold).Release)
}

// multi returns a caller that also locks another path.
func (e *ensemble) multi(s *embed.Session, path string) contender {
	return caller(e.t, 1, lock.NewMulti(s, path, path+"-too").Lock, (*lock.Hold).Release)
}

// keepers returns n callers that share a lock that their process keeps.
func (e *ensemble) keepers(n int, s *embed.Session, path string) (list []contender) {
	m := lock.NewMutex(s, path).With(lock.Options{Keep: 2 * time.Millisecond})
	for range n {
		list = append(list, caller(e.t, 1, m.Lock, (*lock.Hold).Release))
	}
	return list
}

// reader returns a caller that acquires the read lock.
func (e *ensemble) reader(s *embed.Session, path string) contender {
	return caller(e.t, 1, lock.NewRWMutex(s, path).RLock, (*lock.Hold).Release)
}

// writer returns a caller that acquires the write lock.
func (e *ensemble) writer(s *embed.Session, path string) contender {
	return caller(e.t, allOfIt, lock.NewRWMutex(s, path).Lock, (*lock.Hold).Release)
}

// downgrader returns a writer that becomes a reader.
func (e *ensemble) downgrader(s *embed.Session, path string) contender {
	m := lock.NewRWMutex(s, path)
	return changing(e.t, allOfIt, m.Lock, 1, m.Downgrade)
}

// upgrader returns a reader that becomes a writer, unless another does.
func (e *ensemble) upgrader(s *embed.Session, path string) contender {
	m := lock.NewRWMutex(s, path)
	return changing(e.t, 1, m.RLock, allOfIt, m.Upgrade)
}

func changing(t *testing.T, weight int, acquire func(context.Context) (*lock.Hold, error), to int, change func(context.Context, *lock.Hold) (*lock.Hold, error)) contender {
	held := new(*lock.Hold)
	c := callerWith(t, held, weight, acquire, (*lock.Hold).Release)
	c.between, c.to = min(weight, to), to
	c.change = func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		next, err := change(ctx, *held)
		if errors.Is(err, lock.ErrUpgrade) {
			return false, nil
		}
		if err == nil && next.Token().Compare((*held).Token()) <= 0 {
			err = fmt.Errorf("token %v after %v", next.Token(), (*held).Token())
		}
		if err == nil {
			*held = next
		}
		return err == nil, err
	}
	return c
}

// permits returns a function that makes callers which acquire n of a semaphore's permits.
func (e *ensemble) permits(n, limit int) func(*embed.Session, string) contender {
	return func(s *embed.Session, path string) contender {
		acquire := func(ctx context.Context) (*lock.Hold, error) {
			return lock.NewSemaphore(s, path, limit).Acquire(ctx, n)
		}
		return caller(e.t, n, acquire, (*lock.Hold).Release)
	}
}

// candidate returns a caller that campaigns.
func (e *ensemble) candidate(s *embed.Session, path string) contender {
	campaign := func(ctx context.Context) (*election.Leadership, error) {
		return election.New(s, path).Campaign(ctx, []byte(aCaller))
	}
	return caller(e.t, 1, campaign, (*election.Leadership).Resign)
}

const aCaller = "a caller" // published by candidates that stay in their place until they lead

// preferred returns a candidate that goes ahead of others.
func (e *ensemble) preferred(s *embed.Session, path string) contender {
	campaign := func(ctx context.Context) (*election.Leadership, error) {
		c, err := election.New(s, path).Enter(ctx, nil, election.Options{Priority: 7})
		if err != nil {
			return nil, err
		}
		return c.Wait(ctx)
	}
	c := caller(e.t, 1, campaign, (*election.Leadership).Resign)
	c.most = 50 // two of them could keep all others out for ever
	return c
}

// returner returns a leader that stands for election again.
func (e *ensemble) returner(s *embed.Session, path string) contender {
	held := new(*election.Leadership)
	campaign := func(ctx context.Context) (*election.Leadership, error) {
		return election.New(s, path).Campaign(ctx, []byte(aCaller))
	}
	c := callerWith(e.t, held, 1, campaign, (*election.Leadership).Resign)
	c.between, c.to = 0, 1
	c.change = func() (bool, error) {
		ctx, cancel := context.WithTimeout(e.t.Context(), patience)
		defer cancel()
		candidate, err := (*held).Requeue(ctx)
		if err != nil {
			return false, err
		}
		*held, err = candidate.Wait(ctx)
		return err == nil, err
	}
	return c
}

// transferrer returns a leader that transfers the leadership to the last caller in the queue, past
// all others.
func (e *ensemble) transferrer(s *embed.Session, path string) contender {
	who, held := election.New(s, path), new(*election.Leadership)
	campaign := func(ctx context.Context) (*election.Leadership, error) { return who.Campaign(ctx, nil) }
	c := callerWith(e.t, held, 1, campaign, (*election.Leadership).Resign)
	c.change = func() (bool, error) {
		ctx, cancel := context.WithTimeout(e.t.Context(), patience)
		defer cancel()
		all, err := who.Candidates(ctx)
		if err != nil {
			return false, err
		}
		for _, to := range slices.Backward(all) {
			if string(to.Value) == aCaller {
				return true, (*held).Transfer(ctx, to.Path)
			}
		}
		return true, (*held).Resign()
	}
	return c
}

// latched returns a caller that leads when a Latch on a member leads.
func (e *ensemble) latched(on embed.MemberID, path string) contender {
	var latch *election.Latch
	acquire := func(ctx context.Context) (*election.Leadership, error) {
		latch = election.NewLatch(e.Node(on), path, nil, election.Options{})
		for leads := range latch.Changes(ctx) {
			if leads != nil {
				return leads, nil
			}
		}
		return nil, errors.Join(latch.Close(), ctx.Err())
	}
	return caller(e.t, 1, acquire, func(*election.Leadership) error { return latch.Close() })
}

// goClient returns a contender of go-zookeeper.
func (e *ensemble) goClient(on embed.MemberID, path string) contender {
	l := zk.NewLock(e.connect(on).Conn, path, anyone)
	return contender{who: "go-zookeeper", weight: 1, acquire: l.Lock, release: l.Unlock}
}

// A process has contenders. It reads and writes lines, each of which belongs to one contender.
type process struct {
	who   string
	cmd   *exec.Cmd
	ready chan struct{}

	mu      sync.Mutex // also held to write to in
	in      io.Writer
	answers []chan string
	killed  bool
}

// start starts a process, which ends with the test, and waits until its clients are connected.
func (e *ensemble) start(who string, cmd *exec.Cmd) *process {
	e.t.Helper()
	in, err := cmd.StdinPipe()
	must(e.t, err)
	out, err := cmd.StdoutPipe()
	must(e.t, err)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	must(e.t, cmd.Start())
	p := &process{who: who, cmd: cmd, ready: make(chan struct{}), in: in}
	var reader sync.WaitGroup
	reader.Go(func() {
		lines := bufio.NewScanner(out)
		if lines.Scan() && lines.Text() == "ready" {
			close(p.ready)
		}
		for lines.Scan() {
			if !p.told(lines.Text()) {
				e.t.Errorf("%s says %q", who, lines.Text())
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, ch := range p.answers {
			close(ch)
		}
	})
	e.t.Cleanup(func() {
		_ = in.Close()
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		reader.Wait()
		if err := cmd.Wait(); err != nil && !p.killed {
			e.t.Errorf("%s: %v\n%s", who, err, complaints.String())
		}
	})
	select {
	case <-p.ready:
	case <-time.After(3 * patience): // a JVM that compiles first, while many tests run at once
		e.t.Fatalf("%s does not start", who)
	}
	return p
}

// told passes a line to its contender.
func (p *process) told(line string) bool {
	who, what, _ := strings.Cut(line, " ")
	i, err := strconv.Atoi(who)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || i >= len(p.answers) {
		return false
	}
	p.answers[i] <- what
	return true
}

func (p *process) kill() error {
	p.killed = true
	return p.cmd.Process.Kill()
}

// contender returns a new contender of the process, which acquires what a recipe of a path offers.
func (p *process) contender(weight int, what, path string) contender {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.answers)
	p.answers = append(p.answers, make(chan string, 1))
	return contender{
		who: p.who, weight: weight,
		acquire: func() error { return p.do(i, what+" "+path, "held") },
		release: func() error { return p.do(i, "end", "free") },
	}
}

// do lets a contender do something, and waits until it is done.
func (p *process) do(i int, what, done string) error {
	p.mu.Lock()
	answer := p.answers[i]
	_, err := fmt.Fprintln(p.in, i, what)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case got := <-answer:
		if got != done {
			return fmt.Errorf("%q to %s", got, what)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("nothing to %s", what)
	}
}

// spread returns the member of the i-th contender. The first one is on the second member.
func (e *ensemble) spread(i int) embed.MemberID { return e.Members()[(i+1)%3] }

// clients returns the arguments of a program whose clients have sessions with a timeout, each on
// one of the members.
func (e *ensemble) clients(timeout time.Duration, members []embed.MemberID) []string {
	var addrs []string
	for _, id := range members {
		addrs = append(addrs, e.addrs[id])
	}
	return []string{strconv.FormatInt(timeout.Milliseconds(), 10), strings.Join(addrs, ",")}
}

// sessionTimeout is the timeout of clients that do not die. A busy machine can keep a member, for a
// third of a short timeout, from showing clients that it is alive, or the member ends their
// connections.
const sessionTimeout = 20 * time.Second

// kazoo starts contenders of kazoo.
func (e *ensemble) kazoo(python string, timeout time.Duration, members ...embed.MemberID) *process {
	e.t.Helper()
	return e.start("kazoo", exec.Command(python, append([]string{"testdata/lock_kazoo.py"}, e.clients(timeout, members)...)...))
}

// curator starts contenders of Curator.
func (e *ensemble) curator(run func(args ...string) *exec.Cmd, timeout time.Duration, members ...embed.MemberID) *process {
	e.t.Helper()
	return e.start("Curator", run(e.clients(timeout, members)...))
}

// curator returns a function that starts a program with Curator's classes and those of further jars.
func curator(t *testing.T, file string, more ...string) func(args ...string) *exec.Cmd {
	t.Helper()
	jars := append([]string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar", "guava.jar"}, more...)
	testkit.ByNight(t, "it needs Java")
	// java needs javac's classes to run a source file
	if _, err := exec.LookPath("javac"); err != nil || !zookeeper.Installed(jars...) {
		t.Skip("there is no Curator: the Debian packages are zookeeper, libcurator-recipes-java, libcurator-discovery-java and default-jdk-headless")
	}
	jars = append(jars, "failureaccess*.jar") // older packages of guava contain it
	return func(args ...string) *exec.Cmd { return zookeeper.Java(jars, append([]string{file}, args...)...) }
}
