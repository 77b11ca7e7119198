// Package processes runs an example as processes on this machine, which start and end one by one. A
// service needs nothing of this: something else starts its processes, and their addresses stay.
package processes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
)

// A Pool is the processes, as the parent sees them. Its methods may be called by any number of
// goroutines.
type Pool struct {
	// Failed has an error when a process has ended that should not.
	Failed chan error

	mu      sync.Mutex
	running map[int]*process // those that are meant to run
}

// A process is one that was started.
type process struct {
	number  int
	command *exec.Cmd
	stdin   io.WriteCloser
	log     string
	exited  chan struct{} // closed when it has ended
	err     error         // read after exited
}

// NewPool returns an empty Pool.
func NewPool() *Pool { return &Pool{Failed: make(chan error, 16), running: make(map[int]*process)} }

// Start starts this program again, with an argument. It appends what the process says on its
// standard error to a file, and writes config to its standard input, as one line of JSON.
func (p *Pool) Start(number int, argument, log string, config any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	one := &process{number: number, command: exec.Command(self, argument), log: log, exited: make(chan struct{})}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close() // the process has its own
	one.command.Stderr = file
	if one.stdin, err = one.command.StdinPipe(); err != nil {
		return err
	}
	if err := one.command.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.running[number] = one
	p.mu.Unlock()
	go p.guardLoop(one)
	return json.NewEncoder(one.stdin).Encode(config)
}

// guardLoop waits for the end of a process.
func (p *Pool) guardLoop(one *process) {
	one.err = one.command.Wait()
	close(one.exited)
	p.mu.Lock()
	failed := p.running[one.number] == one
	p.mu.Unlock()
	if failed {
		p.Failed <- fmt.Errorf("process %d ended by itself (%w): %s", one.number, one.err, one.lastWords())
	}
}

// retire marks a process as not meant to run, and returns it.
func (p *Pool) retire(number int) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.running[number]
	delete(p.running, number)
	return one
}

// Running returns the processes that are meant to run, in order.
func (p *Pool) Running() (all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number := range p.running {
		all = append(all, number)
	}
	slices.Sort(all)
	return all
}

// Kill ends a process with SIGKILL and waits until it is gone.
func (p *Pool) Kill(number int) {
	if one := p.retire(number); one != nil {
		_ = one.command.Process.Kill() // it may have ended
		<-one.exited
	}
}

// End writes last words to the standard input of a process, closes it, and waits until the process
// has ended.
func (p *Pool) End(number int, words string) error {
	one := p.retire(number)
	if one == nil {
		return nil
	}
	_, _ = io.WriteString(one.stdin, words) // if it has ended, its exit says so
	_ = one.stdin.Close()
	<-one.exited
	if one.err != nil {
		return fmt.Errorf("process %d did not end in an orderly way (%w): %s", number, one.err, one.lastWords())
	}
	return nil
}

// EndAll ends all processes at once.
func (p *Pool) EndAll() error {
	var all sync.WaitGroup
	running := p.Running()
	errs := make([]error, len(running))
	for i, number := range running {
		all.Go(func() { errs[i] = p.End(number, "") })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lastWords returns the last line of the process's log.
func (one *process) lastWords() string {
	log, err := os.ReadFile(one.log)
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[bytes.LastIndexByte(log, '\n')+1:])
}

// FreeAddrs returns loopback addresses whose ports were free a moment ago. The ports are below the
// ranges that systems use for outgoing connections. Such a connection could occupy the port of a
// member that is about to start again.
func FreeAddrs(n int) (addrs []string, err error) {
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(20_000+rand.IntN(10_000)))
		if err != nil {
			continue
		}
		defer l.Close() // only at the end, so that no port is chosen twice
		if addrs = append(addrs, l.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, errors.New("there are no free ports")
}
