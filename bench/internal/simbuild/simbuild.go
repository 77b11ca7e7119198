// Package simbuild builds ./sim for virtual time.
package simbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// where the runtime lists what a goroutine of a bubble may wait for while time passes, and what
// Build adds
const (
	idleBefore = "waitReasonSyncCondWait:          true,\n"
	idleAlso   = idleBefore + "\twaitReasonSyncMutexLock: true,\n\twaitReasonSyncRWMutexRLock: true,\n\twaitReasonSyncRWMutexLock: true,\n"
)

// Build builds ./sim into dir, with a runtime in which a goroutine that waits for a mutex does not
// stop virtual time. The directory bench is this module, or a copy of it.
func Build(ctx context.Context, bench, dir string) (program string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", "runtime2.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if !bytes.Contains(text, []byte(idleBefore)) {
		return "", fmt.Errorf("%s is not as expected: this program does not know how to change the runtime of this version of Go", file)
	}
	changed := filepath.Join(dir, "runtime2.go")
	if err := os.WriteFile(changed, bytes.Replace(text, []byte(idleBefore), []byte(idleAlso), 1), 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o644); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "sim")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", name, "-tags", "durable", "-o", program, "./sim")
	cmd.Dir = bench
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build: %w", err)
	}
	return program, nil
}
