package embed_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// goCommand runs the go command as a user of this module would, with or without cgo.
func goCommand(t *testing.T, cgo bool, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs the go command")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	env := "CGO_ENABLED=0"
	if cgo {
		env = "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env, "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// buildKeeper builds testdata/keeper.
func buildKeeper(t *testing.T, cgo bool) string {
	t.Helper()
	if cgo {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip(err)
		}
	}
	name := filepath.Join(t.TempDir(), "keeper")
	goCommand(t, cgo, "build", "-o", name, "./testdata/keeper")
	return name
}

// A default build contains C where there is a C compiler. The build that is tested most contains
// none. Each reads the image and the log that the other wrote.
func TestBuilds_WithAndWithoutCgoReadOneAnother(t *testing.T) {
	t.Parallel()
	testkit.ByNight(t, "it compiles the C code and links two programs")
	with, without := buildKeeper(t, true), buildKeeper(t, false)
	dir := t.TempDir()
	for run, program := range []string{without, with, without, with} {
		if out, err := exec.Command(program, dir, fmt.Sprint(run)).CombinedOutput(); err != nil {
			t.Fatalf("run %d, %s: %v\n%s", run, program, err, out)
		}
	}
}

// docs/dependencies.md names every module in a binary, and no other, with the license in the
// module's own file. The go command tells the modules without building the binary.
func TestDependencies_AreThoseOnThePage(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems need other modules")
	}
	page, err := os.ReadFile("../docs/dependencies.md")
	must(t, err)
	listed, licenses := make(map[string]string), make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+\.\S+/\S+) \| ([^|]+) \| ([^|]*)\|$`).FindAllStringSubmatch(string(page), -1) {
		module, license, build := row[1], row[2], strings.TrimSpace(row[3])
		listed[module], licenses[module] = build, license
	}
	for build, cgo := range map[string]bool{"with cgo": true, "without cgo": false} {
		var want []string
		got := strings.Fields(goCommand(t, cgo, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./testdata/keeper"))
		for module, when := range listed {
			if when == "" || when == build {
				want = append(want, module)
			}
		}
		slices.Sort(got)
		got = slices.Compact(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s the table of docs/dependencies.md lacks rows of %v, and has %v, which are not in a binary", build, without(got, want), without(want, got))
		}
		if n := fmt.Sprintf("%d modules", len(got)); !strings.Contains(string(page), n) {
			t.Errorf("%s a binary has %s: write that number into docs/dependencies.md", build, n)
		}
	}
	modules := slices.Sorted(maps.Keys(licenses))
	dirs := strings.Split(goCommand(t, false, append([]string{"list", "-m", "-f", "{{.Dir}}"}, modules...)...), "\n")
	for i, module := range modules {
		if err := licensed(dirs[i], licenses[module]); err != nil {
			t.Errorf("docs/dependencies.md says that %s has the license %s: %v", module, licenses[module], err)
		}
	}
}

// licenseWords are words that only the text of that license has.
var licenseWords = map[string]string{
	"MIT": "to deal in the Software without restriction", "Apache-2.0": "Apache License", "MPL-2.0": "Mozilla Public License",
	"BSD-3-Clause": "either the name of", "BSD-2-Clause": "Redistribution and use in source and binary forms",
}

// licensed compares the licenses that the page gives a module with the files in the module's folder.
func licensed(dir, licenses string) error {
	files, err := filepath.Glob(filepath.Join(dir, "[Ll][Ii][Cc][Ee][Nn][SsCc][Ee]*"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("there is no license in %q", dir))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	plain := strings.Join(strings.Fields(string(text)), " ")
	for license := range strings.SplitSeq(licenses, ", ") {
		if words := licenseWords[license]; words == "" || !strings.Contains(plain, words) {
			return fmt.Errorf("%s does not look like %s: correct the page, or add the words of the license to licenseWords in embed/dependencies_test.go", files[0], license)
		}
	}
	return nil
}
