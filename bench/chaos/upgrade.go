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
// tagged, it is the last commit before feature levels.
const previous = "564db2f550ccc334d8a9e465d24497986c0ec2c4"

// library is the module whose older version buildOld takes.
const library = "github.com/vivarium-go/vivarium"

// errNoHistory says that a commit is not in the repository.
var errNoHistory = errors.New("the history of this repository is not here, or lacks the commit: get a full clone")

// buildOld builds the program of a member with the library as it was at a commit or tag. The
// campaign's part of the program is the present one, so that an older member answers the same
// questions and its own checks are today's. What it calls must exist at that commit. level is the
// highest feature level that the program reads.
func buildOld(from, dir string) (program string, level int64, err error) {
	if from == "previous" {
		from = previous
	}
	modules, err := output("go", "list", "-m", "-f", "{{.Dir}}", library, library+"/bench")
	if err != nil {
		return "", 0, err
	}
	root, bench, _ := strings.Cut(modules, "\n")
	if _, err := output("git", "-C", root, "cat-file", "-e", from+"^{commit}"); err != nil {
		return "", 0, fmt.Errorf("%s: %w (%w)", from, errNoHistory, err)
	}
	tags := "member"
	if _, err := output("git", "-C", root, "cat-file", "-e", from+":engine/level.go"); err != nil {
		tags += ",nolevels"
	}
	if _, err := output("git", "-C", root, "cat-file", "-e", from+":embed/join.go"); err != nil {
		tags += ",nomembers"
	}
	if _, err := output("git", "-C", root, "cat-file", "-e", from+":embed/task/work.go"); err != nil {
		tags += ",norecipes"
	}
	if _, err := output("git", "-C", root, "cat-file", "-e", from+":embed/client/client.go"); err != nil {
		tags += ",noclients"
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
		{"go", "build", "-C", bench, "-modfile", mod, "-mod", "mod", "-trimpath", "-tags", tags, "-o", program, "./chaos"},
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
