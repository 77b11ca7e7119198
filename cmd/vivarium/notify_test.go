//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// manager stands for systemd: it receives what a process says of itself. Its socket is in the
// environment of the processes that the test starts from now on.
func manager(t *testing.T) <-chan string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for the name of a socket
	must(t, err)
	name := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must(t, err)
	t.Setenv("NOTIFY_SOCKET", name)
	heard := make(chan string, 8)
	go func() {
		defer close(heard)
		message := make([]byte, 128)
		for {
			n, err := conn.Read(message)
			if err != nil {
				return
			}
			heard <- string(message[:n])
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		for range heard { // until the goroutine has ended
		}
		must(t, os.RemoveAll(dir))
	})
	return heard
}

// hears waits for the next message.
func hears(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("systemd hears %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("systemd does not hear %q", want)
	}
}

// systemd hears that a member is ready when it serves, not before it has a quorum. And it hears of
// the stop.
func TestServe_Notify(t *testing.T) {
	heard := manager(t)
	addrs, err := child.FreeAddrs(2)
	must(t, err)
	dir := t.TempDir()
	start := func(id int) *child.Program {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", id))
		must(t, os.WriteFile(file, fmt.Appendf(nil, "dir: data-%d\nid: %d\ntick: 20ms\nmembers: {1: %q, 2: %q}\ngateway: {listen: 127.0.0.1:0}\n",
			id, id, addrs[0], addrs[1]), 0o644))
		return spawn(t, dir, "serve", "-config", file)
	}
	first := start(1)
	first.Says("no quorum")
	if len(heard) > 0 {
		t.Errorf("without a quorum, systemd hears %q", <-heard)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	start(2)
	hears(t, heard, "READY=1")
	first.Says("msg=serving")
	first.Signal(syscall.SIGTERM)
	hears(t, heard, "STOPPING=1")
	if code := first.ExitCode(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A member serves and stops even if the socket that it was given is none.
func TestServe_NotifyInVain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "missing"))
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	p.Says("systemd was not notified")
	p.Says("msg=serving")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
