//go:build unix

package main

import (
	"bytes"
	"os/exec"
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
			patch, err := bugs.ReadFile("bugs/" + name + ".patch")
			if err != nil {
				t.Fatal(err)
			}
			if what, rest, _ := strings.Cut(string(patch), "\n"); !strings.HasSuffix(what, ".") || !strings.HasPrefix(rest, "\ndiff ") {
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
