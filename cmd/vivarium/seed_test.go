//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// Everything is lost but a backup. Three new members begin with it. A damaged copy is refused before
// anything is founded, and later starts do not need the file.
func TestServe_Seed(t *testing.T) {
	t.Parallel()
	dir, addr, p := served(t)
	mustRun(t, "", "shell", "-server", addr, "create", "/a", "one")
	mustRun(t, "", "shell", "-server", addr, "set", "/a", "two")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Fatal(code)
	}
	file := filepath.Join(dir, "orders.backup")
	mustRun(t, "", "backup", "-dir", filepath.Join(dir, "data"), file)

	to := t.TempDir()
	config := filepath.Join(to, "node.yaml")
	addrs, err := child.FreeAddrs(3)
	must(t, err)
	of := func(dir string) []byte {
		return fmt.Appendf(nil, "dir: %s\nmembers: {1: %q, 2: %q, 3: %q}\ntick: 20ms\nsuperDigest: %s\ngateway: {listen: 127.0.0.1:0}\n",
			dir, addrs[0], addrs[1], addrs[2], embed.Digest("super:pw"))
	}
	must(t, os.WriteFile(config, of("data"), 0o644))
	content, err := os.ReadFile(file)
	must(t, err)
	content[len(content)/2] ^= 1
	damaged := filepath.Join(to, "damaged")
	must(t, os.WriteFile(damaged, content, 0o600))
	data, here := filepath.Join(to, "data"), filepath.Join(to, "here.yaml")
	must(t, os.WriteFile(here, of(data), 0o644))
	for name, want := range map[string]string{damaged: "damaged or incomplete backup", config: "not a backup", filepath.Join(to, "none"): "no such file"} {
		code, _, stderr := fed("", "serve", "-config", here, "-id", "1", "-seed", name)
		if _, err := os.Stat(data); code != exitUsage || !strings.Contains(stderr, "vivarium serve: -seed: ") || !strings.Contains(stderr, want) || err == nil {
			t.Errorf("%s: %d, %s, %v", name, code, stderr, err)
		}
	}

	start := func(id int) *child.Program {
		at := filepath.Join(to, fmt.Sprint(id))
		must(t, os.MkdirAll(at, 0o755))
		return spawn(t, at, "serve", "-config", config, "-id", fmt.Sprint(id), "-seed", file)
	}
	check := func(p *child.Program) {
		t.Helper()
		addr := regexp.MustCompile(`clients=(\S+) `).FindStringSubmatch(p.Says("msg=serving"))[1]
		until(t, "an answer", func() bool { // a leader may have gone
			code, out, _ := vivarium("shell", "-server", addr, "get", "-s", "/a")
			if code == exitOK && (!strings.Contains(out, "two\n") || !strings.Contains(out, "dataVersion = 1")) {
				t.Error(out)
			}
			return code == exitOK
		})
	}
	members := []*child.Program{start(1), start(2), start(3)}
	for _, p := range members {
		check(p)
	}
	must(t, os.Remove(file))
	members[0].Signal(syscall.SIGTERM)
	if code := members[0].ExitCode(); code != exitOK {
		t.Error(code)
	}
	check(start(1))
}
