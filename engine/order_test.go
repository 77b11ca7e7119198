package engine

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// doc.go and the check have the same order of locks.
func TestOrderOfLocksIsThatOfTheDoc(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	_, locks, _ := strings.Cut(file.Doc.Text(), "# Locks\n")
	locks, _, _ = strings.Cut(locks, "\n# ")
	var said, checked []string
	for line := range strings.Lines(locks) {
		if row, ok := strings.CutPrefix(line, "\t"); ok {
			name, what, _ := strings.Cut(row, "  ")
			if strings.TrimSpace(what) == "" {
				t.Errorf("%s has no explanation", name)
			}
			said = append(said, name)
		}
	}
	for _, p := range rank.Order() {
		checked = append(checked, p.Name)
	}
	if !slices.Equal(said, checked) {
		t.Errorf("doc.go has the order\n\t%s\nbut the check has\n\t%s", strings.Join(said, "\n\t"), strings.Join(checked, "\n\t"))
	}
}
