package testkit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Stacks returns the stacks of all goroutines.
func Stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// Heap returns how many bytes the live objects take, after a garbage collection.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// OpenFiles lists the files and sockets that this process has open, except those that the runtime
// opens for itself. It skips the test where the system does not list them.
func OpenFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd here")
	}
	var open []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") && !strings.HasPrefix(target, "anon_inode:") {
			open = append(open, target)
		}
	}
	return open
}

// Contents describes the directories and files below dir by their paths: names, modes, sizes and
// contents, and with times also when they were changed. It returns nil if there is no dir.
func Contents(t testing.TB, dir string, times bool) map[string]string {
	t.Helper()
	got := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		got[path] = info.Mode().String()
		if times {
			got[path] += fmt.Sprintf(" %v", info.ModTime())
		}
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			got[path] += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	Must(t, err)
	return got
}

// Unchanged reports an error of the test for each path that differs between two results of
// [Contents]. what names the case.
func Unchanged(t testing.TB, what string, before, after map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			t.Errorf("%s: %s changed from %q to %q", what, path, before[path], after[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[path]; !ok {
			t.Errorf("%s: %s is new", what, path)
		}
	}
}
