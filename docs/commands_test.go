package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// others are programs that are not of this repository.
var others = []string{"curl", "docker", "export", "kill", "kubectl", "mkdir", "zkCli.sh"}

// The commands in blocks exist: programs and packages of the repository, their flags, and the tests
// that a -run selects. What the shell prints after a command stands in blocks of the language text.
func TestCommandsExist(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "sh" {
				continue
			}
			dir, made := "..", ""
			for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
				line, _, _ = strings.Cut(line, "#")
				for command := range strings.SplitSeq(line, "&&") {
					words := strings.Fields(strings.TrimRight(strings.TrimSpace(command), "&"))
					for len(words) > 0 && strings.Contains(words[0], "=") { // a variable for the command
						words = words[1:]
					}
					if len(words) == 0 {
						continue
					}
					switch words[0] {
					case "mkdir":
						made = words[1]
					case "cd":
						if words[1] == made {
							continue // a module of the reader's own
						}
						dir = filepath.Join(dir, words[1])
					}
					if err := check(dir, words); err != nil {
						t.Errorf("%s: correct the command %q: %v", b.at, strings.TrimSpace(command), err)
					}
				}
			}
		}
	}
}

func check(dir string, words []string) error {
	switch program := words[0]; {
	case program == "cd":
		_, err := os.Stat(dir)
		return err
	case program == "vivarium":
		subcommands := []string{"serve", "shell", "members", "check", "audit", "backup", "verify", "export", "import", "convert", "copy", "recover", "user", "version", "help"}
		if len(words) < 2 || !slices.Contains(subcommands, words[1]) {
			return fmt.Errorf("vivarium has the subcommands %v; a new one belongs into check in docs/commands_test.go", subcommands)
		}
		return flags([]string{"../cmd/vivarium", "../cmd/vivarium/internal/shell"}, words[2:])
	case program == "go":
		return goCommand(dir, words[1:])
	case strings.HasPrefix(program, "./"):
		return nil // what an earlier command of the block has built
	case !slices.Contains(others, program):
		return fmt.Errorf("no test knows the program %s: if it is right, add it to others in docs/commands_test.go", program)
	}
	return nil
}

// ownFlags are the go command's, and those of tests here.
var ownFlags = []string{"-o", "-run", "-race", "-tags", "-short", "-count", "-v", "-timeout", "-parallel", "-rounds"}

// goCommand checks what follows "go".
func goCommand(dir string, words []string) error {
	for i, word := range words[1:] {
		version := strings.LastIndexByte(word, '@')
		switch {
		case words[i] == "-run" || words[i] == "-o" || words[i] == "-tags":
			if words[i] == "-run" && !slices.ContainsFunc(strings.Split(strings.Trim(word, "'"), "|"), anyTest) {
				return fmt.Errorf("no test is named %s", word)
			}
		case strings.HasPrefix(word, "-"):
			if !slices.Contains(ownFlags, word) {
				return fmt.Errorf("no test knows the flag %s: if it is right, add it to ownFlags in docs/commands_test.go", word)
			}
		case strings.HasPrefix(word+"/", module):
			if version < 0 {
				version = len(word)
			}
			return folder(strings.TrimPrefix(word[:version]+"/", module), "..")
		case strings.HasPrefix(word, "."):
			if err := folder(strings.TrimSuffix(word, "/..."), dir); err != nil || words[0] != "run" {
				return err
			}
			return flags([]string{filepath.Join(dir, word)}, words[i+2:])
		}
	}
	return nil
}

// anyTest reports whether a pattern of -run selects a test.
func anyTest(pattern string) bool {
	expr, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for name := range testNames() {
		if expr.MatchString(name) {
			return true
		}
	}
	return false
}

func folder(name, dir string) error {
	_, err := os.Stat(filepath.Join(dir, name))
	return err
}

// flags checks that a program's source names each flag of a command line.
func flags(dirs, words []string) error {
	var source strings.Builder
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			source.Write(text)
		}
	}
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "-"); ok && !strings.Contains(source.String(), `"`+name+`"`) {
			return fmt.Errorf("no file in %v has the flag %s", dirs, word)
		}
	}
	return nil
}
