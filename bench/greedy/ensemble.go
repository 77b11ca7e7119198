//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// token is of an operator of the admin port.
const token = "greedy"

// A member is a process of vivarium serve.
type member struct {
	*exec.Cmd
	door, admin, peer string
	ended             chan struct{}
}

// found builds the program, and starts three members in a directory. Each may open files descriptors.
func found(dir string, memory int64, files int) ([]*member, error) {
	program := filepath.Join(dir, "vivarium")
	build := exec.Command("go", "build", "-o", program, "./cmd/vivarium")
	build.Dir = ".." // of the folder bench, where this program is run
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	addrs, err := child.FreeAddrs(9)
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "ops operator %x\n", sha256.Sum256([]byte(token))), 0o600); err != nil {
		return nil, err
	}
	var all []*member
	for i := range 3 {
		m := &member{peer: addrs[i], door: addrs[3+i], admin: addrs[6+i], ended: make(chan struct{})}
		config := filepath.Join(dir, fmt.Sprintf("node-%d.yaml", i+1))
		text := fmt.Sprintf("dir: %s\nmembers: {1: %s, 2: %s, 3: %s}\ngateway: {listen: %s, memory: %d}\nadmin: {listen: %s, tokensFile: %s}\n",
			filepath.Join(dir, fmt.Sprintf("data-%d", i+1)), addrs[0], addrs[1], addrs[2], m.door, memory, m.admin, tokens)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return all, err
		}
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("log-%d", i+1)))
		if err != nil {
			return all, err
		}
		m.Cmd = exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s serve -config %s -id %d", files, program, config, i+1))
		m.Stdout, m.Stderr = log, log
		if err := child.Start(m.Cmd); err != nil {
			return all, err
		}
		go func() {
			_ = m.Wait()
			close(m.ended)
		}()
		all = append(all, m)
	}
	return all, nil
}

// stop ends the process.
func (m *member) stop() {
	_ = m.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.ended:
	case <-time.After(30 * time.Second):
		_ = m.Process.Kill()
	}
}

// figures returns the resident memory of the process in bytes, and its open descriptors.
func (m *member) figures() (memory int64, files int, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(m.Process.Pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	fields := strings.Fields(string(rest))
	if len(fields) == 0 {
		return 0, 0, errors.New("the process has ended")
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	list, err := os.ReadDir(filepath.Join(dir, "fd"))
	return kib << 10, len(list), err
}

// ask asks the admin port as somebody with a token.
func (m *member) ask(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.admin+"/v1/status", nil)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Close = true
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	return nil
}
