//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

const (
	// settle is how long newcomers do not count: partition.Options.Settle, and kazoo's
	// time_boundary.
	settle = time.Second
	// The members of the suite partition have this timeout, the least that ZooKeeper grants.
	sessionTimeout = 4 * time.Second
)

// A team is the members of the suite partition. Each is a process.
type team struct {
	members []*speaker
	owners  *owners
	events  chan event
	died    chan error // a member that nobody killed
}

// A memberCommand starts a process that is a member of the parts. Member i of an ensemble gets the
// first argument, where, which for kazoo is a server.
type memberCommand struct {
	of    func(args ...string) *exec.Cmd
	hosts []string // by member; nil means a directory below that of the team
}

// measurePartition measures a member that joins two others, and then its death.
func measurePartition(w *worker, parts int) (numbers []float64, err error) {
	command, err := w.system.member(w)
	if err != nil {
		return nil, err
	}
	path := w.path()
	dir := filepath.Join(w.Place.Dir, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	t := &team{owners: newOwners(parts), events: make(chan event, 1<<14), died: make(chan error, members)}
	defer t.stop()
	if err := t.start(command, dir, path, parts); err != nil {
		return nil, err
	}
	t.run(0)
	t.run(1)
	if err := t.until(2); err != nil {
		return nil, fmt.Errorf("the first two members: %w", err)
	}
	joins, err := t.measure(3, func() { t.run(2) })
	if err != nil {
		return nil, fmt.Errorf("a member joins: %w", err)
	}
	dies, err := t.measure(2, func() {
		at := time.Now()
		t.members[2].kill()
		t.owners.lose(2, at)
	})
	if err != nil {
		return nil, fmt.Errorf("a member dies: %w", err)
	}
	return append(joins, dies...), nil
}

// start starts the processes. The last of them does not lead.
func (t *team) start(command memberCommand, dir, path string, parts int) error {
	addrs, err := child.FreeAddrs(members)
	if err != nil {
		return err
	}
	all := make([]*speaker, members)
	err = inParallel(members, members, func(i int) (err error) {
		where := dir
		if command.hosts != nil {
			where = command.hosts[i]
		}
		all[i], err = startSpeaker(command.of(where, strconv.Itoa(i), strings.Join(addrs, ","), path,
			strconv.Itoa(parts), ms(settle), ms(sessionTimeout)), filepath.Join(dir, fmt.Sprint(i, ".log")))
		return err
	})
	for _, c := range all {
		if c != nil {
			t.members = append(t.members, c)
		}
	}
	if err != nil {
		return err
	}
	for i, c := range t.members {
		leads, err := c.ask("leads", patience)
		if err != nil {
			return err
		}
		if leads[0] > 0 {
			t.members[0], t.members[i] = t.members[i], t.members[0]
			break
		}
	}
	return nil
}

// run makes a process a member.
func (t *team) run(i int) {
	c := t.members[i]
	c.tell("run")
	go func() {
		for text := range c.said {
			e, err := readEvent(i, text)
			if err != nil {
				t.died <- err
				return
			}
			t.events <- e
		}
		if i < 2 {
			t.died <- fmt.Errorf("%v: %s", c.cmd.ProcessState, c.lastWords())
		}
	}()
}

// until waits until n members share the parts.
func (t *team) until(n int) error {
	late := time.After(patience)
	for !t.owners.settled(n) {
		select {
		case e := <-t.events:
			t.owners.see(e)
		case err := <-t.died:
			return err
		case <-late:
			return fmt.Errorf("not settled after %v: %v parts at each, %d of %d parts have an owner", patience, t.owners.held, t.owners.whole, t.owners.parts)
		}
	}
	return nil
}

// measure measures what happens, until n members share the parts.
func (t *team) measure(n int, happens func()) ([]float64, error) {
	t.owners.begin()
	begun := time.Now()
	happens()
	if err := t.until(n); err != nil {
		return nil, err
	}
	all, idle, err := t.owners.took(begun)
	return []float64{millis(all), millis(idle)}, err
}

// stop ends the processes that are left. Their last events are read by nobody else.
func (t *team) stop() {
	for _, c := range t.members {
		_ = c.cmd.Process.Kill()
	}
	over := make(chan struct{})
	go func() {
		for _, c := range t.members {
			for range c.said {
			}
		}
		close(over)
	}()
	for {
		select {
		case <-t.events:
		case <-t.died:
		case <-over:
			return
		}
	}
}

// memberVariable is the environment variable that makes this program a member of the parts.
const memberVariable = "VIVARIUM_BENCH_MEMBER"

// vivariumMember returns a command that starts this program as a member.
func vivariumMember(*worker) (memberCommand, error) {
	self, err := os.Executable()
	return memberCommand{of: func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), memberVariable+"=1")
		return cmd
	}}, err
}

// beMember is the life of a member.
func beMember(args []string) {
	if err := serveMember(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveMember is a member of the ensemble and, when it is told so, of the parts.
func serveMember(args []string) error {
	if len(args) != 7 {
		return fmt.Errorf("wrong arguments %q", args)
	}
	i, path, parts := parsed(args[1]), args[3], partNames(parsed(args[4]))
	settle, timeout := window(args[5]), window(args[6])
	p := place{Dir: args[0], Here: []int{i}}
	for _, addr := range strings.Split(args[2], ",") {
		p.Addrs = append(p.Addrs, []string{addr})
	}
	n, err := startNode(i, vivariumConfig(p, i))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		return err
	}
	out := &sayings{out: bufio.NewWriter(os.Stdout)}
	out.say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "leads":
			leads := 0
			if s := n.Status(); s.Leading(s.Shards[0]) {
				leads = 1
			}
			out.say(fmt.Sprint("= ", leads))
		case "run":
			go func() {
				from := embed.OpenerWith(n, embed.SessionOptions{Timeout: timeout})
				err := partition.Run(context.Background(), from, path, parts, partition.Options{ID: args[1], Settle: settle},
					func(ctx context.Context, part string, _ *lock.Hold) error {
						out.say(fmt.Sprintf("+ %d %s", time.Now().UnixNano(), part))
						<-ctx.Done()
						out.say(fmt.Sprintf("- %d %s", time.Now().UnixNano(), part))
						return nil
					})
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}()
		}
	}
	return nil
}

// partNames are the names of so many parts, the same in all systems.
func partNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("p%05d", i))
	}
	return all
}

// sayings are lines to the parent.
type sayings struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (s *sayings) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.WriteString(text + "\n") // without its parent the process ends
	_ = s.out.Flush()
}
