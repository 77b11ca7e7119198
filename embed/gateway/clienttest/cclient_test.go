package clienttest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// ZooKeeper's C client behaves the same with Vivarium as with ZooKeeper.
func TestCClient(t *testing.T) {
	t.Parallel()
	const path = "/usr/lib/zookeeper/bin/cli_mt"
	if _, err := os.Stat(path); err != nil {
		t.Skip("the Debian package zookeeper-bin is not installed")
	}
	script, err := os.ReadFile("testdata/cclient.txt")
	must(t, err)
	compare(t, "cclient", func(t *testing.T, s *system) string {
		cmd := exec.Command(path, "-h", s.addrs())
		var out, errs buffer // each is in order, but nothing orders one against the other
		cmd.Stdout, cmd.Stderr = &out, &errs
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		n := 0
		for line := range strings.Lines(string(script)) {
			// The client does not wait for answers. The thread that delivers most answers also
			// delivers the answer to a get, so that comes after the line's answer. The answer to an
			// exists may overtake it.
			fmt.Fprintf(in, "%sget /line-%d\n", line, n)
			until(t, "an answer to "+line, func() bool {
				return strings.Contains(errs.String(), fmt.Sprintf("/line-%d: rc = -101\n\nStat:\nnull\n", n))
			})
			n++
		}
		_ = in.Close()
		must(t, cmd.Wait())
		text := out.String() + errs.String()
		for _, u := range cUntidy {
			text = u.ReplaceAllString(text, "")
		}
		return tidy(text)
	})
}

var cUntidy = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^.*:ZOO_[A-Z]+@.*\n`),
	regexp.MustCompile(`(?m)^time = .*\n`),
	regexp.MustCompile(`(?m)^Watcher SESSION_EVENT state = CONNECTED_STATE\n`), // comes at any time
	regexp.MustCompile(`(?m)^\t[cm](time|zxid) *=.*\n`),
	regexp.MustCompile(`(?m)^/line-\d+: rc = -101\n\nStat:\nnull\n`),
	// printed by the asking thread, which the answer can overtake
	regexp.MustCompile(`(?m)^Creating \[.*\n`),
	regexp.MustCompile(`(?m)^.*session [Ii]d.*\n`),
}

// A buffer may be read while a process writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
