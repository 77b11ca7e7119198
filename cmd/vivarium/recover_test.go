//go:build unix

package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// orders returns the options of an ensemble whose members have their directories in dir. They are
// real ones, in bubbles too.
func orders(dir string) embedtest.Options {
	return embedtest.Options{Dir: dir, Config: func(c *embed.Config) { c.Ensemble = "orders" }}
}

// lostMajority makes the directories of three members of an ensemble, of which the third was away
// when the last znodes were written. Commands run outside the bubble: they may ask the network.
func lostMajority(t *testing.T, dir string) (dirs []string) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, orders(dir))
		write := func(n int) {
			s := e.Session(1, embed.SessionOptions{})
			for range n {
				_, err := s.Create(t.Context(), "/n-", nil, embed.Sequential)
				must(t, err)
			}
		}
		for _, m := range e.Members() {
			e.Until("a lineage in the identity file", func() bool { return hasLineage(e.Dir(m)) })
			dirs = append(dirs, e.Dir(m))
		}
		write(10)
		e.Kill(3)
		write(10)
		e.Kill(1)
		e.Kill(2)
	})
	return dirs
}

// hasLineage reports whether the identity file in a directory has a lineage.
func hasLineage(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "identity"))
	return err == nil && regexp.MustCompile(`"lineage": "0*[1-9a-f]`).Match(text)
}

// unchanged runs a command that must change nothing.
func unchanged(t *testing.T, dirs []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	look := func() map[string]string {
		all := make(map[string]string)
		for _, dir := range dirs {
			maps.Copy(all, fingerprint(t, dir))
		}
		return all
	}
	before := look()
	code, stdout, stderr = vivarium(args...)
	if !maps.Equal(before, look()) {
		t.Fatalf("%v has changed something", args)
	}
	return code, stdout, stderr
}

