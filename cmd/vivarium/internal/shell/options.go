package shell

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
)

const usageLine = "vivarium shell -server host:port[,host:port][/chroot] [-timeout ms] [-r] [-waitforconnection] " +
	"[-client-configuration properties-file] [cmd args...]"

// options are what the shell is started with. Their names are zkCli's.
type options struct {
	server   string
	timeout  time.Duration
	readOnly bool
	wait     bool // for a connection, before anything else
	tls      *tls.Config
	help     bool
	command  []string // to be run alone, or nil
}

// parseOptions reads the flags, which end where the command begins.
func parseOptions(args []string) (options, error) {
	o := options{server: "localhost:2181", timeout: client.DefaultTimeout}
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "-")
		if !ok {
			o.command = args[i:]
			break
		}
		switch name = strings.TrimPrefix(name, "-"); name {
		case "r":
			o.readOnly = true
		case "waitforconnection":
			o.wait = true
		case "h", "help":
			o.help = true
		case "server", "timeout", "client-configuration":
			if i++; i == len(args) {
				return o, fmt.Errorf("Error: no argument found for option -%s", name)
			}
			if err := o.set(name, args[i]); err != nil {
				return o, err
			}
		default:
			return o, fmt.Errorf("no such flag: %s", args[i])
		}
	}
	_, _, err := client.ParseServers(o.server)
	return o, err
}

// set takes the value of a flag that has one.
func (o *options) set(name, value string) (err error) {
	switch name {
	case "server":
		o.server = value
	case "timeout":
		ms, err := strconv.ParseInt(value, 10, 32)
		if err != nil || ms < 1 {
			return fmt.Errorf("-timeout is %q: want milliseconds", value)
		}
		o.timeout = time.Duration(ms) * time.Millisecond
	case "client-configuration":
		if o.tls, err = clientTLS(value); err != nil {
			return fmt.Errorf("-client-configuration: %w", err)
		}
	}
	return nil
}

// words splits a line as zkCli does: at white space, but where an argument begins with a quote at the next one of its kind. A quote
// without a second one is dropped.
func words(line string) []string {
	const space = " \t\n\v\f\r"
	var list []string
	for {
		line = strings.TrimLeft(line, space)
		if line == "" {
			return list
		}
		if q := line[0]; q == '"' || q == '\'' {
			if end := strings.IndexByte(line[1:], q); end >= 0 {
				list, line = append(list, line[1:1+end]), line[2+end:]
			} else {
				line = line[1:]
			}
			continue
		}
		end := strings.IndexAny(line, space)
		if end < 0 {
			end = len(line)
		}
		list, line = append(list, line[:end]), line[end:]
	}
}

// args are a command's words, told apart.
type args struct {
	words []string // without flags; the first is the command
	flags map[string][]string
}

func (a *args) has(flag string) bool { _, ok := a.flags[flag]; return ok }

// value is a flag's first value, or "".
func (a *args) value(flag string) string {
	if v := a.flags[flag]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// number is a flag's value as a number, or preset without the flag.
func (a *args) number(flag string, bits int, preset int64) (int64, error) {
	if !a.has(flag) {
		return preset, nil
	}
	n, err := strconv.ParseInt(a.value(flag), 10, bits)
	if err != nil {
		kind := "an int"
		if bits == 64 {
			kind = "a long"
		}
		return 0, usage("-%s argument must be %s value", flag, kind)
	}
	return n, nil
}

// A usageError says that a command was not understood.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, a ...any) error { return usageError{fmt.Sprintf(format, a...)} }

// parseArgs tells flags and words apart by the rules of Apache's commons-cli, which zkCli uses: flags may stand anywhere before "--",
// those without a value in one word, and a value behind its flag with or without a space or "=". The spec names a command's flags, with
// "=" behind those that take a value and "|" between those of which there may be one alone.
func parseArgs(spec string, list []string) (*args, error) {
	p := parser{takes: make(map[string]bool), rivals: make(map[string]bool), args: args{flags: make(map[string][]string)}}
	for _, group := range strings.Fields(spec) {
		for f := range strings.SplitSeq(group, "|") {
			name, takes := strings.CutSuffix(f, "=")
			p.takes[name] = takes
			p.rivals[name] = strings.ContainsRune(group, '|') // a command has one group at most
		}
	}
	for i, w := range list {
		if w == "--" && p.open == "" {
			p.words = append(p.words, list[i+1:]...)
			break
		}
		if err := p.word(w); err != nil {
			return nil, err
		}
	}
	if p.open != "" {
		return nil, usage("Missing argument for option: %s", p.open)
	}
	return &p.args, nil
}

type parser struct {
	args
	takes  map[string]bool // the flags there are, and whether they take a value
	rivals map[string]bool // those of which there may be one alone
	open   string          // the flag whose value comes next, or ""
}

func (p *parser) word(w string) error {
	if p.open != "" {
		if p.isFlag(w) {
			return usage("Missing argument for option: %s", p.open)
		}
		p.flags[p.open] = append(p.flags[p.open], w)
		p.open = ""
		return nil
	}
	name, ok := strings.CutPrefix(w, "-")
	if !ok || name == "" {
		p.words = append(p.words, w)
		return nil
	}
	if _, ok := p.takes[name]; ok {
		return p.flag(name, nil)
	}
	if name, value, ok := strings.Cut(name, "="); ok && p.takes[name] {
		return p.flag(name, &value)
	}
	for i := range name {
		f := name[i : i+1]
		takes, ok := p.takes[f]
		if !ok {
			return usage("Unrecognized option: %s", w)
		}
		if rest := name[i+1:]; takes && rest != "" {
			return p.flag(f, &rest)
		}
		if err := p.flag(f, nil); err != nil {
			return err
		}
	}
	return nil
}

// flag takes note of a flag, and of its value if that has come with it.
func (p *parser) flag(name string, value *string) error {
	for other := range p.flags {
		if other != name && p.rivals[name] && p.rivals[other] {
			return usage("The option '%s' was specified but an option from this group has already been selected: '%s'", name, other)
		}
	}
	if p.flags[name] == nil {
		p.flags[name] = []string{}
	}
	switch {
	case value != nil:
		p.flags[name] = append(p.flags[name], *value)
	case p.takes[name]:
		p.open = name
	}
	return nil
}

// isFlag reports whether a word cannot be a flag's value.
func (p *parser) isFlag(w string) bool {
	name, ok := strings.CutPrefix(w, "-")
	if !ok || name == "" {
		return false
	}
	if _, err := strconv.ParseFloat(w, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return false
	}
	name, _, _ = strings.Cut(name, "=")
	_, whole := p.takes[name]
	_, first := p.takes[w[1:2]]
	return whole || first
}
