package shell

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

const patience = testkit.Patience

// run is like sh, but returns stdout and stderr separately, and limits the time.
func run(t *testing.T, ctx context.Context, stdin io.Reader, args ...string) (code int, out, err string) {
	t.Helper()
	var o, e safeBuffer
	done := make(chan int, 1)
	go func() { done <- Run(ctx, args, stdin, &o, &e) }()
	select {
	case code = <-done:
	case <-time.After(patience):
		t.Fatalf("the shell hangs; it printed %q and %q", o.String(), e.String())
	}
	return code, o.String(), e.String()
}

func expect(t *testing.T, what string, code int, out, err string, wantCode int, wantOut, wantErr string) {
	t.Helper()
	if code != wantCode || out != wantOut || err != wantErr {
		t.Errorf("%s: exit code %d, printed %q and %q;\nwant %d, %q and %q", what, code, out, err, wantCode, wantOut, wantErr)
	}
}

// A single command prints its answer and nothing else.
func TestOneCommand(t *testing.T) {
	server := start(t).Addr().String()
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"create", "/a", "two words"}, 0, "", "Created /a\n"},
		{[]string{"get", "/a"}, 0, "two words\n", ""},
		{[]string{"get", "-b", "/a"}, 0, "dHdvIHdvcmRz\n", ""},
		{[]string{"get", "-x", "/a"}, 0, hexdump([]byte("two words")) + "\n", ""},
		{[]string{"set", "-b", "/a", "AAEC/w=="}, 0, "", ""},
		{[]string{"get", "/a"}, 0, "\x00\x01\x02\xff\n", ""},
		{[]string{"set", "-b", "/a", "%"}, 2, "", "illegal base64 data at input byte 0\n"},
		{[]string{"get", "/x"}, 1, "", "Node does not exist: /x\n"},
		{[]string{"get"}, 2, "", "get [-s] [-w] [-b] [-x] path\n"},
		{[]string{"get", "x"}, 1, "", "Path must start with / character\n"},
		{[]string{"delete", "-v", "x", "/a"}, 2, "", "-v argument must be an int value\n"},
		{[]string{"delete", "/a", "7"}, 1, "", "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.\nversion No is not valid : /a\n"},
		{[]string{"create", "/b", "x"}, 0, "", "Created /b\n"},
		{[]string{"delete", "/b", "-1"}, 0, "", "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.\n"},
		{[]string{"delete", "/b", "-x"}, 2, "", "Unrecognized option: -x\n"},
		{[]string{"ls", "/", "watch"}, 0, "[a, zookeeper]\n", "'ls path [watch]' has been deprecated. Please use 'ls [-w] path' instead.\n"},
		{[]string{"get", "-s", "/nope", "watch"}, 1, "", "'get path [watch]' has been deprecated. Please use 'get [-s] [-w] path' instead.\nNode does not exist: /nope\n"},
		{[]string{"create", "-e", "/eph"}, 0, "", "Created /eph\n"},
		{[]string{"stat", "/eph"}, 1, "", "Node does not exist: /eph\n"}, // the session that owned it is closed
		{[]string{"addauth", "bogus", "x"}, 1, "\nWATCHER::\n\nWatchedEvent state:AuthFailed type:None path:null\n", "KeeperErrorCode = AuthFailed\n"},
		{[]string{"listquota", "/a"}, 1, "", "absolute path is /zookeeper/quota/a/zookeeper_limits\nquota for /a does not exist.\n"},
		{[]string{"create", "/keep", "x", "world:anyone:crwa"}, 0, "", "Created /keep\n"},
		{[]string{"create", "/keep/child"}, 0, "", "Created /keep/child\n"},
		{[]string{"deleteall", "/keep"}, 1, "", "Failed to delete some node(s) in the subtree!\nCause: Insufficient permission : /keep/child\n"},
		{[]string{"deleteall", "/keep", "-b", "0"}, 1, "", "Insufficient permission : /keep/child\n"},
		{[]string{"setAcl", "-R", "/keep", "bogus:x:r"}, 1, "", "Acl is not valid : /keep\nAcl is not valid : /keep/child\n"},
		{[]string{"redo", "x"}, 2, "", "redo cmdno\n"},
		{[]string{"quit"}, 0, "", ""},
	} {
		code, out, err := run(t, t.Context(), strings.NewReader(""), append([]string{"-server", server}, c.args...)...)
		expect(t, strings.Join(c.args, " "), code, out, err, c.code, c.out, c.err)
	}
	code, out, err := run(t, t.Context(), strings.NewReader(""), "-server", server+"/chroot", "-r", "-waitforconnection", "-timeout", "60000", "ls", "/")
	expect(t, "with a chroot that is not there", code, out, err, 1, "", "Node does not exist: /\n")
	code, out, err = run(t, t.Context(), strings.NewReader(""), "-server", server+"/keep", "setquota", "-n", "5", "/child")
	expect(t, "a quota in a chroot", code, out, err, 1, "", "Quotas are set by whole paths: connect without the chroot /keep.\n")
	code, out, err = run(t, t.Context(), strings.NewReader("create /r\ncreate /r/a\ncreate /r/a/b\nconnect "+server+"/r\ndeleteall /\nconnect "+server+"\nstat /r"), "-server", server)
	expect(t, "deleteall of a chroot", code, strings.ReplaceAll(out, closed, ""), err, 1, "", "Created /r\nCreated /r/a\nCreated /r/a/b\nNode does not exist: /r\n")
}