// M31: -look shows what each directory has and which has most, and changes nothing.
func TestRecover_Look(t *testing.T) {
	t.Parallel()
	dirs := lostMajority(t, t.TempDir())
	code, stdout, stderr := unchanged(t, dirs, append([]string{"recover", "-look"}, dirs...)...)
	t.Log(stdout)
	if code != exitOK || stderr != "" {
		t.Fatalf("%d: %s", code, stderr)
	}
	for _, want := range []string{
		regexp.QuoteMeta(dirs[2]) + `: member 3 of the ensemble "orders", lineage [0-9a-f]{16}\n`,
		`  member 2: voter at member-2\.test:1\n`,
		`  shard 1: last entry \d+ of term \d+, zxid 0x[1-9a-f][0-9a-f]*; image to entry \d+; (all are|the last \d+ are not) known to be committed\n`,
		`(` + regexp.QuoteMeta(dirs[0]) + `|` + regexp.QuoteMeta(dirs[1]) + `) has most, or as much as any\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("it lacks %s", want)
		}
	}
	strange := lostMajority(t, t.TempDir())
	code, stdout, _ = unchanged(t, dirs, "recover", "-look", dirs[0], strange[0])
	if code != exitOK || !strings.Contains(stdout, "are of different lineages") {
		t.Errorf("%d: %s", code, stdout)
	}
	code, stdout, stderr = unchanged(t, dirs, "recover", "-look", dirs[0], filepath.Join(dirs[0], "raft"))
	if code != exitUsage || !strings.Contains(stdout, "member 1 of") || !strings.Contains(stderr, "holds no member's data") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

// A refusal says what to do next, and changes nothing.
func TestRecover_Refusals(t *testing.T) {
	t.Parallel()
	dirs := lostMajority(t, t.TempDir())
	damaged := t.TempDir()
	must(t, os.CopyFS(damaged, os.DirFS(dirs[0])))
	must(t, os.WriteFile(filepath.Join(damaged, "identity"), []byte("vivarium"), 0o600))
	alone := t.TempDir()
	n, err := embed.Start(embed.Config{Dir: alone, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer n.Close()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "name the data directory of a stopped member"},
		{[]string{dirs[0]}, exitUsage, "-accept-data-loss -i-have-stopped with the ids of all other voters"},
		{[]string{"-accept-data-loss", dirs[0]}, exitUsage, "-i-have-stopped with the ids"},
		{[]string{"-i-have-stopped", "2,3", dirs[0]}, exitUsage, "-accept-data-loss"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", dirs[0], dirs[1]}, exitUsage, "choose one with -look"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "two", dirs[0]}, exitUsage, `-i-have-stopped has "two"`},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,,3", dirs[0]}, exitUsage, `-i-have-stopped has ""`},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2", dirs[0]}, exitFailed, "the other voters are members 2, 3, and 2 are said to be stopped"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3,4", dirs[0]}, exitFailed, "and 2, 3, 4 are said to be stopped"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "1,2,3", dirs[0]}, exitFailed, "member 1 is the one to recover: name the other voters, 2, 3"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", "-gone-for-good", "x", dirs[0]}, exitUsage, `-gone-for-good has "x"`},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", "-gone-for-good", "4", dirs[0]}, exitFailed, "member 4 is said to be gone for good, and the other voters are members 2, 3"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", filepath.Join(dirs[0], "none")}, exitUsage, "no such file or directory"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", file}, exitUsage, "is not a directory"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", t.TempDir()}, exitUsage, "it holds no member's data"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", damaged}, exitFailed, "it is damaged, as vivarium check shows"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", alone}, exitUsage, "in use"},
		{[]string{"-accept-data-loss", "-i-have-stopped", "2,3", "-cert", "none.pem", dirs[0]}, exitUsage, "-cert and -key"},
	} {
		code, stdout, stderr := unchanged(t, append(dirs, damaged), append([]string{"recover"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, stdout, stderr)
		}
	}
}

// A member goes on alone with all that it has. The command says what is certain. Done again, it
// changes nothing.
func TestRecover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dirs := lostMajority(t, dir)
	args := []string{"recover", "-accept-data-loss", "-i-have-stopped", "3, 2", dirs[0]}
	code, stdout, stderr := vivarium(args...)
	if code != exitOK || stderr != "" {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	t.Log(stdout)
	for _, want := range []string{
		`^shard 1: zxids to 0x[1-9a-f][0-9a-f]* are certain`,
		`What the lost majority acknowledged beyond them, nobody can know\.\n`,
		regexp.QuoteMeta(dirs[0]) + `: recovered: start member 1 now\. It is alone until others join it\.\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("it lacks %s", want)
		}
	}
	if code, stdout, _ := unchanged(t, dirs, "recover", "-look", dirs[0]); code != exitOK || !strings.Contains(stdout, "; recovered, and not started since\n  member 1: voter") || strings.Contains(stdout, "member 2") {
		t.Errorf("%d: %s", code, stdout)
	}
	if code, stdout, _ := unchanged(t, dirs[1:], args...); code != exitOK || !strings.Contains(stdout, "it was recovered before: start member 1") {
		t.Errorf("%d: %s", code, stdout)
	}
	if code, stdout, stderr := unchanged(t, nil, "check", dirs[0]); code != exitOK {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}

	testkit.Bubble(t, func(t *testing.T) {
		o := orders(dir)
		o.Stopped = true
		e := embedtest.New(t, 3, o)
		e.Start(1)
		s := e.Session(1, embed.SessionOptions{})
		path, err := s.Create(t.Context(), "/n-", nil, embed.Sequential)
		must(t, err)
		if path != "/n-0000000020" {
			t.Errorf("the next one is %s", path)
		}
		if code, _, stderr := vivarium("recover", "-look", dirs[0]); code != exitUsage || !strings.Contains(stderr, "in use") {
			t.Errorf("a running member: %d: %s", code, stderr)
		}
	})
}
