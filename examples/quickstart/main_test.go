package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The program in README runs as printed there, and prints what README says.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\npackage main\n")
	program, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "    $ go run .\n    ")
	want, _, _ := strings.Cut(rest, "\n")
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "readme")
	if err := os.WriteFile(file, []byte("package main\n"+program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || want == "" || string(out) != want+"\n" {
		t.Errorf("it printed %q, %v, README says %q\n%s", out, err, want, &stderr)
	}
}
