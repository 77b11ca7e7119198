package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	real := flag.String("real", "^$", "the packages whose failed tests get a second try, as a regular expression")
	flaky := flag.String("flaky", "", "the file to which flaky tests are appended")
	flag.Parse()
	code, err := judge(os.Stdout, *real, *flaky, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		code = 2
	}
	os.Exit(code)
}

func judge(out io.Writer, real, flaky string, args []string) (code int, err error) {
	again, err := regexp.Compile(real)
	if err != nil {
		return 0, err
	}
	r, err := run(out, args)
	switch {
	case err != nil:
		return 0, err
	case r.code == 0 && slices.Contains(args, "-run") && !r.ran():
		fmt.Fprintln(out, "no test has a name that -run accepts")
		return 1, nil
	case r.code == 0:
		return 0, nil
	}
	failures := r.failures()
	if len(failures) == 0 || r.code != 1 {
		code = 1 // go test itself failed
	}
	for _, f := range failures {
		if !again.MatchString(f.pkg) || !f.alone {
			code = 1
			continue
		}
		fmt.Fprintf(out, "\n== again, alone: %s of %s\n", f.test, f.pkg)
		second, err := run(out, only(f.place, args))
		switch {
		case err != nil:
			return 0, err
		case !second.passes(f):
			code = 1
		default:
			if err := note(flaky, f.place, r.outputs(f.failed), second.outputs(f.failed)); err != nil {
				return 0, err
			}
		}
	}
	return code, nil
}

// only returns arguments of go test for one test, in place of all packages. What comes last wins
// over the caller's own -run.
func only(test place, args []string) (list []string) {
	named := false
	for _, a := range args {
		switch {
		case !strings.HasPrefix(a, "./") && !strings.HasPrefix(a, "github.com/"):
			list = append(list, a)
		case !named:
			list, named = append(list, test.pkg), true
		}
	}
	return append(list, "-test.run=^"+regexp.QuoteMeta(test.test)+"$")
}

// note appends a flaky test to a file. What the test printed is indented, so that no line of it looks
// like the first line of a note.
func note(name string, f place, first, second string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	indent := func(text string) string {
		return "\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n\t") + "\n"
	}
	_, err = fmt.Fprintf(file, "FLAKY %s of %s\n-- it failed:\n%s-- and alone it passed:\n%s", f.test, f.pkg, indent(first), indent(second))
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// An event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a package that is built
	Test        string
	Output      string
	FailedBuild string
}

// A place is a test of a package, or the package itself.
type place struct{ pkg, test string }

// A result is what go test said.
type result struct {
	code   int              // the exit code of go test
	ended  map[place]string // the last action of each
	text   map[place]*strings.Builder
	failed []place // in order
}

// A failure is a failed test that is no subtest, or a package that failed outside its tests.
type failure struct {
	place
	failed []place // the test and those of its subtests that failed
	alone  bool    // nothing but tests can be to blame
}

// status runs the program of a package's tests, and says how it ended unless its tests say so. go test
// says that only of a program that printed nothing.
const status = `sh -c '"$0" "$@"; code=$?; [ $code -le 1 ] || echo "exit status $code"; exit $code'`

// run runs go test -json, prints what matters as it comes, and returns all. No result comes from go's
// cache, which does not know that a test builds and starts a program, or asks the go command.
func run(out io.Writer, args []string) (*result, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1", "-exec", status}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &result{ended: make(map[place]string), text: make(map[place]*strings.Builder)}
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(out, line)
			continue
		}
		r.add(out, e)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return nil, err
	}
	r.code = cmd.ProcessState.ExitCode()
	return r, nil
}

func (r *result) add(out io.Writer, e event) {
	at := place{e.Package, e.Test}
	if e.Package == "" {
		at.pkg = e.ImportPath
	}
	switch e.Action {
	case "output":
		if r.text[at] == nil {
			r.text[at] = &strings.Builder{}
		}
		r.text[at].WriteString(e.Output)
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ")) {
			fmt.Fprint(out, e.Output)
		}
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "run":
		r.ended[at] = ""
	case "pass", "skip":
		r.ended[at] = e.Action
	case "fail":
		r.ended[at] = e.Action
		r.failed = append(r.failed, at)
		if at.test == "" {
			r.printRunning(out, at.pkg)
		}
		fmt.Fprint(out, r.output(at.pkg, at.test))
	}
}

// ran reports whether any test ran.
func (r *result) ran() bool {
	for at := range r.ended {
		if at.test != "" {
			return true
		}
	}
	return false
}

// printRunning prints what the tests of a package printed that had not ended when it did, because it
// panicked or ran out of time. The stacks come with what the test printed that spoke last, and that
// may be one that had passed.
func (r *result) printRunning(out io.Writer, pkg string) {
	for at, action := range r.ended {
		if at.pkg == pkg && (action == "" || action == "pass" && fatal.MatchString(r.output(at.pkg, at.test))) {
			fmt.Fprint(out, r.output(at.pkg, at.test))
		}
	}
}

// fatal is what a program prints that ends or misbehaves outside its tests.
var fatal = regexp.MustCompile("panic: |fatal error: |WARNING: DATA RACE")

// output returns what a test printed, or what a package printed outside its tests.
func (r *result) output(pkg, test string) string {
	if b := r.text[place{pkg, test}]; b != nil {
		return b.String()
	}
	return ""
}

// outputs returns what some tests printed.
func (r *result) outputs(list []place) string {
	var all strings.Builder
	for _, at := range list {
		all.WriteString(r.output(at.pkg, at.test))
	}
	return all.String()
}

// closing is what a package prints outside its tests if some fail and nothing else happens. The first
// line comes from package testing, after all tests. A TestMain that then ends with 1 for a reason of
// its own looks the same, and is seen only if it does so in the second try too.
var closing = regexp.MustCompile("^FAIL\nFAIL\t.*\n$")

// whole reports whether every test of a package ended, and nothing that concerns all of them
// happened.
func (r *result) whole(pkg string) bool {
	for at, action := range r.ended {
		if at.pkg == pkg && action == "" {
			return false
		}
	}
	for at, b := range r.text {
		if at.pkg == pkg && fatal.MatchString(b.String()) {
			return false
		}
	}
	return closing.MatchString(r.output(pkg, ""))
}

// passes reports whether a second try passed: the test ran, and skipped nothing that had failed.
func (r *result) passes(f failure) bool {
	missed := slices.ContainsFunc(f.failed, func(at place) bool { return r.ended[at] != "pass" })
	return r.code == 0 && r.ended[f.place] == "pass" && !missed
}

// failures returns what failed: each test with its subtests, and each package of which no test has
// failed.
func (r *result) failures() (list []failure) {
	for _, at := range r.failed {
		name, _, _ := strings.Cut(at.test, "/")
		top := place{at.pkg, name}
		i := slices.IndexFunc(list, func(f failure) bool { return f.place == top || name == "" && f.pkg == top.pkg })
		switch {
		case i < 0:
			list = append(list, failure{top, []place{at}, name != "" && r.whole(at.pkg)})
		case name != "":
			list[i].failed = append(list[i].failed, at)
		}
	}
	return list
}
