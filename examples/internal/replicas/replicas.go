// Package replicas runs an example as three processes on this machine, each of which embeds one
// member of an ensemble. A service needs nothing of this: something else starts its processes, and
// their directories and addresses stay.
package replicas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// number is how many processes there are.
const number = 3

// The ports are below the ranges that systems use for outgoing connections. Such a connection could
// occupy the port of a member that is about to start again.
const portFirst, portLast = 20000, 29999

// variable is the environment variable with the replica that a process is.
const variable = "VIVARIUM_EXAMPLE_REPLICA"

// A replica is what the parent tells a process.
type replica struct {
	ID       embed.MemberID
	Dir      string
	Ensemble string
	Members  map[embed.MemberID]string
}

// Serve runs this process if it is one of the three, until its parent ends, and reports whether it
// is one.
func Serve(serve func(context.Context, embed.Config) error) (mine bool, err error) {
	text := os.Getenv(variable)
	if text == "" {
		return false, nil
	}
	var r replica
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return true, fmt.Errorf("%s: %w", variable, err)
	}
	signal.Ignore(os.Interrupt) // a terminal sends it to all processes, and the parent ends them in order
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or ends
		cancel()
	}()
	err = serve(ctx, embed.Config{ID: r.ID, Dir: r.Dir, Ensemble: r.Ensemble, Members: r.Members, Logger: slog.New(slog.DiscardHandler)})
	if ctx.Err() != nil {
		return true, nil
	}
	return true, err
}

// A process is one that runs.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when all that it printed was read
}

// Run runs this program as three processes until ctx ends, and copies what they print. At the time
// of kill it kills the process that was the last to print that it leads. It starts that one again at
// the time of again. Nil channels never do.
func Run(ctx context.Context, show io.Writer, kill, again <-chan time.Time) error {
	dir, err := os.MkdirTemp("", "vivarium-replicas-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	addresses, err := freeAddresses()
	if err != nil {
		return err
	}
	lines := make(chan string)
	start := func(id embed.MemberID) (*process, error) {
		return startProcess(replica{id, filepath.Join(dir, fmt.Sprint(id)), filepath.Base(dir), addresses}, lines)
	}
	running := make(map[embed.MemberID]*process)
	defer func() {
		for _, p := range running {
			_ = p.stdin.Close() // all at once, or the last one would have no quorum for its farewell
		}
		for _, p := range running {
			p.end(lines)
		}
	}()
	for id := range addresses {
		p, err := start(id)
		if err != nil {
			return err
		}
		running[id] = p
	}
	var leads, victim embed.MemberID
	for {
		select {
		case line := <-lines:
			fmt.Fprintln(show, line)
			if name, ok := strings.CutSuffix(line, " leads"); ok {
				if _, err := fmt.Sscanf(name, "process-%d", &leads); err != nil {
					return fmt.Errorf("%q leads: %w", name, err)
				}
			}
		case <-kill:
			if victim = leads; victim == 0 {
				return errors.New("nobody leads")
			}
			fmt.Fprintf(show, "process-%d is killed\n", victim)
			if err := running[victim].cmd.Process.Kill(); err != nil {
				return err
			}
			running[victim].end(lines)
			delete(running, victim)
		case <-again:
			fmt.Fprintf(show, "process-%d is started again\n", victim)
			p, err := start(victim)
			if err != nil {
				return err
			}
			running[victim] = p
		case <-ctx.Done():
			return nil
		}
	}
}

func startProcess(r replica, lines chan<- string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self), read: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), variable+"="+string(text)), os.Stderr
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.read)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return p, nil
}

// end ends a process, which may be dead, and drops what is still printed.
func (p *process) end(lines <-chan string) {
	_ = p.stdin.Close()
	patience := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer patience.Stop()
	for {
		select {
		case <-lines:
		case <-p.read:
			_ = p.cmd.Wait()
			return
		}
	}
}

// freeAddresses returns loopback addresses whose ports were free a moment ago.
func freeAddresses() (map[embed.MemberID]string, error) {
	addresses := make(map[embed.MemberID]string)
	for tries := 0; len(addresses) < number; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portFirst+rand.IntN(portLast-portFirst+1)))
		if err != nil {
			if tries > 1000 {
				return nil, err
			}
			continue
		}
		defer l.Close() // only at the end, so that no port is chosen twice
		addresses[embed.MemberID(len(addresses)+1)] = l.Addr().String()
	}
	return addresses, nil
}
