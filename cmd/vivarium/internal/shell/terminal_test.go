package shell

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A typist uses a terminal made of two pipes.
type typist struct {
	t    *testing.T
	keys *io.PipeWriter
	seen *safeBuffer
	past *recall
	at   int // how much of seen the test has looked at
	code chan int
}

func sit(t *testing.T, ctx context.Context, past *recall, server string) *typist {
	t.Helper()
	in, keys := io.Pipe()
	y := &typist{t: t, keys: keys, seen: &safeBuffer{}, past: past, code: make(chan int, 1)}
	o, err := parseOptions([]string{"-server", server, "-timeout", fmt.Sprint(patience.Milliseconds())})
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{options: o, out: &output{to: y.seen}, err: &output{to: y.seen}, interactive: true}
	s.printWatches.Store(true)
	go func() {
		y.code <- s.run(ctx, func() {
			s.edit(ctx, past, screen{in, y.seen, func() (func(), int, int, error) { return func() {}, 80, 24, nil }})
		})
	}()
	t.Cleanup(func() { _ = keys.Close() })
	return y
}

func (y *typist) press(keys string) {
	y.t.Helper()
	if _, err := io.WriteString(y.keys, keys); err != nil {
		y.t.Fatal(err)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// sees waits until the terminal shows a text after what the test has looked at.
func (y *typist) sees(what string) {
	y.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		text := strings.ReplaceAll(escapes.ReplaceAllString(y.seen.String(), ""), "\r\n", "\n")
		if i := strings.Index(text[min(y.at, len(text)):], what); i >= 0 {
			y.at += i + len(what)
			return
		}
	}
	y.t.Fatalf("%q does not come:\n%s", what, y.seen.String())
}

func (y *typist) ends(want int) {
	y.t.Helper()
	select {
	case code := <-y.code:
		if code != want {
			y.t.Errorf("exit code %d, want %d", code, want)
		}
	case <-time.After(patience):
		y.t.Fatal("the shell does not end")
	}
}

func TestTerminal(t *testing.T) {
	server := start(t).Addr().String()
	file := filepath.Join(t.TempDir(), "history")
	y := sit(t, t.Context(), readRecall(file), server)
	prompt := func(n int) string { return fmt.Sprintf("[zk: %s(CONNECTED) %d] ", server, n) }
	y.sees("WatchedEvent state:SyncConnected type:None path:null")
	y.sees(prompt(0))
	y.press("cre\t/a one\r") // completed, with a space
	y.sees("create /a one")
	y.sees("Created /a\n")
	y.sees(prompt(1))
	y.press("create /zebra\r")
	y.sees(prompt(2))
	y.press("create /zoo\r")
	y.sees(prompt(3))
	y.press("get /z\t")
	y.sees("/zebra  /zoo  /zookeeper\n")
	y.sees("get /z")
	y.press("e\t\r")
	y.sees("null\n") // the data of /zebra
	y.sees(prompt(4))
	y.press("get \t\tx\x03ls /a\r") // nothing to complete; Ctrl-C clears the line
	y.sees("[]\n")
	y.sees(prompt(5))
	y.press("get -w /a\r")
	y.sees("one\n")
	y.sees(prompt(6))
	y.press("get /half")
	y.sees("get /half")
	if code, out := sh(t, "", "-server", server, "set", "/a", "two"); code != 0 {
		t.Fatal(out)
	}
	y.sees("WatchedEvent state:SyncConnected type:NodeDataChanged path:/a\n") // the line that is being typed stays
	y.sees(prompt(6) + "get /half")
	y.press("\r")
	y.sees("Node does not exist: /half\n")
	y.sees(prompt(7))
	y.press("addauth digest bob:secret\r")
	y.sees(prompt(8))
	y.press("\x1b[A\x1b[A\r") // up twice: the addauth is not in the history
	y.sees("get -w /a")
	y.sees("two\n")
	y.sees(prompt(9))
	y.press("\x04") // Ctrl-D
	y.ends(0)
	b, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(b), "secret") || !strings.Contains(string(b), "create /zebra\n") {
		t.Errorf("the history is %q, %v", b, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}

	y = sit(t, t.Context(), readRecall(file), server)
	y.sees(prompt(0))
	y.press("\x1b[A\x1b[A\r") // from the run before
	y.sees("Node does not exist: /half\n")
	y.press("quit\r")
	y.ends(1)
}

// Ctrl-C as a signal ends the command, not the shell. The end of ctx ends the shell.
func TestTerminalInterrupted(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := stuck(t, asked)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	y := sit(t, ctx, &recall{}, server)
	y.sees("0] ")
	y.press("get /a\r")
	<-asked
	interrupt()
	y.sees("Interrupted\n")
	y.sees("1] ")
	cancel()
	y.ends(exitInterrupted)
}

func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	r := readRecall(file)
	for i := range 3 * historyMax {
		r.Add(fmt.Sprint("get /", i))
		r.Add(fmt.Sprint("get /", i))
	}
	r.Add("")
	r.Add("  addauth digest x:y")
	if r.Len() != historyMax || r.At(0) != fmt.Sprint("get /", 3*historyMax-1) || r.At(1) != fmt.Sprint("get /", 3*historyMax-2) {
		t.Errorf("%d lines, %q", r.Len(), r.At(0))
	}
	again := readRecall(file)
	if again.Len() != historyMax || again.At(0) != r.At(0) || again.At(historyMax-1) != r.At(historyMax-1) {
		t.Errorf("then %d lines, %q", again.Len(), again.At(0))
	}
	b, err := os.ReadFile(file)
	if err != nil || strings.Count(string(b), "\n") != historyMax {
		t.Errorf("the file has %d lines, %v", strings.Count(string(b), "\n"), err)
	}
	none := readRecall(filepath.Join(file, "not", "a", "folder"))
	none.Add("ls /")
	if none.Len() != 1 || none.At(0) != "ls /" {
		t.Error("a history without a file does not work")
	}

	var h history
	for i := range 5 * historyMax {
		h.add(fmt.Sprint(i))
	}
	if h.line(5*historyMax-1) != fmt.Sprint(5*historyMax-1) || h.line(0) != "" || h.line(5*historyMax) != "" || len(h.lines) > 2*historyMax {
		t.Errorf("%q of %d", h.line(5*historyMax-1), len(h.lines))
	}
}

// A line that a Terminal has cut off is not run: half of the data must not be written.
func TestTerminal_LongLine(t *testing.T) {
	server := start(t).Addr().String()
	y := sit(t, t.Context(), &recall{}, server)
	y.sees(") 0] ")
	y.press("create /long " + strings.Repeat("x", 5000) + "\r")
	y.sees("cut off")
	y.press("ls /\r")
	y.sees("[zookeeper]\n")
	y.press("\x04")
	y.ends(exitOK)
}

// A name with a space is not completed. Without quotes it would be two words, and the first one may
// name another znode.
func TestTerminal_CompletesWordsOnly(t *testing.T) {
	server := start(t).Addr().String()
	if code, out := sh(t, "create /sp\ncreate '/sp/a ce' x\ncreate /sp/b'c y", "-server", server); code != 0 {
		t.Fatal(out)
	}
	y := sit(t, t.Context(), &recall{}, server)
	y.sees(") 0] ")
	y.press("get /sp/a\t\r")
	y.sees("Node does not exist: /sp/a\n")
	y.press("get /sp/b\t\r")
	y.sees("y\n")
	y.press("\x04")
	y.ends(exitOK)
	if strings.Contains(y.seen.String(), "deprecated") { // the warning about a second word
		t.Error(y.seen.String())
	}
}
