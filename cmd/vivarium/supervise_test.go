//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// The volume of a server is full from the beginning. The server waits, stops in good order if it is
// asked to, and serves as soon as somebody has made room. SIGHUP does not end it meanwhile.
//
// The volume is a real one: a small tmpfs, in a mount namespace of the server's own.
func TestServe_AFullVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "volume"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: volume/data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	if out, err := exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no volume can be mounted: %v, %s", err, out)
	}
	script := `mount -t tmpfs -o size=16m none volume || exit
head -c 17000000 /dev/zero >volume/ballast 2>/dev/null
(until [ -e room ] || ! kill -0 $$; do sleep 0.1; done; rm volume/ballast) >/dev/null 2>&1 &
exec "$0" serve -config node.yaml`
	start := func() *child.Program {
		return child.Run(t, dir, "unshare", "-Urm", "sh", "-c", script, binary)
	}
	p := start()
	line := p.Says("waiting for the disk to be mended")
	if !strings.Contains(line, "no space left on device") {
		t.Error(line)
	}
	p.Signal(syscall.SIGHUP)
	must(t, os.WriteFile(filepath.Join(dir, "room"), nil, 0o644))
	p.Says("msg=serving")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK || p.Line("msg=stopped") == "" {
		t.Errorf("%d\n%s", code, p.Log())
	}
	must(t, os.Remove(filepath.Join(dir, "room")))
	p = start()
	p.Says("waiting for the disk to be mended")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK || p.Line("msg=stopped") == "" {
		t.Errorf("while it waited: %d\n%s", code, p.Log())
	}
}
