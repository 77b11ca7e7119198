package embed_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// noTest begins the cell of a row that no test shows. The reason follows.
const noTest = "no test: "

// Every row of an index in testdata names tests that exist, or says why there is none. The comment
// of a test or script that an index names says which schedule, or which bug of a peer, it shows. So
// anyone who changes it knows what it is for.
func TestEverySchedule_IsShown(t *testing.T) {
	comments := testComments(t)
	indexes, err := filepath.Glob("testdata/*.md")
	if err != nil || !slices.Contains(indexes, filepath.Join("testdata", "schedules.md")) {
		t.Fatalf("indexes %v, %v", indexes, err)
	}
	for _, index := range indexes {
		for letter, shown := range indexRows(t, index) {
			if strings.HasPrefix(shown, noTest) {
				continue
			}
			for name := range strings.SplitSeq(shown, ", ") {
				comment, ok := comments[name]
				if !ok && strings.HasSuffix(name, ".txt") {
					comment, ok = scriptHead(t, name), true
				}
				if !ok {
					t.Errorf("embed/%s: the row %s names %q, which does not exist: write folder.TestName of the test that shows it, or %q and a reason", index, letter, name, noTest)
				}
				if ok && !citing(letter).MatchString(comment) {
					t.Errorf("the comment of %s does not name %s: add it there, or correct that row of embed/%s", name, item.ReplaceAllString(letter, ""), index)
				}
			}
		}
	}
}

// item matches the number of an item, which precedes a peer's name for a bug.
var item = regexp.MustCompile(`^\d+ `)

// citing matches a comment that cites a schedule. For A1.1 neither A1.12 nor A1 matches. What has
// no number is not cited.
func citing(letter string) *regexp.Regexp {
	letter = item.ReplaceAllString(letter, "")
	if !strings.ContainsAny(letter, "0123456789") {
		return regexp.MustCompile("")
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(letter) + `(\.?[^.\d]|\.?$)`)
}

// indexRows returns the last cell of each row of an index, by the first cell.
func indexRows(t *testing.T, file string) map[string]string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		if !ok || cells[len(cells)-1] == "shown by" {
			continue
		}
		if len(cells) != 3 {
			t.Fatalf("embed/%s: a row has %d cells, want 3: %s", file, len(cells), line)
		}
		if _, twice := rows[cells[0]]; twice {
			t.Errorf("embed/%s: two rows begin with %s: make one of them", file, cells[0])
		}
		rows[cells[0]] = cells[2]
	}
	if len(rows) == 0 {
		t.Errorf("embed/%s has no rows: each begins with | and ends with the tests that show it", file)
	}
	return rows
}

// testComments returns the comments of all tests by folder and name, such as engine.TestX or
// storage/disk.TestX.
func testComments(t *testing.T) map[string]string {
	_, list := sources(t)
	comments := make(map[string]string)
	for _, s := range list {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test() && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				comments[s.dir+"."+fn.Name.Name] = fn.Doc.Text()
			}
		}
	}
	return comments
}

// scriptHead returns the prose with which a script begins.
func scriptHead(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Errorf("an index in embed/testdata names a script: %v", err)
	}
	head, _, _ := strings.Cut(string(text), "\n\n")
	return head
}
