//go:build unix && !member

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// previous is the release before this one, from which an upgrade must work. Until a release is
// tagged, there is none, and the upgrade is to a build to come.
const previous = "next"

// next stands for an upgrade from the present build to one to come.
const next = "next"

// library is the module whose older version buildOld takes.
const library = "github.com/vivarium-go/vivarium"

// errNoHistory says that a commit is not in the repository.
var errNoHistory = errors.New("the history of this repository is not here, or lacks the commit: get a full clone")

// buildOld builds the program of a member with the library as it was at a commit or tag. The
// campaign's part of the program is the present one, so that an older member answers the same
// questions and its own checks are today's. What it calls must exist at that commit. level is the
// highest feature level that the program reads.
func buildOld(from, dir string) (program string, level int64, err error) {
	modules, err := output("go", "list", "-m", "-f", "{{.Dir}}", library, library+"/bench")
	if err != nil {
		return "", 0, err
	}
	root, bench, _ := strings.Cut(modules, "\n")
	if _, err := output("git", "-C", root, "cat-file", "-e", from+"^{commit}"); err != nil {
		return "", 0, fmt.Errorf("%s: %w (%w)", from, errNoHistory, err)
	}
	tree, archive := filepath.Join(dir, "old"), filepath.Join(dir, "old.tar")
	mod := filepath.Join(dir, "go.mod")
	program = filepath.Join(dir, "member")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", 0, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(bench, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return "", 0, err
		}
	}
	for _, args := range [][]string{
		{"git", "-C", root, "archive", "-o", archive, from},
		{"tar", "-x", "-f", archive, "-C", tree},
		{"go", "mod", "edit", "-replace", library + "=" + tree, mod},
		// without paths in it, so that the next build finds its parts in Go's cache
		{"go", "build", "-C", bench, "-modfile", mod, "-mod", "mod", "-trimpath", "-tags", "member", "-o", program, "./chaos"},
	} {
		if _, err := output(args...); err != nil {
			return "", 0, err
		}
	}
	said, err := output(program)
	if err != nil {
		return "", 0, err
	}
	level, err = strconv.ParseInt(said, 10, 64)
	return program, level, err
}

// output runs a command and returns what it prints.
func output(args ...string) (string, error) {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
