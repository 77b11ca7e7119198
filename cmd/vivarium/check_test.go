//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// A specimen holds all files that a member left.
type specimen map[string][]byte

func specimenOf(t *testing.T, dir string) specimen {
	t.Helper()
	s := make(specimen)
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since the directory was listed
		}
		s[rel] = data
		return err
	}))
	return s
}

// restore writes the files into a new directory.
func (s specimen) restore(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	for name, data := range s {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, data, 0o644))
	}
	return dir
}

// members returns three specimens of one member: stopped after its first run; killed in its second
// run, with a log that continues after the image; stopped after its second run.
func members(t *testing.T, shards int) (first, killed, stopped specimen) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	synctest.Test(t, func(t *testing.T) {
		cfg := embed.Config{Dir: dir, Ensemble: "orders", Shards: shards, Tick: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
		for run := range 2 {
			n, err := embed.Start(cfg)
			must(t, err)
			must(t, n.Ready(t.Context()))
			s, err := n.NewSession(t.Context(), embed.SessionOptions{})
			must(t, err)
			for i := range 40 {
				_, err := s.Create(t.Context(), fmt.Sprintf("/%d-%d", run, i), bytes.Repeat([]byte("x"), 3000), embed.Ephemeral)
				must(t, err)
			}
			synctest.Wait()                                 // until no write is under way
			first, killed = stopped, specimenOf(t, cfg.Dir) // what a kill would leave here
			must(t, n.Close())
			stopped = specimenOf(t, cfg.Dir)
		}
	})
	return first, killed, stopped
}

// checked runs check and fails the test if check changes the directory.
func checked(t *testing.T, dir string) (code int, stdout, stderr string) {
	t.Helper()
	before := fingerprint(t, dir)
	code, stdout, stderr = vivarium("check", dir)
	if after := fingerprint(t, dir); !maps.Equal(before, after) {
		t.Fatalf("the directory was changed:\n%v\n%v", before, after)
	}
	return code, stdout, stderr
}

// fingerprint describes everything that can be seen of a directory.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		var data []byte
		if e.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		all[path] = fmt.Sprintf("%v %v %x", info.Mode(), info.ModTime(), sha256.Sum256(data))
		return err
	}))
	return all
}

// A directory that a member left is sound. check counts the znodes and sessions as of the image's
// last transaction. A member that was killed may have had any transaction there.
func TestCheck_Sound(t *testing.T) {
	t.Parallel()
	_, killed, stopped := members(t, 1)
	line := regexp.MustCompile(`^shard 1: sound: (\d+) znodes, (\d+) sessions, zxid (0x[0-9a-f]+); image of level [12] at entry (\d+), log to entry (\d+)\n`)
	for name, files := range map[string]specimen{"killed": killed, "stopped": stopped} {
		dir := files.restore(t)
		code, stdout, stderr := checked(t, dir)
		found := line.FindStringSubmatch(stdout)
		if code != exitOK || stderr != "" || found == nil || stdout[len(found[0]):] != dir+`: sound: member 1 of the ensemble "orders", started 2 times`+"\n" {
			t.Errorf("%s: %d\n%s%s", name, code, stdout, stderr)
			continue
		}
		number := func(i int) int {
			n, err := strconv.ParseInt(found[i], 0, 64)
			must(t, err)
			return int(n)
		}
		// A run opens a session and creates forty znodes. At the next start, the session ends.
		znodes, sessions := 4, 0
		if step := number(3) % 42; step > 0 {
			znodes, sessions = 4+step-1, 1
		}
		if number(1) != znodes || number(2) != sessions {
			t.Errorf("%s: want %d znodes and %d sessions of that zxid: %s", name, znodes, sessions, stdout)
		}
		if image, log := number(4), number(5); image > log || name == "stopped" && (image != log || number(3) != 83) {
			t.Errorf("%s: want an image that does not end after the log, and after a stop ends with it: %s", name, stdout)
		}
	}
}

func TestCheck_Shards(t *testing.T) {
	t.Parallel()
	_, _, stopped := members(t, 2)
	dir := stopped.restore(t)
	code, stdout, _ := checked(t, dir)
	if code != exitOK || strings.Count(stdout, ": sound: ") != 3 {
		t.Errorf("%d\n%s", code, stdout)
	}
	// One damaged shard does not hide the others.
	must(t, os.WriteFile(filepath.Join(dir, "image/shard-1/current"), []byte("x"), 0o644))
	code, stdout, _ = checked(t, dir)
	if code != exitFailed || !strings.HasPrefix(stdout, "shard 1: damaged: "+filepath.Join(dir, "image/shard-1/current")+": ") || !strings.Contains(stdout, "\nshard 2: sound: ") ||
		!strings.HasSuffix(stdout, dir+": damaged\n"+advice) {
		t.Errorf("%d\n%s", code, stdout)
	}
}

// vital matches the paths of the files in which check must find a flipped byte in the middle.
var vital = regexp.MustCompile(`(^identity|/format|/current|/CURRENT|/MANIFEST-\d+|\.sst|/tandb/.*\.(log|index)|/BOOTSTRAP-\d+-\d+)$`)

