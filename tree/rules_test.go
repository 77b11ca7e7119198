package tree

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// showsPrefix begins the lines in a script's head that name statements of README.md.
const showsPrefix = "\n# Shows: "

// Every script is in the table of ZooKeeper's statements, at the statements that it names itself.
// Every statement is shown by an existing script or test, or the table says why there is none.
func TestEveryStatementIsShown(t *testing.T) {
	rows := tableRows(t)
	shown := map[string][]string{} // statements by script, according to the table
	for _, row := range rows {
		statement, by, note := row[0], row[2], row[3]
		if by == "" && note == "" {
			t.Errorf("statement %s: neither shown nor said why not", statement)
		}
		for _, name := range words(by) {
			if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				if !hasTest(t, name) {
					t.Errorf("statement %s: there is no %s", statement, name)
				}
				continue
			}
			shown[name] = append(shown[name], statement)
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string][]string{}
	for _, file := range files {
		scripts[strings.TrimSuffix(filepath.Base(file), ".txt")] = showsOf(t, file)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if _, ok := scripts[name]; !ok {
			t.Errorf("the table names a script %s that is not there", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		inTable, inScript := slices.Sorted(slices.Values(shown[name])), slices.Sorted(slices.Values(scripts[name]))
		if !slices.Equal(inTable, inScript) {
			t.Errorf("script %s shows %q by the table, %q by itself", name, inTable, inScript)
		}
	}
}

// tableRows returns the cells of the tables in README.md: the statement's number, the statement,
// what shows it, and a note.
func tableRows(t *testing.T) [][]string {
	text, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| statement") {
			continue
		}
		if len(cells) != 4 {
			t.Fatalf("row of %d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if seen[cells[0]] {
			t.Errorf("statement %s is there twice", cells[0])
		}
		seen[cells[0]] = true
		rows = append(rows, cells)
	}
	return rows
}

func showsOf(t *testing.T, file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n\n")
	_, list, _ := strings.Cut(head, showsPrefix)
	return words(strings.ReplaceAll(list, "\n#", ""))
}

// words splits a list at its commas.
func words(list string) (words []string) {
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// hasTest reports whether this package has a test with the name.
func hasTest(t *testing.T, name string) bool {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunc.FindAllSubmatch(text, -1) {
			if string(match[1]) == name {
				return true
			}
		}
	}
	return false
}
