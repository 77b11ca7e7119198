//go:build unix

package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A Program is one run of a program whose log, on standard error, a test reads.
type Program struct {
	t    *testing.T
	cmd  *exec.Cmd
	dead chan struct{} // closed when the process is gone and its log is read

	mu  sync.Mutex
	log []string
	old int // so many lines, Line and Says pass over
}

// Run starts a program in a directory. It is killed when the test ends. If it panicked, the test
// fails.
func Run(t *testing.T, dir, program string, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, cmd: exec.Command(program, args...), dead: make(chan struct{})}
	p.cmd.Dir = dir
	out, err := p.cmd.StderrPipe()
	if err == nil {
		err = Start(p.cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.dead)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.log = append(p.log, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.dead
		if log := p.Log(); strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:") {
			t.Errorf("it panicked in %s", dir)
		}
		if t.Failed() {
			t.Logf("%v in %s:\n%s", args, dir, p.Log())
		}
	})
	return p
}

// Pid returns the process's id.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Signal sends the process a signal.
func (p *Program) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Log returns all lines of the log so far.
func (p *Program) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// PassOver makes Line and Says look only at lines that come from now on.
func (p *Program) PassOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old = len(p.log)
}

// Line returns the first line of the log that contains a text, and "" if there is none yet.
func (p *Program) Line(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log[p.old:] {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// Says waits for a line of the log that contains a text, and returns the line.
func (p *Program) Says(text string) string {
	p.t.Helper()
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	limit := time.After(testkit.Patience)
	for {
		if line := p.Line(text); line != "" {
			return line
		}
		select {
		case <-every.C:
		case <-p.dead:
			if line := p.Line(text); line != "" {
				return line
			}
			p.t.Fatalf("it ended (%v) without %q", p.cmd.ProcessState, text)
		case <-limit:
			p.t.Fatalf("no line with %q in %v", text, testkit.Patience)
		}
	}
}

// ExitCode waits until the process has ended and returns its exit code.
func (p *Program) ExitCode() int {
	p.t.Helper()
	select {
	case <-p.dead:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(testkit.Patience):
		p.t.Fatalf("it still runs after %v", testkit.Patience)
		return 0
	}
}

// Main builds the program in a folder as it is shipped, without cgo, and runs the tests. It is for
// TestMain. binary receives the path of the program. Main returns the tests' exit code.
func Main(m *testing.M, folder string, binary *string) int {
	dir, err := os.MkdirTemp("", "program-")
	if err == nil {
		defer os.RemoveAll(dir)
		*binary = filepath.Join(dir, "program")
		build := exec.Command("go", "build", "-o", *binary, ".")
		build.Dir = folder
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
