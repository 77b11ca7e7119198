//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// Standard error is a full pipe that nobody reads. The member still serves, and stops at a signal.
func TestServe_NobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addrs, err := child.FreeAddrs(1)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), fmt.Appendf(nil, "dir: data\ngateway: {listen: %q}\n", addrs[0]), 0o644))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	raw, err := w.SyscallConn()
	must(t, err)
	must(t, raw.Write(func(fd uintptr) bool {
		for err == nil {
			_, err = syscall.Write(int(fd), make([]byte, 512))
		}
		return true
	}))
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "-config", "node.yaml")
	cmd.Dir, cmd.Stderr = dir, w
	must(t, child.Start(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	until(t, "a port", func() bool {
		c, err := net.Dial("tcp", addrs[0])
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(patience):
		t.Fatal("it runs on")
	}
}

// A gate blocks every Write until open is closed.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *gate) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

// Lines that do not fit are counted. As soon as somebody reads again, the log says how many were
// lost.
func TestLog_SaysWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, form := range []string{"text", "json"} {
			to := &gate{open: make(chan struct{})}
			log, end := newLog(to, form, false)
			for i := range linesMax + 10 {
				log.Info("said", "n", i)
			}
			end() // returns although nobody reads
			close(to.open)
			until(t, "all that is written", func() bool {
				end() // can be called again
				return strings.Contains(to.String(), "lines were lost")
			})
			lines := strings.Split(strings.TrimSpace(to.String()), "\n")
			said := 0
			for _, line := range lines {
				if strings.Contains(line, "said") {
					said++
				}
			}
			last := lines[len(lines)-1]
			if lost := linesMax + 10 - said; said < linesMax || lost == 0 || !strings.Contains(last, "lines were lost") || !has(last, fmt.Sprint(lost)) {
				t.Errorf("%s: %d lines are there, the last is %s", form, said, last)
			}
		}
	})
}

// D14: long lines wait up to a bound in bytes.
func TestLog_LongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, most = 64 << 10, linesBytes / (64 << 10)
		to, long := &gate{open: make(chan struct{})}, strings.Repeat("x", size)
		log, end := newLog(to, "text", false)
		for range most + 10 {
			log.Info(long)
		}
		close(to.open)
		end()
		if n := strings.Count(to.String(), long); n > most || n < most-1 {
			t.Errorf("%d lines of %d KiB were kept", n, size>>10)
		}
	})
}

// A line that was logged before the end is written.
func TestLog_Ends(t *testing.T) {
	var to bytes.Buffer
	log, end := newLog(&to, "text", false)
	log.Error("ended")
	end()
	if !strings.Contains(to.String(), "msg=ended") {
		t.Errorf("%q", to.String())
	}
	log.Info("more") // does not block
	end()
}
