//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

const (
	size   = 3
	token  = "secret"        // of the admin port
	memory = 64 << 20        // gateway.Config.Memory
	files  = 4096            // that a member may open
	most   = 512 << 20       // resident memory of a member
	slow   = time.Second     // of a fair client's request
	beat   = time.Second     // between two looks at the members
	quiet  = 5 * time.Second // for the fair clients alone
)

// A member is a process of vivarium serve, and the most that it has taken.
type member struct {
	cmd                    *exec.Cmd
	peers, gateway, admin  string // its doors
	cpu                    time.Duration
	resident, open, stayed int // at most, and the resident memory at the end
}

// build builds vivarium in its own module.
func build(dir string) (program string, err error) {
	home, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/vivarium-go/vivarium").Output()
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "vivarium")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/vivarium")
	cmd.Dir, cmd.Stderr = strings.TrimSpace(string(home)), os.Stderr
	return program, cmd.Run()
}

// found starts an ensemble. Its members die with this process.
func found(dir string) (all []*member, err error) {
	program, err := build(dir)
	if err != nil {
		return nil, err
	}
	addrs, err := child.FreeAddrs(3 * size)
	if err != nil {
		return nil, err
	}
	for i := range size {
		m := &member{peers: addrs[3*i], gateway: addrs[3*i+1], admin: addrs[3*i+2]}
		all = append(all, m)
	}
	for i, m := range all {
		if err := m.start(program, filepath.Join(dir, fmt.Sprint(i+1)), i+1, all); err != nil {
			return all, err
		}
	}
	for _, m := range all {
		if err := measure.Until("a member", func() bool { _, err := openSession(m.gateway, ""); return err == nil }); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (m *member) start(program, dir string, id int, all []*member) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf("dir: data\nid: %d\nensemble: greedy\ngateway: {listen: %q, memory: %d}\nadmin: {listen: %q, tokensFile: tokens, openProbes: true}\nmembers:\n", id, m.gateway, memory, m.admin)
	for i, o := range all {
		config += fmt.Sprintf("  %d: %q\n", i+1, o.peers)
	}
	tokens := fmt.Sprintf("ops viewer %x\n", sha256.Sum256([]byte(token)))
	for name, text := range map[string]string{"node.yaml": config, "tokens": tokens} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd = exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s serve -config node.yaml", files, program))
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = dir, log, log
	return child.Start(m.cmd)
}

// look notes what the member takes. It returns an error if the member is gone.
func (m *member) look() error {
	proc := fmt.Sprintf("/proc/%d", m.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "/fd")
	m.stayed = int(measure.Resident(m.cmd.Process.Pid))
	if err != nil || m.stayed == 0 {
		return fmt.Errorf("the member at %s has ended", m.gateway)
	}
	m.resident, m.open = max(m.resident, m.stayed), max(m.open, len(fds))
	return nil
}

func (m *member) kill() {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// dial opens a connection to a door, from an address of loopback if one is given.
func dial(to, from string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.Dial("tcp", to)
}
