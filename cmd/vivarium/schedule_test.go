//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A server backs itself up as soon as it serves, and stops as it would without that.
func TestServe_MakesBackups(t *testing.T) {
	dir := t.TempDir()
	config := func(more string) string {
		return "dir: data\ngateway: {listen: 127.0.0.1:0}\n" +
			"backup: {dir: backups, every: 1m, " + more + "}\n"
	}
	file := filepath.Join(dir, "node.yaml")
	must(t, os.WriteFile(file, []byte(config("keep: {hourly: -1}")), 0o644))
	code, _, stderr := fed("", "serve", "-config", file)
	if code != exitUsage || !strings.Contains(stderr, "node.yaml: backup.keep.hourly is -1") {
		t.Errorf("%d, %s", code, stderr)
	}
	must(t, os.WriteFile(file, []byte(config("keep: {hourly: 24, weekly: 1}")), 0o644))
	must(t, os.Mkdir(filepath.Join(dir, "backups"), 0o700))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	line := p.Says(`msg="backup made"`)
	m := regexp.MustCompile(`file=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		t.Fatal(line)
	}
	mustRun(t, "", "verify", filepath.Join(dir, "backups", m[1]))
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Error(p.Log())
	}
}
