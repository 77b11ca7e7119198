package disktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// formatsName is the name of the file in each set of golden directories that has the formats of the
// build that wrote them.
const formatsName = "formats.txt"

// formats returns the formats of this build, as text. Tests of their packages compare the golden
// files with what the code writes.
func formats(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{
		"engine/command/testdata/commands.txt", "engine/command/testdata/records.txt", "replication/testdata/identity",
		"replication/testdata/identity-joined",
		"storage/testdata/stream.hex", "storage/testdata/stream-empty.hex",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		must(t, err)
		fmt.Fprintf(&b, "== %s\n%s", name, text)
	}
	b.WriteString("== image\n")
	ens := embedtest.New(t, 1, embedtest.Options{Dir: t.TempDir(), Config: func(c *embed.Config) { c.Shards = 1 }})
	shard := filepath.Join(ens.Dir(1), "image", "shard-1")
	ens.Stop(1)
	marker, err := os.ReadFile(filepath.Join(shard, "format"))
	must(t, err)
	b.Write(marker)
	options, err := filepath.Glob(filepath.Join(shard, "image-000001", "OPTIONS-*"))
	if err != nil || len(options) != 1 {
		t.Fatalf("%q, %v", options, err)
	}
	text, err := os.ReadFile(options[0])
	must(t, err)
	for line := range strings.Lines(string(text)) {
		switch name, _, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "pebble_version", "comparer", "merger", "format_major_version":
			b.WriteString(line)
		}
	}
	return b.String()
}

// A format changes only together with golden directories that have it.
func TestGoldenDirectories_HaveTheFormatsOfThisBuild(t *testing.T) {
	got := formats(t)
	sets, err := filepath.Glob(filepath.Join(setsDir, "*", formatsName))
	must(t, err)
	differs := ""
	for _, name := range sets {
		text, err := os.ReadFile(name)
		must(t, err)
		if string(text) == got {
			return
		}
		differs += fmt.Sprintf("\n%s: %s", name, firstDifference(got, string(text)))
	}
	t.Errorf("no set of golden directories has the formats of this build; if they were to change, write one:\n"+
		"\tgo test ./embed/disktest -run 'TestGoldenDirectories$' -write NAME%s", differs)
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: now %q, there %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines now, %d there", len(g), len(w))
}