const closed = "\nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\n"

// A fullDisk refuses every Write.
type fullDisk struct{ safeBuffer }

func (d *fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// If output is lost, the command has failed. A script must not mistake half of the data for all of
// it.
func TestOutputIsLost(t *testing.T) {
	server := start(t).Addr().String()
	var e safeBuffer
	code := Run(t.Context(), []string{"-server", server, "ls", "/"}, strings.NewReader(""), &fullDisk{}, &e)
	expect(t, "a full disk", code, "", e.String(), 1, "", "Output is lost: no space left on device\n")
	code = Run(t.Context(), []string{"-server", server, "ls"}, strings.NewReader(""), &fullDisk{}, &fullDisk{})
	if code != exitUsage {
		t.Errorf("exit code %d", code)
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"-server"}, "Error: no argument found for option -server"},
		{[]string{"-timeout"}, "Error: no argument found for option -timeout"},
		{[]string{"-timeout", "x"}, `-timeout is "x": want milliseconds`},
		{[]string{"-timeout", "0"}, `-timeout is "0": want milliseconds`},
		{[]string{"-bogus"}, "no such flag: -bogus"},
		{[]string{"-server", "a:b"}, `server "a:b": want host:port`},
		{[]string{"-server", "a/b/"}, `server "a/b/": Path must not end with / character`},
	} {
		code, out, err := run(t, t.Context(), strings.NewReader(""), c.args...)
		expect(t, strings.Join(c.args, " "), code, out, err, 2, "", c.err+"\n"+usageLine+"\n")
	}
	code, out, err := run(t, t.Context(), strings.NewReader(""), "-h")
	if code != 0 || err != "" || !strings.HasPrefix(out, usageLine+"\n\taddWatch ") {
		t.Errorf("help: %d %q %q", code, out, err)
	}
}

