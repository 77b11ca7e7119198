//go:build unix

package child

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// answersFD is the pipe for answers in the child.
const answersFD = 3

// A message is one line: a question, an answer, or a notice. A notice comes before the answer.
type message[T any] struct {
	ID     uint64
	Notice bool `json:",omitempty"`
	Body   T
}

// A Process is one run of a child that receives questions Q and returns answers A. Its methods may
// be called by any number of goroutines.
type Process[Q, A any] struct {
	// Immutable after Spawn.
	cmd  *exec.Cmd
	in   io.WriteCloser
	dead chan struct{}

	mu struct {
		sync.Mutex
		next    uint64
		pending map[uint64]asker[A]
		dead    bool
		killed  bool // by Kill
	}
}

// An asker waits for an answer.
type asker[A any] struct {
	answer chan A
	notice func(A) // called by readLoop for each notice; may be nil
}

// spawner starts processes on one thread that lasts as long as this process. The kernel sends a
// child's parent-death signal when the thread that started the child ends.
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

// Start starts a command. It is killed when this process ends.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}

// Spawn is SpawnProgram with this program.
func Spawn[Q, A any](variable, log string) (*Process[Q, A], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return SpawnProgram[Q, A](self, variable, log)
}

// SpawnProgram starts a program with an environment variable set. The variable tells the program to
// call Serve. Its standard output and error are appended to the file log.
func SpawnProgram[Q, A any](program, variable, log string) (*Process[Q, A], error) {
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	out, answers, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer answers.Close()
	p := &Process[Q, A]{cmd: exec.Command(program), dead: make(chan struct{})}
	p.mu.pending = make(map[uint64]asker[A])
	p.cmd.Env = append(os.Environ(), variable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = stderr, stderr
	p.cmd.ExtraFiles = []*os.File{answers} // this is answersFD in the child
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		err = Start(p.cmd)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	go p.readLoop(out)
	return p, nil
}

// readLoop passes answers to their askers. Answers that a killed process had written are still in
// the pipe, so they count. All other questions stay unanswered. It ends with the process.
func (p *Process[Q, A]) readLoop(out *os.File) {
	defer out.Close()
	dec := json.NewDecoder(bufio.NewReader(out))
	for {
		var m message[A]
		if err := dec.Decode(&m); err != nil {
			break
		}
		p.mu.Lock()
		a := p.mu.pending[m.ID]
		if !m.Notice {
			delete(p.mu.pending, m.ID)
		}
		p.mu.Unlock()
		switch {
		case !m.Notice:
			a.answer <- m.Body
		case a.notice != nil:
			a.notice(m.Body)
		}
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.mu.dead = true
	for id, a := range p.mu.pending {
		close(a.answer)
		delete(p.mu.pending, id)
	}
	p.mu.Unlock()
	close(p.dead)
}

// Send sends a question and returns at once. The channel receives the answer. It is closed if the
// process dies first. notice, if not nil, is called for each notice before the answer, in order.
func (p *Process[Q, A]) Send(q Q, notice func(A)) <-chan A {
	a := asker[A]{make(chan A, 1), notice}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.dead {
		close(a.answer)
		return a.answer
	}
	p.mu.next++
	line, err := json.Marshal(message[Q]{ID: p.mu.next, Body: q})
	if err != nil {
		panic(err)
	}
	p.mu.pending[p.mu.next] = a
	// The line is small, so the pipe has room for it even if the process is stopped. An error means
	// that the process is dying, which readLoop reports.
	_, _ = p.in.Write(append(line, '\n'))
	return a.answer
}

// Dead returns a channel that is closed when the process is gone and all its answers were passed
// on.
func (p *Process[Q, A]) Dead() <-chan struct{} { return p.dead }

// Pid returns the process's id.
func (p *Process[Q, A]) Pid() int { return p.cmd.Process.Pid }

// Signal sends the process a signal.
func (p *Process[Q, A]) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill sends the process SIGKILL. It does not wait for the end.
func (p *Process[Q, A]) Kill() {
	p.mu.Lock()
	p.mu.killed = true
	p.mu.Unlock()
	p.Signal(syscall.SIGKILL)
}

// DiedAlone says how a dead process has ended, and whether that was without Kill.
func (p *Process[Q, A]) DiedAlone() (how string, alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.ProcessState.String(), !p.mu.killed
}

// Serve passes each question to handle, one after the other. It returns when standard input ends,
// because the parent is gone or wants this process to end. say sends an answer, or a notice before
// the answer. Any goroutine may call say at any time.
func Serve[Q, A any](handle func(q Q, say func(a A, notice bool))) {
	var mu sync.Mutex
	out := json.NewEncoder(os.NewFile(answersFD, "answers"))
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var q message[Q]
		if err := in.Decode(&q); err != nil {
			return
		}
		handle(q.Body, func(a A, notice bool) {
			mu.Lock()
			defer mu.Unlock()
			// This is one write(2). Once it returns, the parent can read it, whatever happens here.
			// An error means that the parent is gone.
			_ = out.Encode(message[A]{ID: q.ID, Notice: notice, Body: a})
		})
	}
}
