package embed_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// runbook matches how an error names a section of the runbook.
var runbook = regexp.MustCompile(`docs/runbook\.md: ([^")\n]+)`)

// phrase matches what the runbook quotes from the log.
var phrase = regexp.MustCompile("`([a-z]+(?: [a-z:]+)+)`")

// Every line of the log that the runbook names is one that docs/logs.md lists.
func TestRunbook_NamesLinesOfTheLog(t *testing.T) {
	text, err := os.ReadFile("../docs/runbook.md")
	must(t, err)
	lines, _ := logsOfDoc(t)
	named := 0
	for _, m := range phrase.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "vivarium ") {
			continue // a command
		}
		if _, ok := lines[m[1]]; !ok {
			t.Errorf("docs/runbook.md quotes `%s`, which nothing logs: quote a line of docs/logs.md", m[1])
		}
		named++
	}
	if named == 0 {
		t.Error("docs/runbook.md names no line of the log: has it another form than `two words`?")
	}
}

// Every section of the runbook that an error names exists. Otherwise somebody would look for it in
// vain, at night.
func TestRunbook_HasWhatErrorsName(t *testing.T) {
	text, err := os.ReadFile("../docs/runbook.md")
	must(t, err)
	headings := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings[strings.ToLower(strings.TrimSpace(heading))] = true
		}
	}
	named := make(map[string]bool)
	fset, list := sources(t)
	for _, s := range list {
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || s.test() {
				return true
			}
			words, err := strconv.Unquote(lit.Value)
			must(t, err)
			for _, section := range runbook.FindAllStringSubmatch(words, -1) {
				if named[section[1]] = true; !headings[strings.ToLower(section[1])] {
					t.Errorf("%s: docs/runbook.md has no section %q: add it, or name another one in the error", fset.Position(lit.Pos()), section[1])
				}
			}
			return true
		})
	}
	if len(named) == 0 {
		t.Error("no error names a section of docs/runbook.md: has the form of the reference changed? See the pattern runbook in embed/runbook_test.go")
	}
}
