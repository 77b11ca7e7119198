package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Update is the flag -update: rewrite the files instead of comparing.
var Update = flag.Bool("update", false, "rewrite the golden files")

// Check compares got with a file.
func Check(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		testkit.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	testkit.Must(t, err)
	if got == string(want) {
		return
	}
	n := 0
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for n < len(g)-1 && n < len(w)-1 && g[n] == w[n] {
		n++
	}
	t.Errorf("%s differs from line %d on; if that is meant, run the test with -update\n got %s\nwant %s\nin\n%s",
		file, n+1, g[n], w[n], got)
}

// Scripts runs the scripts in the files that match a pattern, each as a subtest. A script is prose
// (lines with #) and blocks: commands, a line of dashes, and the recorded answers. Parameter open
// starts a script. It returns a function that executes a command and returns its answer.
func Scripts(t *testing.T, pattern string, open func(t *testing.T) func(line string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d scripts, %v", pattern, len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			testkit.Must(t, err)
			Check(t, file, answer(string(text), open(t)))
		})
	}
}

// answer returns a script with new answers.
func answer(script string, run func(line string) string) string {
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		input, _, found := strings.Cut(block, "\n----")
		if !found {
			out = append(out, block) // prose
			continue
		}
		var answers []string
		for line := range strings.Lines(input) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
				answers = append(answers, run(line))
			}
		}
		out = append(out, input+"\n----\n"+strings.Join(answers, "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}
