//go:build unix

package processtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// errDied says that a member's process ended before it answered.
var errDied = errors.New("the process died before it answered")

// A process is one run of a member. Its methods may be called by any number of goroutines.
type process struct {
	// Immutable after spawn.
	cmd  *exec.Cmd
	log  string // where its standard error goes
	in   io.WriteCloser
	dead chan struct{} // closed when it is gone and all its replies were read

	mayFail bool // its node may fail; set before the test ends

	mu struct {
		sync.Mutex
		next    uint64
		pending map[uint64]chan reply
		dead    bool
	}
}

// spawner starts processes on one thread that lasts as long as this process: the kernel sends a child's parent-death
// signal when the thread that started it ends.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn starts this binary as a member. It is killed when the test ends, however it does.
func spawn(t *testing.T, log string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	out, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer replies.Close()
	p := &process{log: log, dead: make(chan struct{})}
	p.mu.pending = make(map[uint64]chan reply)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), memberVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = stderr, stderr
	p.cmd.ExtraFiles = []*os.File{replies} // repliesFD there
	p.cmd.SysProcAttr = dieWithParent()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	spawner() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		<-p.dead
		checkLog(t, log, p.mayFail)
	})
	go p.readLoop(out)
	return p
}

// readLoop hands replies to their callers. What a killed process had written is still in the pipe, so it counts as
// answered; everything else it was asked is not.
func (p *process) readLoop(out *os.File) {
	defer out.Close()
	dec := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		ch := p.mu.pending[r.ID]
		delete(p.mu.pending, r.ID)
		p.mu.Unlock()
		ch <- r
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.mu.dead = true
	for id, ch := range p.mu.pending {
		close(ch)
		delete(p.mu.pending, id)
	}
	p.mu.Unlock()
	close(p.dead)
}

// send asks a process for something and returns at once.
func (p *process) send(q request) <-chan reply {
	ch := make(chan reply, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.dead {
		close(ch)
		return ch
	}
	p.mu.next++
	q.ID = p.mu.next
	line, err := json.Marshal(q)
	if err != nil {
		panic(err)
	}
	p.mu.pending[q.ID] = ch
	// It is small: the pipe takes it even if the process is stopped. An error means that the process is dying, and
	// readLoop says so.
	_, _ = p.in.Write(append(line, '\n'))
	return ch
}

// call asks a process for something and waits for the answer, with errDied if there is none.
func (p *process) call(q request) (reply, error) {
	r, ok := <-p.send(q)
	if !ok {
		return reply{Outcome: unknown, Error: errDied.Error()}, errDied
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: %s", q.Call, r.Error)
	}
	return r, nil
}

// must is call for a test that expects no error. It is for the test's own goroutine.
func (p *process) must(t *testing.T, q request) reply {
	t.Helper()
	r, err := p.callWithin(q)
	if err != nil {
		t.Fatalf("process %d: %v", p.cmd.Process.Pid, err)
	}
	return r
}

// callWithin is call, no longer than this package's patience.
func (p *process) callWithin(q request) (reply, error) {
	return receive(p.send(q), q.Call)
}

func receive(ch <-chan reply, what call) (reply, error) {
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return reply{Outcome: unknown}, errDied
		case r.Error != "":
			return r, fmt.Errorf("%s: %s", what, r.Error)
		}
		return r, nil
	case <-time.After(patience):
		return reply{Outcome: unknown}, fmt.Errorf("%s: no answer in %v", what, patience)
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill sends SIGKILL and does not wait for the end.
func (p *process) kill() { p.signal(syscall.SIGKILL) }

// checkLog fails the test for what no member may ever say, and after a failure shows the end of its log.
func checkLog(t *testing.T, name string, mayFail bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	never := []string{"WARNING: DATA RACE", "panic:", "fatal error:"}
	if !mayFail {
		never = append(never, "NODE FAILED:", "level=ERROR")
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	for i, line := range lines {
		for _, bad := range never {
			if strings.Contains(line, bad) {
				t.Errorf("%s:%d:\n%s", name, i+1, strings.Join(lines[i:min(i+60, len(lines))], "\n"))
				return
			}
		}
	}
	if t.Failed() {
		const most = 60
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "level=DEBUG") })
		t.Logf("the end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-most):], "\n"))
	}
}