// A script returns the exit code of its last command.
func TestScript(t *testing.T) {
	server := start(t).Addr().String()
	for _, c := range []struct {
		script string
		code   int
		out    string
		err    string
	}{
		{"", 0, "", ""},
		{"\n   \nls /\n\n", 0, "[zookeeper]\n", ""},
		{"get /nope\nls /", 0, "[zookeeper]\n", "Node does not exist: /nope\n"},
		{"ls /\nget /nope", 1, "[zookeeper]\n", "Node does not exist: /nope\n"},
		{"get /nope\nquit\nls /", 1, "", "Node does not exist: /nope\n"},
		{"get\n", 2, "", "get [-s] [-w] [-b] [-x] path\n"},
		{"close\nget /nope", 1, "\nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\nNot connected\n", ""},
		{"close\nconnect\nls /", 0, "\nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\n[zookeeper]\n", ""},
		{"connect " + server + "\nls /", 0, "\nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\n[zookeeper]\n", ""},
		{"connect a:b", 2, "", "server \"a:b\": want host:port\n"},
		{"ls /\r\n", 0, "[zookeeper]\n", ""},
		{"get " + strings.Repeat("x", lineMax) + "\n", 1, "", fmt.Sprintf("A line is longer than %d bytes\n", lineMax)},
	} {
		code, out, err := run(t, t.Context(), strings.NewReader(c.script), "-server", server)
		expect(t, fmt.Sprintf("%.40q", c.script), code, out, err, c.code, c.out, c.err)
	}
}

func TestNoServer(t *testing.T) {
	const server = "127.0.0.1:1" // nobody listens there
	code, out, err := run(t, t.Context(), strings.NewReader(""), "-server", server, "get", "/a")
	if code != 1 || out != "" || !strings.HasPrefix(err, "KeeperErrorCode = ConnectionLoss for /a\nCause: "+server+": ") || !strings.Contains(err, "refused") {
		t.Errorf("%d %q %q", code, out, err)
	}
	code, out, err = run(t, t.Context(), strings.NewReader("sync /\nls /"), "-server", server)
	if code != 1 || out != "Sync has failed. rc=-4\n" || !strings.HasPrefix(err, "KeeperErrorCode = ConnectionLoss for /\nCause: ") {
		t.Errorf("%d %q %q", code, out, err)
	}
	for ms := 200; ; ms *= 2 { // on a busy machine it may not have tried yet
		began := time.Now()
		code, out, err = run(t, t.Context(), strings.NewReader(""), "-server", server, "-timeout", strconv.Itoa(ms), "-waitforconnection", "get", "/a")
		if took := time.Since(began); took < time.Duration(ms)*time.Millisecond {
			t.Errorf("it waits %v", took)
		}
		if err == "KeeperErrorCode = ConnectionLoss\n" && ms < 60_000 {
			continue
		}
		if code != 1 || out != "" || !strings.HasPrefix(err, "KeeperErrorCode = ConnectionLoss\nCause: "+server+": ") {
			t.Errorf("%d %q %q", code, out, err)
		}
		break
	}
	// The server accepts the connection and sends nothing.
	silent := serve(t, func(_ int, c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	code, _, err = run(t, t.Context(), strings.NewReader(""), "-server", silent, "-timeout", "200", "get", "/a")
	if code != 1 || !strings.HasPrefix(err, "KeeperErrorCode = ConnectionLoss for /a\n") {
		t.Errorf("%d %q", code, err)
	}
}

// serve starts a fake server and returns its address. do gets each connection with its number.
func serve(t *testing.T, do func(i int, c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close() })
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				do(i, c)
			}()
		}
	}()
	return l.Addr().String()
}

// welcome answers a handshake. If timeout is 0, it says that the session has expired.
func welcome(c net.Conn, timeout int32) {
	if _, err := wire.ReadFrame(c, nil, 1<<20); err != nil {
		return
	}
	r := wire.ConnectResponse{Timeout: timeout, Password: make([]byte, 16)}
	if timeout > 0 {
		r.SessionID = 7
	}
	_, _ = c.Write(r.AppendFrame(nil))
}

// next reads the next request that is not a ping.
func next(c net.Conn) (q wire.Request, ok bool) {
	for {
		f, err := wire.ReadFrame(c, nil, 1<<20)
		if err != nil {
			return q, false
		}
		if _, err := q.DecodeHeader(f); err == nil && q.Op != wire.OpPing {
			return q, true
		}
	}
}