// A byte of each file is flipped, at several places. Either check finds it and names the file, or
// nothing depends on the byte.
func TestCheck_AByteThatTurned(t *testing.T) {
	t.Parallel()
	_, killed, stopped := members(t, 1)
	for state, s := range map[string]specimen{"killed": killed, "stopped": stopped} {
		kinds := make(map[string]int)
		dir := s.restore(t)
		_, sound, _ := checked(t, dir)
		for _, name := range slices.Sorted(maps.Keys(s)) {
			data := s[name]
			size := len(bytes.TrimRight(data, "\x00")) // a log in use ends in zeros
			current := string(s[filepath.Join(filepath.Dir(name), "CURRENT")])
			for _, at := range places(size) {
				turned := bytes.Clone(data)
				turned[at] ^= 0x10
				must(t, os.WriteFile(filepath.Join(dir, name), turned, 0o644))
				code, stdout, stderr := checked(t, dir)
				must(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
				must := at == size/2 && vital.MatchString(name) && (!strings.Contains(name, "MANIFEST") || strings.Contains(current, filepath.Base(name)))
				// Nobody can tell whether the last record of a log in use was ever complete.
				last := state == "killed" && strings.Contains(name, "/tandb/") && !must
				switch found := code == exitFailed && strings.Contains(stdout, filepath.Join(dir, name)); {
				case found && stderr == "":
					kinds[kindOf(name)]++
				case must || code != exitOK || stdout != sound && !last:
					t.Errorf("%s: byte %d of %d of %s: %d\n%s%s", state, at, size, name, code, stdout, stderr)
				}
			}
		}
		t.Logf("%s: found %v", state, kinds)
	}
}

func places(size int) (list []int) {
	if size < 9 {
		return nil
	}
	list = []int{0, size / 2, size - 1}
	if testkit.Night() {
		list = append(list, size/4, size*3/4)
	}
	return list
}

func kindOf(name string) string {
	return regexp.MustCompile(`\d+`).ReplaceAllString(filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name), "N")
}

// Parts of the directory are missing, or are from another time.
func TestCheck_Parts(t *testing.T) {
	t.Parallel()
	first, _, stopped := members(t, 1)
	without := func(s specimen, prefix string) specimen {
		s = maps.Clone(s)
		maps.DeleteFunc(s, func(name string, _ []byte) bool { return strings.HasPrefix(name, prefix) })
		return s
	}
	with := func(s, other specimen, prefix string) specimen {
		s = without(s, prefix)
		for name, data := range other {
			if strings.HasPrefix(name, prefix) {
				s[name] = data
			}
		}
		return s
	}
	for name, c := range map[string]struct {
		files specimen
		want  string
	}{
		"no identity":       {without(stopped, "identity"), "its identity file is missing"},
		"no log":            {without(stopped, "raft"), "the raft log is missing"},
		"no image":          {without(stopped, "image"), "the image holds entries up to 0 only"},
		"an older log":      {with(stopped, first, "raft"), "the raft log ends at"},
		"an older image":    {with(stopped, first, "image"), "the raft log begins at"},
		"an older identity": {with(stopped, first, "identity"), "has registered"},
		"an empty file":     {with(stopped, specimen{"identity": nil}, "identity"), "not an identity file"},
	} {
		dir := c.files.restore(t)
		code, stdout, stderr := checked(t, dir)
		if code != exitFailed || stderr != "" || !strings.Contains(stdout, c.want) || !strings.Contains(stdout, dir) {
			t.Errorf("%s: %d\n%s%s", name, code, stdout, stderr)
		}
	}
}

func TestCheck_NoMember(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	must(t, os.MkdirAll(filepath.Join(base, "other", "lost+found"), 0o755))
	joining := filepath.Join(base, "joining")
	addrs, err := child.FreeAddrs(1)
	must(t, err)
	n, err := embed.Start(embed.Config{Dir: joining, Join: []string{"127.0.0.1:1"}, Listen: addrs[0], Advertise: addrs[0], Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	must(t, n.Close())
	for dir, want := range map[string]string{
		filepath.Join(base, "missing"): "no such file or directory",
		file:                           "is no directory",
		filepath.Join(base, "other"):   "it holds no member's data",
		joining:                        "it has yet to join an ensemble",
	} {
		code, stdout, stderr := vivarium("check", dir)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, dir) {
			t.Errorf("%s: %d\n%s%s", dir, code, stdout, stderr)
		}
	}
}

// A directory that a newer version wrote is not called damaged. This version cannot judge it.
func TestCheck_Newer(t *testing.T) {
	t.Parallel()
	_, _, stopped := members(t, 1)
	marker := "vivarium image\nformat 2\n"
	stopped["image/shard-1/format"] = fmt.Appendf(nil, "%ssum %08x\n", marker, crc32.Checksum([]byte(marker), crc32.MakeTable(crc32.Castagnoli)))
	code, stdout, stderr := checked(t, stopped.restore(t))
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "written by a newer version") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

// A directory of a build from before 0.1.0 is not damaged, and no copy of it helps. Everything that
// reads it says the same sentence.
func TestCheck_OfABuildBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", filepath.Join(testdata, "before-0.1.0.tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data := filepath.Join(dir, "data")
	const sentence = "a build from before the first release wrote it"
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"check", data}},
		{exitUsage, []string{"recover", "-look", data}},
		{exitFailed, []string{"backup", "-dir", data, filepath.Join(dir, "b")}},
		{exitFailed, []string{"export", "-dir", data}},
	} {
		code, stdout, stderr := vivarium(c.args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, sentence) || strings.Contains(stderr, "damaged") {
			t.Errorf("%v: %d, %s%s", c.args, code, stdout, stderr)
		}
	}
	_, err := embed.Start(embed.Config{Dir: data, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), sentence) || strings.Contains(err.Error(), "as it last was") {
		t.Errorf("Start: %v", err)
	}
}
