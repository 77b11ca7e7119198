package clienttest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// A pipe is a process that reads lines and prints lines.
type pipe struct {
	t     *testing.T
	in    io.Writer
	lines chan string // closed when the process prints no more
	asked string      // the last line that it got
}

// open starts a process that ends with the test.
func open(t *testing.T, cmd *exec.Cmd) *pipe {
	t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &pipe{t: t, in: in, lines: make(chan string, 1000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		for range p.lines { // so that it can end
		}
		<-read
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the client's end: %v\n%s", err, complaints.String())
		}
	})
	return p
}

func (p *pipe) write(line string) {
	p.t.Helper()
	p.asked = line
	_, err := io.WriteString(p.in, line+"\n")
	must(p.t, err)
}

func (p *pipe) read() string {
	p.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("the client has ended at %q", p.asked)
		}
		return line
	case <-late.C:
		p.t.Fatalf("the client says nothing to %q", p.asked)
	}
	return ""
}

// ask implements asker for programs that speak its language, with tabs between the words.
func (p *pipe) ask(words ...string) []string {
	p.t.Helper()
	p.write(strings.Join(words, "\t"))
	return strings.Split(p.read(), "\t")
}

// startC starts a program with ZooKeeper's C client.
func startC(t *testing.T) asker {
	t.Helper()
	return open(t, exec.Command(compileC(t, "testdata/reconfig.c")))
}

// compileC compiles a program with ZooKeeper's C client.
func compileC(t *testing.T, source string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "client")
	out, err := exec.Command("cc", "-D_GNU_SOURCE", "-DTHREADED", "-Wall", "-Werror", "-o", file, source, "-lzookeeper_mt", "-pthread").CombinedOutput()
	switch text := string(out); {
	case errors.Is(err, exec.ErrNotFound), strings.Contains(text, "zookeeper/zookeeper.h: No such file"):
		t.Skip("there is no C client to build with: the Debian packages are gcc and libzookeeper-mt-dev")
	case err != nil:
		t.Fatalf("%v\n%s", err, text)
	}
	return file
}

// A goClient is an asker with go-zookeeper. Its answer to a reconfig has a Stat only, so it reads
// the config.
type goClient struct {
	t     *testing.T
	conn  *zk.Conn
	watch <-chan zk.Event
}

func (c *goClient) ask(words ...string) []string {
	c.t.Helper()
	switch words[0] {
	case "connect":
		if c.conn != nil {
			c.conn.Close()
		}
		conn, _, err := zk.Connect(strings.Split(words[1], ","), sessionTimeout, zk.WithLogger(silent{}))
		must(c.t, err)
		c.t.Cleanup(conn.Close)
		until(c.t, "a session", func() bool { return conn.State() == zk.StateHasSession })
		c.conn = conn
		return []string{"0"}
	case "auth":
		return []string{codeOf(c.conn.AddAuth("digest", []byte(words[1])))}
	case "config":
		data, stat, err := c.conn.Get(configPath)
		return configAnswer(data, stat, err)
	case "watch":
		data, stat, watch, err := c.conn.GetW(configPath)
		c.watch = watch
		return configAnswer(data, stat, err)
	case "event":
		select {
		case e := <-c.watch:
			return []string{"0", strconv.Itoa(int(e.Type)), e.Path}
		case <-time.After(patience):
			c.t.Fatal("there is no event")
		}
	}
	return c.reconfig(words[1], words[2], words[3], words[4])
}

func (c *goClient) reconfig(joining, leaving, members, from string) []string {
	c.t.Helper()
	list := func(word string) []string {
		if word == "-" {
			return nil
		}
		return strings.Split(word, ",")
	}
	version, err := strconv.ParseInt(from, 10, 64)
	must(c.t, err)
	if members != "-" {
		_, err = c.conn.Reconfig(list(members), version)
	} else {
		_, err = c.conn.IncrementalReconfig(list(joining), list(leaving), version)
	}
	if err != nil {
		return []string{codeOf(err)}
	}
	return c.ask("config")
}

func configAnswer(data []byte, stat *zk.Stat, err error) []string {
	if err != nil {
		return []string{codeOf(err)}
	}
	return []string{"0", strconv.FormatInt(stat.Mzxid, 10), strconv.Itoa(int(stat.Version)), strings.ReplaceAll(string(data), "\n", "|")}
}