// The connection is lost while a command waits for its answer.
func TestConnectionLost(t *testing.T) {
	server := serve(t, func(_ int, c net.Conn) {
		welcome(c, 10_000)
		next(c)
	})
	code, out, err := run(t, t.Context(), strings.NewReader(""), "-server", server, "get", "/a")
	want := "KeeperErrorCode = ConnectionLoss for /a\nCause: " + server + ": the server closed the connection\n"
	expect(t, "get", code, out, err, 1, "\nWATCHER::\n\nWatchedEvent state:Disconnected type:None path:null\n", want)
}

// The server keeps the session and answers no request.
func TestNoAnswer(t *testing.T) {
	server := serve(t, func(_ int, c net.Conn) {
		welcome(c, 60_000)
		next(c)
		next(c)
	})
	// On a busy machine the command may not be sent in time. Then nobody has lost its outcome.
	for ms := 200; ; ms *= 2 {
		code, out, err := run(t, t.Context(), strings.NewReader(""), "-server", server, "-timeout", strconv.Itoa(ms), "get", "/a")
		if !strings.HasPrefix(err, "KeeperErrorCode = ConnectionLoss for /a\n") || ms > 60_000 {
			expect(t, "get", code, out, err, 1, "", "KeeperErrorCode = OperationTimeout for /a\n")
			return
		}
	}
}

func TestSessionExpired(t *testing.T) {
	var comings atomic.Int32
	server := serve(t, func(i int, c net.Conn) {
		comings.Add(1)
		switch i {
		case 0:
			welcome(c, 10_000)
			next(c) // then the server closes the connection
		case 1:
			welcome(c, 0)
		default:
			welcome(c, 10_000)
			q, _ := next(c)
			r := wire.Reply{Xid: q.Xid}
			r.Err = wire.NoNode
			_, _ = c.Write(r.AppendFrame(nil))
			next(c)
		}
	})
	in, script := io.Pipe()
	go func() {
		fmt.Fprintln(script, "get /a")
		for end := time.Now().Add(patience); comings.Load() < 2 && time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		}
		fmt.Fprintln(script, "get /b") // may or may not wait when the session expires
		fmt.Fprintln(script, "get /c")
		fmt.Fprintln(script, "connect")
		fmt.Fprintln(script, "get /d")
		_ = script.Close()
	}()
	code, out, err := run(t, t.Context(), in, "-server", server)
	out = strings.ReplaceAll(out, "\nWATCHER::\n\nWatchedEvent ", "")
	if want := "state:Disconnected type:None path:null\nstate:Expired type:None path:null\nNot connected\n"; code != 1 || !strings.HasPrefix(out, want) {
		t.Errorf("%d %q, want %q", code, out, want)
	}
	err = strings.Replace(err, "KeeperErrorCode = Session expired for /b\n", "", 1)
	want := "KeeperErrorCode = ConnectionLoss for /a\nCause: " + server + ": the server closed the connection\nNode does not exist: /d\n"
	if err != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// stuck starts a server that reports requests to asked, and never answers them.
func stuck(t *testing.T, asked chan<- struct{}) string {
	t.Helper()
	return serve(t, func(_ int, c net.Conn) {
		welcome(c, 60_000)
		if _, ok := next(c); ok {
			asked <- struct{}{}
			next(c)
		}
	})
}

func interrupt() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGINT) }

