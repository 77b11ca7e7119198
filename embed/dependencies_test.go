package embed_test

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// buildKeeper builds testdata/keeper as a user of this module would, with or without cgo.
func buildKeeper(t *testing.T, cgo bool) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	env := "CGO_ENABLED=0"
	if cgo {
		env = "CGO_ENABLED=1"
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip(err)
		}
	}
	name := filepath.Join(t.TempDir(), "keeper")
	cmd := exec.Command("go", "build", "-o", name, "./testdata/keeper")
	cmd.Env = append(os.Environ(), env, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// A default build contains C where there is a C compiler. The build that is tested most contains
// none. Each reads the image and the log that the other wrote.
func TestBuilds_WithAndWithoutCgoReadOneAnother(t *testing.T) {
	t.Parallel()
	with, without := buildKeeper(t, true), buildKeeper(t, false)
	dir := t.TempDir()
	for run, program := range []string{without, with, without, with} {
		if out, err := exec.Command(program, dir, fmt.Sprint(run)).CombinedOutput(); err != nil {
			t.Fatalf("run %d, %s: %v\n%s", run, program, err, out)
		}
	}
}

// docs/dependencies.md names every module in a binary, and no other, with the license in the
// module's own file.
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
		info, err := buildinfo.ReadFile(buildKeeper(t, cgo))
		must(t, err)
		var got, want []string
		for _, m := range info.Deps {
			got = append(got, m.Path)
		}
		for module, when := range listed {
			if when == "" || when == build {
				want = append(want, module)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s a binary has\n%s\nthe page has\n%s", build, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := fmt.Sprintf("%d modules", len(got)); !strings.Contains(string(page), n) {
			t.Errorf("%s it is %s, which the page does not say", build, n)
		}
	}
	// The builds have downloaded all modules. On a fresh machine some are missing before.
	for module, license := range licenses {
		if err := licensed(module, license); err != nil {
			t.Errorf("%s: %v", module, err)
		}
	}
}

// licenseWords are words that only the text of that license has.
var licenseWords = map[string]string{
	"MIT": "to deal in the Software without restriction", "Apache-2.0": "Apache License", "MPL-2.0": "Mozilla Public License",
	"BSD-3-Clause": "either the name of", "BSD-2-Clause": "Redistribution and use in source and binary forms",
}

// licensed compares the licenses that the page gives a module with the module's files.
func licensed(module, licenses string) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "[Ll][Ii][Cc][Ee][Nn][SsCc][Ee]*"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("it has no license"))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	plain := strings.Join(strings.Fields(string(text)), " ")
	for license := range strings.SplitSeq(licenses, ", ") {
		if words := licenseWords[license]; words == "" || !strings.Contains(plain, words) {
			return fmt.Errorf("its license does not look like %s", license)
		}
	}
	return nil
}