// codeOf returns the code for an error of go-zookeeper, or its text.
func codeOf(err error) string {
	for code, known := range map[string]error{"-4": zk.ErrConnectionClosed, "-8": zk.ErrBadArguments, "-102": zk.ErrNoAuth, "-103": zk.ErrBadVersion, "-123": zk.ErrReconfigDisabled} {
		if errors.Is(err, known) {
			return code
		}
	}
	if err == nil {
		return "0"
	}
	if m := regexp.MustCompile(`-\d+`).FindString(err.Error()); m != "" {
		return m
	}
	return err.Error()
}

// A shellClient is an asker with ZooKeeper's shell.
type shellClient struct {
	*pipe
	n      int
	events []string
}

func startShell(t *testing.T) asker {
	t.Helper()
	zookeeper.Need(t)
	java := zookeeper.Java(nil, "org.apache.zookeeper.ZooKeeperMain", "-server", "127.0.0.1:1") // it connects elsewhere later
	// The shell complains on stderr, in order with what it prints.
	return &shellClient{pipe: open(t, exec.Command("sh", append([]string{"-c", `exec "$@" 2>&1`}, slices.Insert(java.Args, 0, "sh")...)...))}
}

func (c *shellClient) ask(words ...string) []string {
	c.t.Helper()
	switch words[0] {
	case "connect":
		c.enter("connect " + words[1])
		return []string{"0"}
	case "auth":
		c.enter("addauth digest " + words[1])
		return []string{"0"}
	case "config":
		return shellConfig(c.enter("config -s"))
	case "watch":
		return shellConfig(c.enter("config -s -w"))
	case "event":
		for len(c.events) == 0 {
			c.sort(c.read())
		}
		m := shellEvent.FindStringSubmatch(c.events[0])
		c.events = c.events[1:]
		return []string{"0", map[string]string{"NodeDataChanged": "3"}[m[1]], m[2]}
	}
	line := "reconfig -s"
	for i, flag := range []string{"-add", "-remove", "-members"} {
		if words[1+i] != "-" {
			line += " " + flag + " " + words[1+i]
		}
	}
	if version, err := strconv.ParseInt(words[4], 10, 64); err == nil && version >= 0 {
		line += fmt.Sprintf(" -v %x", version)
	}
	return shellConfig(c.enter(line))
}

// enter returns what the shell prints for a line, without events. The shell prints no prompt, so a
// znode that does not exist marks the end.
func (c *shellClient) enter(line string) string {
	c.t.Helper()
	c.n++
	mark := fmt.Sprintf("/line-%d", c.n)
	c.write(line + "\nstat " + mark)
	var text strings.Builder
	for {
		printed := c.read()
		if strings.Contains(printed, mark) {
			return text.String()
		}
		if !c.sort(printed) {
			text.WriteString(printed + "\n")
		}
	}
}

var (
	shellEvent = regexp.MustCompile(`^WatchedEvent state:\w+ type:(\w+) path:(.*)$`)
	shellStat  = regexp.MustCompile(`(?m)^mZxid = 0x(\w+)\n(?:.*\n)*?dataVersion = (-?\d+)$`)
	shellData  = regexp.MustCompile(`(?m)^(?:server\..*\n)+version=\w+$`)
	shellCode  = regexp.MustCompile(`KeeperErrorCode = (\w+)`)
)

// sort reports whether a line is not part of an answer. It keeps events of znodes.
func (c *shellClient) sort(line string) bool {
	m := shellEvent.FindStringSubmatch(line)
	if m != nil && m[1] != "None" {
		c.events = append(c.events, line)
	}
	return m != nil
}

// shellTexts are the texts that the shell has for codes.
var shellTexts = map[string]string{"Insufficient permission": "-102", "version No is not valid": "-103", "Arguments are not valid": "-8",
	"No quorum of new config": "-13", "Another reconfiguration": "-14", "Reconfig is disabled": "-123"}

func shellConfig(text string) []string {
	data, stat := shellData.FindString(text), shellStat.FindStringSubmatch(text)
	if data != "" && stat != nil {
		mzxid, err := strconv.ParseInt(stat[1], 16, 64)
		if err == nil {
			return []string{"0", strconv.FormatInt(mzxid, 10), stat[2], strings.ReplaceAll(data, "\n", "|")}
		}
	}
	for start, code := range shellTexts {
		if strings.Contains(text, start) {
			return []string{code}
		}
	}
	if m := shellCode.FindStringSubmatch(text); m != nil {
		for code, name := range outcomes {
			if name == m[1] {
				return []string{code}
			}
		}
	}
	return []string{text}
}
