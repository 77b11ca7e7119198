//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// memberVariable makes this program a member of an ensemble instead of the campaign.
const memberVariable = "VIVARIUM_CHAOS_MEMBER"

// errDied says that a member's process ended before it answered.
var errDied = errors.New("the process died before it answered")

// A process is one run of a member's program. Its methods may be called by any number of goroutines.
type process struct {
	// Immutable after spawn.
	cmd  *exec.Cmd
	in   io.WriteCloser
	dead chan struct{} // closed when it is gone and all its replies were read

	mu struct {
		sync.Mutex
		next    uint64
		pending map[uint64]waiting
		dead    bool
		killed  bool // by us
	}
}

// waiting is who wants a reply.
type waiting struct {
	ch     chan reply
	notice func(reply) // told of notices by readLoop; may be nil
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

// spawn starts this program as a member. Its standard error is appended to the file log.
func spawn(log string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	out, replies, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer replies.Close()
	p := &process{dead: make(chan struct{})}
	p.mu.pending = make(map[uint64]waiting)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), memberVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = stderr, stderr
	p.cmd.ExtraFiles = []*os.File{replies} // repliesFD there
	p.cmd.SysProcAttr = dieWithParent()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	spawner() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go p.readLoop(out)
	return p, nil
}

// readLoop hands replies to their callers. What a killed process had written is still in the pipe, so it counts as
// answered; everything else it was asked is not. It ends with the process.
func (p *process) readLoop(out *os.File) {
	defer out.Close()
	dec := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		w := p.mu.pending[r.ID]
		if !r.More {
			delete(p.mu.pending, r.ID)
		}
		p.mu.Unlock()
		switch {
		case !r.More:
			w.ch <- r
		case w.notice != nil:
			w.notice(r)
		}
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.mu.dead = true
	for id, w := range p.mu.pending {
		close(w.ch)
		delete(p.mu.pending, id)
	}
	p.mu.Unlock()
	close(p.dead)
}

// send asks a process for something and returns at once. The channel is closed if the process dies first.
func (p *process) send(q request, notice func(reply)) <-chan reply {
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
	p.mu.pending[q.ID] = waiting{ch, notice}
	// It is small: the pipe takes it even if the process is stopped. An error means that the process is dying, and
	// readLoop says so.
	_, _ = p.in.Write(append(line, '\n'))
	return ch
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill sends SIGKILL and does not wait for the end.
func (p *process) kill() {
	p.mu.Lock()
	p.mu.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// diedAlone reports whether a process that has ended did so by itself.
func (p *process) diedAlone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.killed
}
