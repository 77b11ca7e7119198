package shell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // what Unix shells return after Ctrl-C
)

// Run runs `vivarium shell` and returns its exit code. The code is 1 if the last command failed, 2
// if the last command or args were not understood, 130 if ctx ended or a signal arrived, otherwise
// 0.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseOptions(args)
	if err != nil {
		fmt.Fprintf(stderr, "%v\n%s\n", err, usageLine)
		return exitUsage
	}
	s := &shell{options: o, out: &output{to: stdout}, err: &output{to: stderr}}
	s.printWatches.Store(true)
	if o.help {
		s.help(s.out)
		return exitOK
	}
	in, inOK := stdin.(*os.File)
	out, outOK := stdout.(*os.File)
	if s.interactive = o.command == nil && inOK && outOK && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())); s.interactive {
		ctx, stop := signals(ctx, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		return s.run(ctx, func() { s.onTerminal(ctx, in, out) })
	}
	ctx, stop := signals(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return s.run(ctx, func() {
		if o.command != nil {
			s.command(ctx, o.command)
			return
		}
		s.script(ctx, stdin)
	})
}

// signals returns a context that ends at the first signal. A second signal ends the process, which
// may be waiting for a server to close the session.
func signals(ctx context.Context, list ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, list...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// A shell is one run of the shell. One goroutine uses it; only event is called by another.
type shell struct {
	options
	out, err     *output
	interactive  bool
	printWatches atomic.Bool

	zk       *client.Client
	host     string // the server, as the user wrote it
	history  history
	exit     int // of the last command
	quitting bool
}

// run connects, calls do, and closes the session.
func (s *shell) run(ctx context.Context, do func()) int {
	if s.interactive {
		s.println("Connecting to " + s.server)
	}
	if err := s.connect(s.server); err != nil { // rare: parseOptions has checked the server
		s.errorln(err)
		return exitUsage
	}
	defer func() {
		s.printWatches.Store(false) // the user knows that the session closes
		_ = s.zk.Close()
	}()
	if s.wait {
		if err := s.ready(ctx, s.timeout); err != nil {
			return s.fail(ctx, err)
		}
	}
	do()
	if ctx.Err() != nil {
		return exitInterrupted
	}
	if err := s.out.err(); err != nil && s.exit == exitOK {
		s.errorln("Output is lost: " + err.Error())
		return exitFailed
	}
	return s.exit
}

// connect closes the present session, if any, and opens one with another server.
func (s *shell) connect(server string) error {
	servers, chroot, err := client.ParseServers(server)
	if err != nil {
		return usageError{err.Error()}
	}
	if s.zk != nil {
		_ = s.zk.Close()
	}
	fresh := true // only the client's goroutine uses it
	s.host = server
	s.zk, err = client.New(client.Config{Servers: servers, Chroot: chroot, Timeout: s.timeout, ReadOnly: s.readOnly, TLS: s.tls, Events: func(e client.Event) {
		first := fresh && (e.State == wire.StateSyncConnected || e.State == wire.StateConnectedReadOnly)
		fresh = false
		if s.interactive || !first { // a script does not want to know that it is connected
			s.event(e)
		}
	}})
	return err
}

func (s *shell) ready(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.zk.Ready(ctx)
}

// lineMax limits the length of a line in a script. A frame fits into it, with room to spare.
const lineMax = 4 << 20

// script runs the lines that it reads.
func (s *shell) script(ctx context.Context, in io.Reader) {
	lines, broken := make(chan string), make(chan error, 1)
	go func() { // may wait for a line for longer than the shell runs
		defer close(lines)
		r := bufio.NewScanner(in)
		r.Buffer(nil, lineMax)
		for r.Scan() {
			select {
			case lines <- r.Text():
			case <-ctx.Done():
				return
			}
		}
		broken <- r.Err()
	}()
	for !s.quitting {
		select {
		case line, ok := <-lines:
			if !ok {
				switch err := <-broken; {
				case errors.Is(err, bufio.ErrTooLong):
					s.exit = s.fail(ctx, sentence(fmt.Sprintf("A line is longer than %d bytes", lineMax)))
				case err != nil:
					s.exit = s.fail(ctx, err)
				}
				return
			}
			s.execute(ctx, line)
		case <-ctx.Done():
			return
		}
	}
}

// execute runs a line.
func (s *shell) execute(ctx context.Context, line string) {
	list := words(line)
	if len(list) == 0 {
		return
	}
	s.history.add(line)
	s.command(ctx, list)
}

// command runs a command and sets exit.
func (s *shell) command(ctx context.Context, list []string) {
	err := s.try(ctx, list)
	switch {
	case err != nil:
		s.exit = s.fail(ctx, err)
	case !s.quitting: // quit keeps the code of the command before it
		s.exit = exitOK
	}
}

func (s *shell) try(ctx context.Context, list []string) error {
	c, ok := commands[list[0]]
	if !ok {
		s.help(s.err)
		return usage("Command not found: Command not found %s", list[0])
	}
	a := &args{words: list}
	if c.flags != unread {
		var err error
		if a, err = parseArgs(c.flags, list); err != nil {
			return err
		}
	}
	if len(a.words) < c.least {
		return usage("%s %s", list[0], c.usage)
	}
	if c.remote {
		if now, _ := s.zk.State(); !now.Alive() {
			s.println("Not connected")
			return errSaid
		}
	}
	return c.run(s, ctx, a)
}

// errSaid is the error of a command that has printed already why it failed.
var errSaid = errors.New("said")

// A sentence is an error in zkCli's words.
type sentence string

func (e sentence) Error() string { return string(e) }

// fail prints an error and returns its exit code.
func (s *shell) fail(ctx context.Context, err error) int {
	switch {
	case err == errSaid:
		return exitFailed
	case ctx.Err() != nil:
		s.errorln("Interrupted")
		return exitInterrupted
	}
	s.errorln(describe(err))
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

// call sends one operation and waits for its answer, at most for -timeout.
func (s *shell) call(ctx context.Context, o wire.Operation) (wire.Reply, error) {
	return s.request(ctx, wire.Request{Operation: o})
}

func (s *shell) request(ctx context.Context, q wire.Request) (wire.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.zk.Call(ctx, q)
}

// A command is named by the first word of a line.
type command struct {
	usage  string // what may follow the name
	flags  string // see parseArgs
	least  int    // how many words it needs, including the name
	remote bool   // needs a session
	run    func(s *shell, ctx context.Context, a *args) error
}

// unread is the flags of a command that treats a word with a leading dash like any other word.
const unread = "unread"

var commands map[string]command

func init() { // redo and help use commands
	commands = map[string]command{
		"connect":      {"host:port", unread, 1, false, (*shell).connectTo},
		"help":         {"", unread, 1, false, func(s *shell, _ context.Context, _ *args) error { s.help(s.out); return nil }},
		"history":      {"", unread, 1, false, (*shell).showHistory},
		"printwatches": {"on|off", unread, 1, false, (*shell).printwatches},
		"quit":         {"", unread, 1, false, func(s *shell, _ context.Context, _ *args) error { s.quitting = true; return nil }},
		"redo":         {"cmdno", unread, 2, false, (*shell).redo},
		"version":      {"", "", 1, false, (*shell).version},

		"addauth":              {"scheme auth", "", 2, true, (*shell).addauth},
		"addWatch":             {addWatchUsage, "m=", 2, true, (*shell).addWatch},
		"close":                {"", unread, 1, true, (*shell).closeSession},
		"config":               {"[-c] [-w] [-s]", "c w s", 1, true, (*shell).config},
		"create":               {"[-s] [-e] [-c] [-t ttl] path [data] [acl]", "s e c t=", 2, true, (*shell).create},
		"delete":               {"[-v version] path", "v= #", 2, true, (*shell).delete},
		"deleteall":            {"path [-b batch size]", "b=", 2, true, (*shell).deleteall},
		"delquota":             {"[-n|-b|-N|-B] path", "n|b|N|B", 2, true, (*shell).delquota},
		"evict":                {"contender", "", 2, true, (*shell).evict},
		"get":                  {"[-s] [-w] [-b] [-x] path", "s w b x", 2, true, (*shell).get},
		"getAcl":               {"[-s] path", "s", 2, true, (*shell).getACL},
		"getAllChildrenNumber": {"path", "", 2, true, (*shell).getAllChildrenNumber},
		"getEphemerals":        {"path", "", 1, true, (*shell).getEphemerals},
		"listquota":            {"path", "", 2, true, (*shell).listquota},
		"locks":                {"path", "", 2, true, (*shell).locks},
		"ls":                   {"[-s] [-w] [-R] path", "? s w R", 1, true, (*shell).ls},
		"reconfig":             {reconfigUsage, "s v= file= members= add= remove=", 1, true, (*shell).reconfig},
		"removewatches":        {"path [-c|-d|-p|-r|-a] [-l]", "c d p r a l", 2, true, (*shell).removewatches},
		"revoke":               {"path", "", 2, true, (*shell).revoke},
		"set":                  {"path data [-s] [-v version] [-b]", "s v= b", 3, true, (*shell).set},
		"setAcl":               {"[-s] [-v version] [-R] path acl", "s v= R", 3, true, (*shell).setACL},
		"setquota":             {"-n|-b|-N|-B val path", "n=|b=|N=|B=", 1, true, (*shell).setquota},
		"stat":                 {"[-w] path", "w", 2, true, (*shell).statOf},
		"sync":                 {"path", "", 2, true, (*shell).sync},
		"whoami":               {"", unread, 1, true, (*shell).whoami},
	}
}

func names() []string {
	list := make([]string, 0, len(commands))
	for name := range commands {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (s *shell) help(to io.Writer) {
	var b strings.Builder
	b.WriteString(usageLine + "\n")
	for _, name := range names() {
		fmt.Fprintf(&b, "\t%s %s\n", name, commands[name].usage)
	}
	fmt.Fprint(to, b.String())
}

func (s *shell) connectTo(_ context.Context, a *args) error {
	server := s.host
	if len(a.words) > 1 {
		server = a.words[1]
	}
	return s.connect(server)
}

func (s *shell) printwatches(_ context.Context, a *args) error {
	if len(a.words) > 1 {
		s.printWatches.Store(a.words[1] == "on")
		return nil
	}
	now := "off"
	if s.printWatches.Load() {
		now = "on"
	}
	s.println("printwatches is " + now)
	return nil
}

// closeSession ends the session; connect begins another.
func (s *shell) closeSession(context.Context, *args) error { return s.zk.Close() }

func (s *shell) showHistory(context.Context, *args) error {
	const shown = 11 // as many as zkCli shows
	for i := max(s.history.count-shown, 0); i < s.history.count; i++ {
		s.printf("%d - %s\n", i, s.history.line(i))
	}
	return nil
}

func (s *shell) redo(ctx context.Context, a *args) error {
	i, err := strconv.ParseInt(a.words[1], 0, 32)
	if err != nil {
		return usage("redo %s", commands["redo"].usage)
	}
	line := s.history.line(int(i))
	list := words(line)
	switch {
	case i < 0 || int(i) >= s.history.count-1 || list == nil: // the last line is this redo
		return usage("Command index out of range")
	case list[0] == "redo":
		return usage("No redoing redos")
	}
	s.history.replace(line)
	return s.try(ctx, list)
}
