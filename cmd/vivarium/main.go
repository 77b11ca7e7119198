package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/shell"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // also for a config or a directory that cannot be used
)

// A command is named by the first argument. Its run returns the exit code.
type command struct {
	name, does string
	run        func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int
}

var commands = []command{
	{"serve", "run a member, with a port for ZooKeeper's clients", serve},
	{"shell", "talk to a server, Vivarium's or ZooKeeper's, like zkCli", shell.Run},
	{"members", "show the members of an ensemble, or remove one", askMembers},
	{"check", "verify the data directory of a stopped member", check},
	{"audit", "print who created, changed or deleted a znode, and when", printAudit},
	{"backup", "write a backup of the whole tree to a file", makeBackup},
	{"verify", "read a backup, and say whether it is sound and what it has", verify},
	{"export", "print the znodes of a backup or a member as lines of JSON", export},
	{"import", "create the znodes of a backup or of lines of JSON", importLines},
	{"convert", "make a backup of the data directory of a stopped ZooKeeper server", convert},
	{"copy", "copy a subtree from a living ZooKeeper, follow it, and compare", copyLiving},
	{"recover", "go on from one member's directory when the majority is lost for good", recoverMember},
	{"user", "print a line for the file of the users who log in by SASL", printUser},
	{"version", "print the version", printVersion},
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs a command. A command whose output is lost has not done what was asked.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	code := runCommand(ctx, args, stdin, out, stderr)
	if out.err != nil && code == exitOK {
		fmt.Fprintf(stderr, "vivarium: the output is lost: %v\n", out.err)
		return exitFailed
	}
	return code
}

func runCommand(ctx context.Context, args []string, stdin io.Reader, stdout *output, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			usage(stdout)
			return exitOK
		}
		name, args = args[0], []string{"-h"}
	}
	for _, c := range commands {
		switch {
		case c.name != name:
		case name == "shell": // it may be on a terminal, and looks after its output itself
			return c.run(ctx, args, stdin, stdout.to, stderr)
		default:
			return c.run(ctx, args, stdin, stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "vivarium: there is no command %q\n\n", name)
	usage(stderr)
	return exitUsage
}

// An output remembers the first error of its writer.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: vivarium <command> [arguments]")
	fmt.Fprintln(w)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.does)
	}
	fmt.Fprintln(w, "\nvivarium help <command> describes one command.")
}

// newFlags returns the flag set of a command. On a wrong flag, it prints how to use the command.
func newFlags(name, arguments string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "usage: vivarium %s %s\n", name, arguments)
		f.PrintDefaults()
	}
	return f
}

// parse parses the flags, and n arguments after them. If ok is false, the command must end with the
// code.
func parse(f *flag.FlagSet, args []string, n int) (code int, ok bool) {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	case err != nil:
		return exitUsage, false
	case f.NArg() != n:
		fmt.Fprintf(f.Output(), "vivarium %s: %d arguments, want %d\n", f.Name(), f.NArg(), n)
		f.Usage()
		return exitUsage, false
	}
	return exitOK, true
}

func printVersion(_ context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	if code, ok := parse(newFlags("version", "", stderr), args, 0); !ok {
		return code
	}
	fmt.Fprintln(stdout, "vivarium", version())
	return exitOK
}

// release is the version in a binary that .ci/release has built.
var release string

// version returns the version of the module, or its commit, and the version of Go.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := cmp.Or(release, info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return v + " " + info.GoVersion
}
