//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A server with an audit says who deleted a znode, also after kill -9, and from whose address.
func TestAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\naudit: {dir: records}\n"), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	addr := regexp.MustCompile(`clients=(\S+)`).FindStringSubmatch(p.Says("msg=serving"))[1]
	for _, args := range [][]string{{"create", "/a", "one"}, {"create", "/b", "one"}, {"delete", "/a"}} {
		if code, _, stderr := vivarium(append([]string{"shell", "-server", addr}, args...)...); code != exitOK {
			t.Fatalf("%q: %d, %s", args, code, stderr)
		}
	}
	records := filepath.Join(dir, "records")
	deleted := regexp.MustCompile(`(?m)^\S+ shard=1 zxid=0x\w+ delete "/a" session=0x\w+ member=1 who="ip:127.0.0.1"$`)
	testkit.Until(t, "the record of the delete", func() bool {
		_, stdout, _ := vivarium("audit", "-path", "/a", records)
		return deleted.MatchString(stdout)
	})
	p.Signal(syscall.SIGKILL)
	p.ExitCode()
	p = spawn(t, dir, "serve", "-config", "node.yaml")
	p.Says("msg=serving")
	code, stdout, stderr := vivarium("audit", "-path", "/a", "-since", "1h", "-until", "0s", records)
	if code != exitOK || stderr != "" || !deleted.MatchString(stdout) || strings.Contains(stdout, `"/b"`) || strings.Count(stdout, " start\n") != 2 || strings.Contains(stdout, "one") {
		t.Errorf("%d, %s%s", code, stderr, stdout)
	}
	if code, stdout, _ := vivarium("audit", "-path", "/", "-below", "-session", "1000000", records); code != exitOK || strings.Contains(stdout, `"/`) {
		t.Errorf("another session: %d, %s", code, stdout)
	}
	for _, args := range [][]string{{}, {"-since", "yesterday", records}, {"-session", "x", records}} {
		if code, _, _ := vivarium(append([]string{"audit"}, args...)...); code != exitUsage {
			t.Errorf("%q: %d", args, code)
		}
	}
	if code, _, stderr := vivarium("audit", filepath.Join(dir, "none")); code != exitUsage || !strings.Contains(stderr, "no such file") {
		t.Errorf("no directory: %d, %s", code, stderr)
	}
}
