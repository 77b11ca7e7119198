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
	if err != nil || r.passed {
		return 0, err
	}
	for _, f := range r.failures() {
		if !again.MatchString(f.pkg) || !f.alone {
			code = 1
			continue
		}
		fmt.Fprintf(out, "\n== again, alone: %s of %s\n", f.test, f.pkg)
		second, err := run(out, append([]string{"-count=1", "-run", exactly(f.test)}, without(args, f.pkg)...))
		switch {
		case err != nil:
			return 0, err
		case !second.passed:
			code = 1
		default:
			if err := note(flaky, f, second.output(f.pkg, f.test)); err != nil {
				return 0, err
			}
		}
	}
	if len(r.failures()) == 0 {
		code = 1 // go test itself failed
	}
	return code, nil
}

// exactly returns the pattern of -run that matches one test, or one subtest.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// without replaces the patterns of packages in arguments of go test by one package.
func without(args []string, pkg string) []string {
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "./") || strings.HasPrefix(a, "github.com/")
	})
	return append(rest, pkg)
}

// note appends a flaky test to a file.
func note(name string, f failure, second string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "FLAKY %s of %s\n-- it failed:\n%s-- and alone it passed:\n%s", f.test, f.pkg, f.output, second)
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
	passed bool
	ended  map[place]string // the last action of each
	text   map[place]*strings.Builder
	failed []place // in order
}

// A failure is a failed test without failed subtests, or a package that failed outside its tests.
type failure struct {
	place
	output string
	alone  bool // nothing but this test can be to blame
}

// run runs go test -json, prints what matters as it comes, and returns all.
func run(out io.Writer, args []string) (*result, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
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
	r.passed = cmd.Wait() == nil
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

// printRunning prints what the tests of a package printed that had not ended when it did, because it
// panicked or ran out of time.
func (r *result) printRunning(out io.Writer, pkg string) {
	for at, action := range r.ended {
		if at.pkg == pkg && action == "" {
			fmt.Fprint(out, r.output(at.pkg, at.test))
		}
	}
}

// output returns what a test printed, or what a package printed outside its tests.
func (r *result) output(pkg, test string) string {
	if b := r.text[place{pkg, test}]; b != nil {
		return b.String()
	}
	return ""
}

// whole reports whether every test of a package ended, and nothing that concerns all of them
// happened.
func (r *result) whole(pkg string) bool {
	for at, action := range r.ended {
		if at.pkg == pkg && action == "" {
			return false
		}
	}
	for at, b := range r.text {
		if at.pkg == pkg && (strings.Contains(b.String(), "panic: ") || strings.Contains(b.String(), "fatal error: ") || strings.Contains(b.String(), "WARNING: DATA RACE")) {
			return false
		}
	}
	return true
}

// failures returns what failed: each test without its parents, and each package of which no test
// has failed.
func (r *result) failures() (list []failure) {
	tests := make(map[string]bool) // packages with a failed test
	for _, at := range r.failed {
		if at.test != "" {
			tests[at.pkg] = true
		}
	}
	for _, at := range r.failed {
		parent := slices.ContainsFunc(r.failed, func(other place) bool {
			return other.pkg == at.pkg && strings.HasPrefix(other.test, at.test+"/")
		})
		switch {
		case at.test != "" && !parent:
			list = append(list, failure{at, r.output(at.pkg, at.test), r.whole(at.pkg)})
		case at.test == "" && !tests[at.pkg]:
			list = append(list, failure{at, r.output(at.pkg, ""), false})
		}
	}
	return list
}
