package docs

import (
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	quoted   = regexp.MustCompile("`([^`]+)`")
	nameOf   = regexp.MustCompile(`^(?:([a-z]+)\.)?([A-Z]\w*)(?:\.([A-Z]\w*))?(?:\(.*\))?$`)
	testName = regexp.MustCompile(`^(?:[a-z/]+\.)?((?:Test|Example|Fuzz|Benchmark)[A-Z]\w*)$`)
	fileName = regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)+/?$|^[\w-]+\.(md|go)$`)
)

// Every link leads to a file of the repository, and to a heading that the file has.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	headings := make(map[string]bool)
	for _, p := range all {
		for _, line := range p.prose {
			if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				headings[p.name+"#"+anchor(text)] = true
			}
		}
	}
	for _, p := range all {
		for n, line := range p.prose {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target := m[1]
				if strings.Contains(target, "://") {
					continue
				}
				file, heading, _ := strings.Cut(target, "#")
				if file = path.Join(path.Dir(p.name), file); strings.HasPrefix(target, "#") {
					file = p.name
				}
				if _, err := os.Stat(filepath.Join("..", file)); err != nil {
					t.Errorf("%s:%d: correct the link to %s: %v", p.name, n, target, err)
				} else if heading != "" && !headings[file+"#"+heading] {
					t.Errorf("%s:%d: correct the link: %s has no heading #%s", p.name, n, file, heading)
				}
			}
		}
	}
}

// anchor returns the name that GitHub gives a heading.
func anchor(heading string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(heading))
}

// Names between backquotes exist: exported names of our packages, tests, and files.
func TestNamesExist(t *testing.T) {
	scopes := scopes(t)
	tests := testNames()
	for _, p := range pages(t) {
		for n, line := range p.prose {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				switch word := m[1]; {
				case testName.MatchString(word):
					if name := testName.FindStringSubmatch(word)[1]; !tests[name] {
						t.Errorf("%s:%d: there is no test %s: name one that exists", p.name, n, name)
					}
				case fileName.MatchString(word):
					if !ofOthers(word, p.name) && !exists(word, p.name) {
						t.Errorf("%s:%d: there is no file %s: name one that exists, from the root of the module or from the page", p.name, n, word)
					}
				case nameOf.MatchString(word):
					m := nameOf.FindStringSubmatch(word)
					ours := m[3] != "" || strings.HasPrefix(m[2], "Err") && m[2] != "Err"
					if m[1] != "" {
						ours = scopes[m[1]] != nil
					}
					if ours && !declared(scopes, m[1], m[2], m[3]) {
						t.Errorf("%s:%d: no package has the name %s: correct it, or add a new package to public or rooms in docs/go_test.go", p.name, n, word)
					}
				}
			}
		}
	}
}

// ofOthers reports whether a name is not of a file of this repository: an import path, a file of
// the reader's, or one of a dependency.
func ofOthers(name, page string) bool {
	if page == "docs/dependencies.md" {
		return true
	}
	first, rest, _ := strings.Cut(name, "/")
	return strings.Contains(first, ".") && rest != "" || rest == "" && strings.HasSuffix(name, ".go")
}

// exists looks for a file from the root of the module, and from the page.
func exists(name, page string) bool {
	for _, dir := range []string{"..", filepath.Join("..", path.Dir(page))} {
		if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// scopes returns our packages by their names.
func scopes(t *testing.T) map[string]*types.Package {
	t.Helper()
	imp := compilerTypes(t, token.NewFileSet())
	list := make(map[string]*types.Package)
	for _, name := range slices.Concat(public, rooms) {
		p, err := imp.Import(module + name)
		if err != nil {
			t.Fatal(err)
		}
		list[p.Name()] = p
	}
	return list
}

// declared reports whether a package has the name, with that field or method. Without a package it
// is a public one.
func declared(packages map[string]*types.Package, pkg, name, member string) bool {
	for _, p := range packages {
		if pkg != "" && p.Name() != pkg || pkg == "" && !slices.Contains(public, strings.TrimPrefix(p.Path(), module)) {
			continue
		}
		object := p.Scope().Lookup(name)
		if object == nil {
			continue
		}
		if member == "" {
			return true
		}
		if found, _, _ := types.LookupFieldOrMethod(object.Type(), true, p, member); found != nil {
			return true
		}
	}
	return false
}

// testNames returns the names of all tests, examples, fuzz targets and benchmarks of the
// repository.
var testNames = sync.OnceValue(func() map[string]bool {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)\(`)
	names := make(map[string]bool)
	_ = filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range function.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	return names
})
