//go:build unix

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

const patience = testkit.Patience

// binary is the path of the program, built as it is shipped.
var binary string

func TestMain(m *testing.M) {
	if err := os.Setenv("SUPER", "digest:super:pw"); err != nil { // for -auth env:SUPER
		panic(err)
	}
	os.Exit(child.Main(m, ".", &binary))
}

var (
	must  = testkit.Must
	until = testkit.Until
)

// vivarium runs a command in this process and waits until it ends.
func vivarium(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// spawn runs the program in a directory until the test ends.
func spawn(t *testing.T, dir string, args ...string) *child.Program {
	t.Helper()
	return child.Run(t, dir, binary, args...)
}

func TestBinaryIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("an ELF file is looked at")
	}
	f, err := elf.Open(binary)
	must(t, err)
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil || len(libs) > 0 {
		t.Errorf("it needs %v, %v", libs, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker")
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string // a part of each; empty: nothing is written
	}{
		{nil, exitUsage, "", "usage: vivarium <command>"},
		{[]string{"help"}, exitOK, "usage: vivarium <command>", ""},
		{[]string{"-h"}, exitOK, "usage: vivarium <command>", ""},
		{[]string{"help", "serve"}, exitOK, "", "usage: vivarium serve -config node.yaml"},
		{[]string{"serve", "-h"}, exitOK, "", "usage: vivarium serve -config node.yaml"},
		{[]string{"dance"}, exitUsage, "", `there is no command "dance"`},
		{[]string{"help", "dance"}, exitUsage, "", `there is no command "dance"`},
		{[]string{"serve"}, exitUsage, "", "usage: vivarium serve"},
		{[]string{"serve", "node.yaml"}, exitUsage, "", "1 arguments, want 0"},
		{[]string{"serve", "-conf", "x"}, exitUsage, "", "not defined: -conf"},
		{[]string{"serve", "-config", "x", "-log", "xml"}, exitUsage, "", "usage: vivarium serve"},
		{[]string{"check"}, exitUsage, "", "usage: vivarium check DIR"},
		{[]string{"check", "a", "b"}, exitUsage, "", "2 arguments, want 1"},
		{[]string{"recover", "-h"}, exitOK, "", "usage: vivarium recover -look DIR..."},
		{[]string{"recover"}, exitUsage, "", "name the data directory of a stopped member"},
		{[]string{"user"}, exitUsage, "", "usage: vivarium user NAME < PASSWORD"},
		{[]string{"version"}, exitOK, "vivarium ", ""},
		{[]string{"version", "x"}, exitUsage, "", "usage: vivarium version"},
	} {
		code, stdout, stderr := vivarium(c.args...)
		if code != c.code || !has(stdout, c.stdout) || !has(stderr, c.stderr) {
			t.Errorf("%q: %d\n%s\n%s", c.args, code, stdout, stderr)
		}
	}
}

// has reports whether a text contains a part. An empty part means that the text must be empty.
func has(text, part string) bool {
	return part == "" && text == "" || part != "" && strings.Contains(text, part)
}
