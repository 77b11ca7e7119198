package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A screen is a terminal on which the user types lines.
type screen struct {
	io.Reader
	io.Writer
	// raw makes the terminal pass on every key at once, until restore is called. It also returns
	// the terminal's size.
	raw func() (restore func(), width, height int, err error)
}

func (s *shell) onTerminal(ctx context.Context, in, out *os.File) {
	fd := int(in.Fd())
	s.edit(ctx, openRecall(), screen{in, out, func() (func(), int, int, error) {
		was, err := term.MakeRaw(fd)
		if err != nil {
			return nil, 0, 0, err
		}
		width, height, err := term.GetSize(fd)
		if err != nil || width < 1 || height < 1 { // a terminal that does not know its size says 0
			width, height = 80, 24
		}
		return func() { _ = term.Restore(fd, was) }, width, height, nil
	}})
}

// typedMax is the length at which a Terminal silently drops what follows.
const typedMax = 4096

// edit runs the lines that the user types, until quit, Ctrl-D or the end of ctx. Ctrl-C clears the
// line that is being typed, or ends the running command.
func (s *shell) edit(ctx context.Context, past *recall, on screen) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt) // always, because Ctrl-C between commands must not end the process
	defer signal.Stop(interrupts)
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&keys{from: on}, on}, "")
	t.History = past
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		return s.complete(ctx, t, line, pos)
	}
	s.println("Welcome to Vivarium! `help` lists the commands.")
	for !s.quitting {
		_ = s.ready(ctx, time.Second) // so that the prompt shows the connection
		line, ok := s.typed(ctx, t, on)
		if !ok {
			return
		}
		if utf8.RuneCountInString(line) >= typedMax {
			s.exit = s.fail(ctx, usage("the line was cut off: a terminal passes on %d characters at most. Use a pipe, or give the command after the flags", typedMax-1))
			continue
		}
		select {
		case <-interrupts: // it came too late for the last command
		default:
		}
		cmd, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer cancel()
			select {
			case <-interrupts:
			case <-done:
			}
		}()
		s.execute(cmd, line)
		close(done)
	}
}

// typed returns the next line, or false if there is none.
func (s *shell) typed(ctx context.Context, t *term.Terminal, on screen) (string, bool) {
	s.out.set(t) // t keeps the line that is being typed below all output
	s.err.set(t)
	defer s.out.set(on)
	defer s.err.set(on)
	restore, width, height, err := on.raw()
	if err != nil {
		s.exit = s.fail(ctx, err)
		return "", false
	}
	defer restore()
	_ = t.SetSize(width, height)
	t.SetPrompt(s.prompt())
	return s.await(ctx, t)
}

func (s *shell) await(ctx context.Context, t *term.Terminal) (string, bool) {
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() { // may wait for a key for longer than the shell runs
		line, err := t.ReadLine()
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		if r.err != nil && r.err != term.ErrPasteIndicator {
			t.SetPrompt("") // otherwise Write shows it again
			_, _ = t.Write([]byte("\n"))
			return "", false
		}
		return r.line, true
	case <-ctx.Done():
		return "", false
	}
}

func (s *shell) prompt() string {
	now, _ := s.zk.State()
	return "[zk: " + s.host + "(" + now.String() + ") " + strconv.Itoa(s.history.count) + "] "
}

// set changes where an output writes.
func (o *output) set(to io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = to
}

// keys turns Ctrl-C, on which a Terminal gives up, into the keys that clear the line: go to its
// end, and delete everything before the cursor.
type keys struct {
	from io.Reader
	rest []byte // read and not yet passed on
}

const (
	ctrlC = '\x03'
	ctrlE = '\x05'
	ctrlU = '\x15'
)

func (k *keys) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		var b [128]byte
		n, err := k.from.Read(b[:])
		if n == 0 {
			return 0, err
		}
		for _, c := range b[:n] {
			if c == ctrlC {
				k.rest = append(k.rest, ctrlE, ctrlU)
			} else {
				k.rest = append(k.rest, c)
			}
		}
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}

const (
	completeWait = 2 * time.Second // how long to wait for a server's list of names
	completeMost = 200             // how many names to show
)

// complete completes the word before the cursor: a path from the server's znodes, the first word
// from the commands. If several names are possible, it completes the part that they share. If they
// share nothing more, it shows them.
func (s *shell) complete(ctx context.Context, to io.Writer, line string, pos int) (string, int, bool) {
	from := strings.LastIndexAny(line[:pos], " \t") + 1
	word := line[from:pos]
	var found []string
	switch {
	case strings.HasPrefix(word, "/"):
		found = s.paths(ctx, word)
	case strings.TrimSpace(line[:from]) == "":
		for _, name := range names() {
			if strings.HasPrefix(name, word) {
				found = append(found, name+" ")
			}
		}
	}
	if len(found) == 0 {
		return line, pos, true
	}
	common := found[0]
	for _, f := range found[1:] {
		n := 0
		for n < len(common) && n < len(f) && common[n] == f[n] {
			n++
		}
		common = common[:n]
	}
	common = strings.ToValidUTF8(common, "") // names may share half a letter
	if common == word && len(found) > 1 {
		more := ""
		if len(found) > completeMost {
			more = "  and " + strconv.Itoa(len(found)-completeMost) + " more"
			found = found[:completeMost]
		}
		_, _ = io.WriteString(to, strings.Join(found, "  ")+more+"\n")
	}
	if len(common) < len(word) {
		common = word
	}
	return line[:from] + common + line[pos:], from + len(common), true
}

// paths returns the znodes whose paths begin with prefix, except those that need quotes.
func (s *shell) paths(ctx context.Context, prefix string) []string {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	cut := strings.LastIndexByte(prefix, '/')
	r, err := s.zk.Call(ctx, wire.Request{Operation: at(wire.OpGetChildren, parent(prefix[:cut]))})
	if err != nil {
		return nil
	}
	var found []string
	for _, name := range r.Names {
		if strings.HasPrefix(name, prefix[cut+1:]) && len(words("/"+name)) == 1 {
			found = append(found, prefix[:cut+1]+name)
		}
	}
	slices.Sort(found)
	return found
}

func parent(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}

// AskSecret asks a question on the terminal that stdin is, and returns the answer, which is not shown.
// An interrupt ends the process, with the terminal as it was.
func AskSecret(stdin io.Reader, stderr io.Writer, question string) (string, error) {
	in, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", errors.New("the standard input is no terminal to ask on")
	}
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	answered := make(chan struct{})
	go func() {
		select {
		case <-stop:
			_ = term.Restore(fd, before)
			os.Exit(exitInterrupted)
		case <-answered:
		}
	}()
	fmt.Fprint(stderr, question)
	answer, err := term.ReadPassword(fd)
	close(answered)
	signal.Stop(stop)
	fmt.Fprintln(stderr)
	return string(answer), err
}
