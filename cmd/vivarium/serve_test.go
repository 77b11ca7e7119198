//go:build unix

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// Two lines of config make a server. It serves, stops at a signal, and has all its data after a
// restart.
func TestServe_TwoLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	start := func() (p *child.Program, addr string) {
		p = spawn(t, dir, "serve", "-config", "node.yaml")
		line := p.Says("msg=serving")
		m := regexp.MustCompile(`clients=(\S+) member=1 shards=1$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatal(line)
		}
		if data := filepath.Join(dir, "data"); !strings.Contains(p.Line("msg=starting"), "dir="+data+" ") && !strings.HasSuffix(p.Line("msg=starting"), "dir="+data) {
			t.Errorf("it does not say where its data is: %s", p.Line("msg=starting"))
		}
		return p, m[1]
	}
	p, addr := start()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	_, err = conn.Write([]byte("srvr"))
	must(t, err)
	answer, err := io.ReadAll(conn)
	must(t, err)
	if !strings.HasPrefix(string(answer), "Zookeeper version: ") || !strings.Contains(string(answer), "\nMode: standalone\n") {
		t.Errorf("srvr: %s", answer)
	}
	if code, _, stderr := vivarium("shell", "-server", addr, "create", "/a", "one"); code != exitOK {
		t.Fatalf("create: %d, %s", code, stderr)
	}

	data := filepath.Join(dir, "data")
	if code, _, stderr := vivarium("check", data); code != exitUsage || !strings.Contains(stderr, "in use") {
		t.Errorf("check of a member that runs: %d, %s", code, stderr)
	}
	second := spawn(t, dir, "serve", "-config", "node.yaml")
	if code := second.ExitCode(); code != exitFailed || second.Line("in use") == "" {
		t.Errorf("a second process: %d\n%s", code, second.Log())
	}

	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK || p.Line("msg=stopped") == "" {
		t.Errorf("SIGTERM: %d\n%s", code, p.Log())
	}
	if code, stdout, stderr := vivarium("check", data); code != exitOK {
		t.Errorf("check: %d\n%s%s", code, stdout, stderr)
	}
	p, addr = start()
	if code, stdout, stderr := vivarium("shell", "-server", addr, "get", "/a"); code != exitOK || !strings.Contains(stdout, "one\n") {
		t.Errorf("after a restart: %d, %s%s", code, stdout, stderr)
	}
	p.Signal(syscall.SIGINT)
	if code := p.ExitCode(); code != exitOK {
		t.Errorf("SIGINT: %d", code)
	}
}

// At SIGHUP the server reads its certificates again. What it cannot use changes nothing.
func TestServe_HangUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := testkit.NewAuthority(t, "authority")
	write := func(name string, data []byte) { must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600)) }
	issue := func(name string) {
		cert, key := testkit.PEM(t, authority.Issue(t, func(c *x509.Certificate) { c.Subject.CommonName = name }))
		write("crt", cert)
		write("key", key)
	}
	issue("first")
	write("node.yaml", []byte("dir: data\ngateway: {listen: 127.0.0.1:0, tls: {certFile: crt, keyFile: key}}\n"))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	m := regexp.MustCompile(`clients=(\S+)`).FindStringSubmatch(p.Says("msg=serving"))
	shown := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", m[1], &tls.Config{RootCAs: authority.Pool})
		must(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	issue("second")
	p.Signal(syscall.SIGHUP)
	p.Says("read again at SIGHUP\" changed=true")
	if name := shown(); name != "second" {
		t.Errorf("clients see the certificate of %q", name)
	}
	write("key", []byte("no key"))
	p.Signal(syscall.SIGHUP)
	p.Says("not all read again at SIGHUP")
	if name := shown(); name != "second" {
		t.Errorf("clients see the certificate of %q", name)
	}
}

// An address that another process has, or another port of this config, is refused before anything is
// founded.
func TestServe_PortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	free := l.Addr().String()
	must(t, l.Close())
	for _, c := range []struct{ addr, text string }{
		{taken.Addr().String(), "gateway: {listen: %q}\n"},
		{free, "gateway: {listen: %[1]q}\nid: 1\nmembers: {1: %[1]q}\n"},
		{free, "gateway: {listen: %[1]q}\nadmin: {listen: %[1]q, tokensFile: tokens}\n"},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "tokens"), fmt.Appendf(nil, "a viewer %064x\n", 1), 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), fmt.Appendf(nil, "dir: data\n"+c.text, c.addr), 0o644))
		p := spawn(t, dir, "serve", "-config", "node.yaml", "-log", "json")
		if code := p.ExitCode(); code != exitFailed {
			t.Errorf("%s: exit code %d", c.text, code)
		}
		last := p.Log()[strings.LastIndexByte(p.Log(), '\n')+1:]
		var line struct{ Level, Msg, Cause string }
		if err := json.Unmarshal([]byte(last), &line); err != nil || line.Level != "ERROR" || !strings.HasSuffix(line.Cause, ": listen tcp "+c.addr+": bind: address already in use") {
			t.Errorf("%s: %v: %s", c.text, err, last)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			t.Errorf("%s: the directory is founded, with all that is fixed then", c.text)
		}
	}
}

func TestServe_CheckOnly(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.WriteFile("node.yaml", []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	if code, stdout, stderr := vivarium("serve", "-config", "node.yaml", "-check"); code != exitOK || stdout != "node.yaml: ok\n" || stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 1 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

// One file serves all members if each process gets its id from the flag.
func TestServe_IDBesideTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		file, id string
		want     string // a part of standard error; empty: the config is ok
	}{
		{"", "2", ""},
		{"id: 1", "2", ""},
		{"", "", "node.yaml: id is 0 or left out"},
		{"", "4", "node.yaml: id is 4, which is none of the members 1, 2, 3"},
		{"id: 2", "0", "invalid value \"0\" for flag -id: ids begin at 1"},
		{"", "vivarium-0", "invalid value \"vivarium-0\" for flag -id"},
	} {
		must(t, os.WriteFile("node.yaml", []byte(c.file+`
dir: data
members: {1: "a:1", 2: "b:1", 3: "c:1"}
gateway: {listen: 127.0.0.1:0}
`), 0o644))
		args := []string{"serve", "-config", "node.yaml", "-check"}
		if c.id != "" {
			args = append(args, "-id", c.id)
		}
		code, _, stderr := vivarium(args...)
		if ok := c.want == ""; ok != (code == exitOK) || !strings.Contains(stderr, c.want) {
			t.Errorf("%q with -id %q: %d %s", c.file, c.id, code, stderr)
		}
	}
	must(t, os.WriteFile("node.yaml", []byte("id: 1\nmembers: {1: \"a:1\", 2: \"b:1\"}\n"), 0o644))
	if c, _ := readConfig("node.yaml", embed.Config{ID: 2}); c.ID != 2 {
		t.Errorf("the id is %d, want that of the flag, 2", c.ID)
	}
}

// Both signals are sent while the process is stopped. So the second one is there before the member
// is closed.
func TestServe_SecondSignal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	// On a busy machine the member may be closed before the process reads the second signal.
	until(t, "the second signal to end a process", func() bool {
		p := spawn(t, dir, "serve", "-config", "node.yaml")
		p.Says("msg=serving")
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT} {
			p.Signal(s)
		}
		code := p.ExitCode()
		if p.Line("ended at once") == "" {
			return false
		}
		if code != exitFailed || p.Line("msg=stopped") != "" {
			t.Errorf("%d\n%s", code, p.Log())
		}
		return true
	})
}

// A signal that comes twice within a moment, as from timeout(1), counts once.
func TestServe_EchoOfASignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		second syscall.Signal
		after  time.Duration
		echo   bool
	}{{syscall.SIGTERM, time.Millisecond, true}, {syscall.SIGTERM, time.Second, false}, {syscall.SIGINT, time.Millisecond, false}} {
		if isEcho(syscall.SIGTERM, c.second, c.after) != c.echo {
			t.Errorf("%v after %v: want %v", c.second, c.after, c.echo)
		}
	}
	timeout, err := exec.LookPath("timeout")
	if err != nil {
		t.Skip("there is no timeout(1)")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	at := func(out, line string) time.Time {
		t.Helper()
		m := regexp.MustCompile(`(?m)^time=(\S+) .*` + line).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("there is no %q:\n%s", line, out)
		}
		when, err := time.Parse(time.RFC3339, m[1])
		must(t, err)
		return when
	}
	for range 3 { // before isEcho, 12 of 20 such stops ended at once
		cmd := exec.Command(timeout, "0.5", binary, "serve", "-config", "node.yaml")
		cmd.Dir = dir
		raw, _ := cmd.CombinedOutput() // its error is the exit code of timeout
		out := string(raw)
		if !strings.Contains(out, "ended at once") {
			continue
		}
		// On a busy machine, the process may read the repeated signal so late that it looks meant.
		if after := at(out, "ended at once").Sub(at(out, "msg=stopping")); isEcho(syscall.SIGTERM, syscall.SIGTERM, after) {
			t.Errorf("after %v: %s", after, out)
		}
	}
}
