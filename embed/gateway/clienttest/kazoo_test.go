package clienttest

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// python returns a Python interpreter that has kazoo.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import kazoo.client").Run() == nil {
			return name
		}
	}
	t.Skip("there is no Python with kazoo: the Debian package is python3-kazoo")
	return ""
}

// kazoo's client and recipes behave the same with Vivarium as with ZooKeeper.
func TestKazoo(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	compare(t, "kazoo", func(t *testing.T, s *system) string {
		return runScript(t, s, exec.Command(interpreter, "testdata/client_kazoo.py", s.addrs()))
	})
}

// runScript returns what a script prints. In between it does what the script's lines with an @ ask
// for.
func runScript(t *testing.T, s *system, cmd *exec.Cmd) string {
	t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	late := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		request, asks := strings.CutPrefix(lines.Text(), "@")
		if !asks {
			fmt.Fprintln(&text, lines.Text())
			continue
		}
		var what string
		var which int
		_, err := fmt.Sscanf(request, "%s %d", &what, &which)
		switch {
		case err == nil && what == "cut" && which < len(s.doors):
			s.doors[which].cut()
		case err == nil && what == "heal" && which < len(s.doors):
			s.doors[which].heal()
		case err == nil && what == "stop" && s.stop != nil:
			s.stop(which)
		case err == nil && what == "start" && s.start != nil:
			s.start(which)
		default:
			t.Errorf("the script asks for %q", request)
		}
		fmt.Fprintln(in, "ok")
	}
	must(t, lines.Err())
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, complaints.String())
	}
	t.Logf("%s:\n%s", s.name, complaints.String())
	return text.String()
}
