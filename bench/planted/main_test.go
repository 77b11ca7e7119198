//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every bug can still be planted.
func TestBugs(t *testing.T) {
	all, err := names()
	if err != nil || len(all) < 20 {
		t.Fatalf("%d bugs, %v", len(all), err)
	}
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			patch, pkg, test, err := read(name)
			if err != nil {
				t.Fatal(err)
			}
			what, rest, _ := strings.Cut(string(patch), "\n")
			if test != "" {
				_, rest, _ = strings.Cut(rest, "\n")
				has(t, filepath.Join("../..", pkg), test)
			}
			if !strings.HasSuffix(what, ".") || !strings.HasPrefix(rest, "\ndiff ") {
				t.Errorf("begins with %q, not with a sentence that says what it breaks", what)
			}
			cmd := exec.Command("git", "apply", "--check")
			cmd.Dir, cmd.Stdin = "../..", bytes.NewReader(patch)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("git apply: %v\n%s", err, out)
			}
		})
	}
}

// has fails the test if a package does not have a test of that name.
func has(t *testing.T, dir, test string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte("\nfunc "+test+"(t *testing.T) {\n")) {
			return
		}
	}
	t.Errorf("%s has no %s", dir, test)
}