// A signal ends the shell, and so does the end of the context, while the shell waits for a line and
// while a command runs.
func TestInterrupted(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := stuck(t, asked)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-asked; interrupt() }()
	code, out, err := run(t, ctx, strings.NewReader(""), "-server", server, "-timeout", "600000", "get", "/a")
	expect(t, "SIGINT", code, out, err, 130, "", "Interrupted\n")

	in, script := io.Pipe()
	defer script.Close()
	go func() { fmt.Fprintln(script, "get /a"); <-asked; cancel() }()
	code, out, err = run(t, ctx, in, "-server", server, "-timeout", "600000")
	expect(t, "the end of ctx", code, out, err, 130, "", "Interrupted\n")

	quiet, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	code, out, err = run(t, quiet, in, "-server", server, "-timeout", "200")
	expect(t, "without a command", code, out, err, 130, "", "")
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"":                       "",
		" \t":                    "",
		"ls /":                   "ls|/",
		"  ls\t/  ":              "ls|/",
		`set /a "b c"`:           "set|/a|b c",
		`set /a 'b "c"'`:         `set|/a|b "c"`,
		`set /a ""`:              "set|/a|",
		`set /a b"c d"`:          `set|/a|b"c|d"`,
		`set /a "b"c`:            "set|/a|b|c",
		`set /a "b c`:            "set|/a|b|c",
		`set /a 'it''s'`:         "set|/a|it|s",
		"create /ü \"ö\u00a0ö\"": "create|/ü|ö\u00a0ö",
	} {
		if got := strings.Join(words(line), "|"); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestParseArgs(t *testing.T) {
	for _, c := range []struct{ spec, line, want string }{
		{"s w", "get /a", "get|/a"},
		{"s w", "get -s /a -w", "get|/a s w"},
		{"s w", "get -sw /a", "get|/a s w"},
		{"s w", "get -sz /a", "Unrecognized option: -sz"},
		{"s w", "get --s /a", "Unrecognized option: --s"},
		{"s w", "get -- -s", "get|-s"},
		{"s w", "get -", "get|-"},
		{"s w", "get -1", "Unrecognized option: -1"},
		{"v= #", "delete /a -1", "delete|/a|-1"},
		{"v= #", "delete -v -1 /a", "delete|/a v=-1"},
		{"v= s", "set -v 1 /a", "set|/a v=1"},
		{"v= s", "set -v1 /a", "set|/a v=1"},
		{"v= s", "set -v=1 /a", "set|/a v=1"},
		{"v= s", "set -sv 1 /a", "set|/a s v=1"},
		{"v= s", "set -v -1 /a", "set|/a v=-1"},
		{"v= s", "set -v -s /a", "Missing argument for option: v"},
		{"v= s", "set /a -v", "Missing argument for option: v"},
		{"v= s", "set -v -x /a", "set|/a v=-x"},
		{"add= file=", "reconfig -add x -add y -file f", "reconfig add=x,y file=f"},
		{"n= | b=", "x", "x"},
		{"n=|b=", "q -n 1 -b 2", "The option 'b' was specified but an option from this group has already been selected: 'n'"},
		{"n=|b=", "q -n 1 -n 2", "q n=1,2"},
	} {
		got := ""
		if a, err := parseArgs(c.spec, words(c.line)); err != nil {
			got = err.Error()
		} else {
			got = strings.Join(a.words, "|")
			for _, f := range strings.FieldsFunc(c.spec, func(r rune) bool { return strings.ContainsRune(" |=", r) }) {
				if v := a.flags[f]; len(v) > 0 {
					got += " " + f + "=" + strings.Join(v, ",")
				} else if a.has(f) {
					got += " " + f
				}
			}
		}
		if want := c.want; got != want && !strings.Contains(c.spec, "v= s") || strings.Contains(c.spec, "v= s") && sorted(got) != sorted(want) {
			t.Errorf("%s: %q, want %q", c.line, got, want)
		}
	}
}

// sorted sorts the letters, because the order of flags does not matter.
func sorted(s string) string {
	f := strings.Fields(s)
	for i := range f {
		for j := i + 1; j < len(f); j++ {
			if f[j] < f[i] {
				f[i], f[j] = f[j], f[i]
			}
		}
	}
	return strings.Join(f, " ")
}

func TestHexdump(t *testing.T) {
	const want = `         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
|00000000| 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 |0123456789abcdef|
|00000010| 00 7f 80 ff                                     |....            |
+--------+-------------------------------------------------+----------------+`
	if got := hexdump([]byte("0123456789abcdef\x00\x7f\x80\xff")); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	if hexdump(nil) != "" {
		t.Error("something of nothing")
	}
}

func TestAddresses(t *testing.T) {
	const config = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:participant;2182\nserver.3=c:2888:3888\nversion=100000000"
	if got := addresses(config); got != "100000000 0.0.0.0:2181,0.0.0.0:2182" {
		t.Error(got)
	}
}
