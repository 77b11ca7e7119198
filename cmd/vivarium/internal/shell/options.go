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

// options are the shell's flags and the command after them. The flags have zkCli's names.
type options struct {
	server   string
	timeout  time.Duration
	readOnly bool
	wait     bool // wait for a connection first
	tls      *tls.Config
	help     bool
	command  []string // a single command to run; nil if there is none
}

// parseOptions parses the flags. The command begins at the first word that is not a flag.
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

// set sets an option to the value of its flag.
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
		if o.tls, err = client.ReadTLS(value); err != nil {
			return fmt.Errorf("-client-configuration: %w", err)
		}
	}
	return nil
}

// words splits a line into words as zkCli does. White space separates words. A word that begins
// with a quote ends at the next quote of the same kind. A quote without a second one is dropped.
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

// args are a command's words and flags.
type args struct {
	words []string // without flags; the first names the command
	flags map[string][]string
}

func (a *args) has(flag string) bool { _, ok := a.flags[flag]; return ok }

// value returns a flag's first value, or "" if there is none.
func (a *args) value(flag string) string {
	if v := a.flags[flag]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// number returns a flag's value as a number, or preset if the flag is not given.
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

// A usageError means that a command was not understood.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, a ...any) error { return usageError{fmt.Sprintf(format, a...)} }

// parseArgs separates flags and words by the rules of Apache's commons-cli, which zkCli uses. Flags
// may stand anywhere before "--". Several flags without a value may share one word. A value follows
// its flag directly, or after a space or "=".
//
// The spec names a command's flags. A "=" follows a flag that takes a value. A "|" separates flags
// that exclude each other. A "#" says that a negative number is a word.
func parseArgs(spec string, list []string) (*args, error) {
	p := parser{takes: make(map[string]bool), rivals: make(map[string]bool), args: args{flags: make(map[string][]string)}}
	for _, group := range strings.Fields(spec) {
		if group == "#" {
			p.numbers = true
			continue
		}
		for f := range strings.SplitSeq(group, "|") {
			name, takes := strings.CutSuffix(f, "=")
			p.takes[name] = takes
			p.rivals[name] = strings.ContainsRune(group, '|') // a command has at most one group
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
	takes   map[string]bool // for each flag, whether it takes a value
	rivals  map[string]bool // for each flag, whether it is in the group of flags that exclude each other
	numbers bool            // a negative number is a word
	open    string          // the flag whose value comes next, or ""
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
	if p.numbers && isNumber(w) {
		p.words = append(p.words, w)
		return nil
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

// flag records a flag, and its value if the same word contains one.
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

func isNumber(w string) bool {
	_, err := strconv.ParseFloat(w, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// isFlag reports whether a word cannot be a flag's value.
func (p *parser) isFlag(w string) bool {
	name, ok := strings.CutPrefix(w, "-")
	if !ok || name == "" {
		return false
	}
	if isNumber(w) {
		return false
	}
	name, _, _ = strings.Cut(name, "=")
	_, whole := p.takes[name]
	_, first := p.takes[w[1:2]]
	return whole || first
}
