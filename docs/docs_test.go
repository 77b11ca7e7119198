// Package docs holds the README and the pages of this folder against the code.
package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is README.md or a file of this folder.
type page struct {
	name   string // its path from the root of the module
	lines  []string
	blocks []block
}

// A block is the text between two fences. Its language follows the first fence.
type block struct {
	at             string // page and line
	language, text string
}

// pages reads all pages.
func pages(t *testing.T) (list []page) {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: filepath.ToSlash(filepath.Join("docs", name)), lines: strings.Split(string(text), "\n")}
		p.blocks = p.fenced()
		list = append(list, p)
	}
	return list
}

func (p page) fenced() (list []block) {
	var open *block
	for i, line := range p.lines {
		switch rest, fence := strings.CutPrefix(line, "```"); {
		case fence && open == nil:
			open = &block{at: fmt.Sprintf("%s:%d", p.name, i+1), language: rest}
		case fence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return list
}

// prose yields the lines outside of blocks, with their numbers.
func (p page) prose(yield func(n int, line string) bool) {
	inside := false
	for i, line := range p.lines {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside && !yield(i+1, line) {
			return
		}
	}
}

// A test looks at each language, except those that only show something.
func TestBlocksHaveALanguage(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if !slices.Contains([]string{"go", "yaml", "sh", "text", "dockerfile"}, b.language) {
				t.Errorf("%s: no test looks at a block of the language %q: write go, yaml, sh, text or dockerfile behind the first fence", b.at, b.language)
			}
		}
	}
}

// The first program in README.md prints what README.md says.
func TestREADME(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs the go command")
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\npackage main\n")
	program, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "$ go run .\n")
	want, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "readme")
	if err := os.WriteFile(file, []byte("package main\n"+program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("README.md: its first program does not build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || want == "" || string(out) != want {
		t.Errorf("README.md: its first program printed %q, %v, but the block after $ go run . says %q: correct one of them\n%s", out, err, want, &stderr)
	}
}

// docs/guarantees.md explains the promises of README.md, all and in their order. That each promise
// has a test of its name is checked in embed/arch_test.go.
func TestGuaranteesAreThoseOfREADME(t *testing.T) {
	var promised, explained []string
	row, heading := regexp.MustCompile(`^\| ([A-Z]\w+) \|`), regexp.MustCompile(`^### (\w+)$`)
	for _, p := range pages(t) {
		for _, line := range p.prose {
			if m := row.FindStringSubmatch(line); m != nil && p.name == "README.md" {
				promised = append(promised, m[1])
			}
			if m := heading.FindStringSubmatch(line); m != nil && p.name == "docs/guarantees.md" {
				explained = append(explained, m[1])
			}
		}
	}
	if len(promised) == 0 || !slices.Equal(promised, explained) {
		t.Errorf("README.md promises %v\ndocs/guarantees.md has headings of %v\nwrite a heading ### with an explanation for each promise, in the same order", promised, explained)
	}
}
