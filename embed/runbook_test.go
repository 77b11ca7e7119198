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
					t.Errorf("%s: the runbook has no section %q", fset.Position(lit.Pos()), section[1])
				}
			}
			return true
		})
	}
	if len(named) == 0 {
		t.Error("no error names a section")
	}
}
