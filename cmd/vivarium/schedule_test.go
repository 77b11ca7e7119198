//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// Two members share a directory for backups. The one that does not lead makes a backup as soon as
// it serves: a leader would leave it half a minute. It stops as it would without that.
func TestServe_MakesBackups(t *testing.T) {
	t.Parallel()
	n := newNight(t, 2)
	backups := func(more string) string { return "backup: {dir: backups, every: 1m, " + more + "}" }
	code, _, stderr := vivarium("serve", "-config", n.config(1, nil, backups("keep: {hourly: -1}")))
	if code != exitUsage || !strings.Contains(stderr, "1.yaml: backup.keep.hourly is -1") {
		t.Errorf("%d, %s", code, stderr)
	}
	must(t, os.Mkdir(filepath.Join(n.dir, "backups"), 0o700))
	runs := n.startAll(backups("keep: {hourly: 24, weekly: 1}"))
	const made = `msg="backup made"`
	var line string
	var by *child.Program
	until(t, "a backup", func() bool {
		for _, by = range runs {
			if line = by.Line(made); line != "" {
				return true
			}
		}
		return false
	})
	m := regexp.MustCompile(`file=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		t.Fatal(line)
	}
	mustRun(t, "", "verify", filepath.Join(n.dir, "backups", m[1]))
	end(t, by)
}
