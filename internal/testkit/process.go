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
// contents, and with times also when they were changed. It returns nil if there is no dir. If a
// file vanishes meanwhile, because a node runs on dir, it looks again.
func Contents(t testing.TB, dir string, times bool) (got map[string]string) {
	t.Helper()
	_ = unlessVanished(t, dir, func() (err error) { got, err = contents(dir, times); return err })
	return got
}

// CopyDir copies the directory from to the directory to. A node may run on from, and delete files
// that it no longer needs. If one vanishes meanwhile, CopyDir begins again.
func CopyDir(t testing.TB, to, from string) {
	t.Helper()
	Must(t, unlessVanished(t, from, func() error {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		return os.CopyFS(to, os.DirFS(from))
	}))
}

// unlessVanished calls read until nothing below dir vanishes meanwhile. It returns an error if
// there is no dir.
func unlessVanished(t testing.TB, dir string, read func() error) (gone error) {
	t.Helper()
	Until(t, dir+" to be read as a whole", func() bool {
		err := read()
		if errors.Is(err, fs.ErrNotExist) {
			_, gone = os.Stat(dir)
			return gone != nil
		}
		Must(t, err)
		return true
	})
	return gone
}

func contents(dir string, times bool) (map[string]string, error) {
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
	if err != nil {
		return nil, err
	}
	return got, nil
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
