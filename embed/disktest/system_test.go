package disktest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A system is the file system that a member's directory is on. It knows which files are open.
type system struct {
	files.System

	mu   sync.Mutex
	open map[*file]string // their names
}

func newSystem(on files.System) *system {
	return &system{System: on, open: make(map[*file]string)}
}

// newDisk returns a file system and a directory for the members of an ensemble. By day it is in
// memory, because a real one would take real time, and every test would wait for the fsyncs of all
// others.
func newDisk(t testing.TB) (disk files.System, dir string) {
	if testkit.Night() {
		return files.OS, t.TempDir()
	}
	return memory.New(), "/"
}

// writeFile writes a file, and makes the directories above it that are missing.
func writeFile(t testing.TB, disk files.System, name string, data []byte) {
	t.Helper()
	makeDir(t, disk, filepath.Dir(name))
	f, err := disk.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	must(t, err)
	_, err = f.WriteAt(data, 0)
	must(t, err)
	must(t, f.Close())
}

func makeDir(t testing.TB, disk files.System, dir string) {
	t.Helper()
	if _, err := disk.Stat(dir); err == nil {
		return
	}
	makeDir(t, disk, filepath.Dir(dir))
	must(t, disk.Mkdir(dir, 0o755))
}

func readFile(t testing.TB, disk files.System, name string) []byte {
	t.Helper()
	f, err := disk.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != io.EOF {
		must(t, err)
	}
	must(t, f.Close())
	return data
}

// walk calls fn with the path of each file and directory below dir, in the order of their paths. It
// leaves out what vanishes meanwhile, because a node runs there.
func walk(t testing.TB, disk files.System, dir string, fn func(path string, info os.FileInfo)) {
	t.Helper()
	f, err := disk.OpenFile(dir, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(t, err)
	names, err := f.Readdirnames(-1)
	must(t, errors.Join(err, f.Close()))
	for _, name := range slices.Sorted(slices.Values(names)) {
		path := filepath.Join(dir, name)
		info, err := disk.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		fn(path, info)
		if info.IsDir() {
			walk(t, disk, path, fn)
		}
	}
}

// filesBelow returns the paths of all files below dir.
func filesBelow(t testing.TB, disk files.System, dir string) (paths []string) {
	t.Helper()
	walk(t, disk, dir, func(path string, info os.FileInfo) {
		if info.Mode().IsRegular() {
			paths = append(paths, path)
		}
	})
	return paths
}

// contents describes all files and directories below dir, by their paths. No node runs there.
func contents(t testing.TB, disk files.System, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	walk(t, disk, dir, func(path string, info os.FileInfo) {
		all[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			all[path] += fmt.Sprintf(" %x", sha256.Sum256(readFile(t, disk, path)))
		}
	})
	return all
}

// copyTree copies what is in a directory in which no node runs.
func copyTree(t testing.TB, to files.System, toDir string, from files.System, fromDir string) {
	t.Helper()
	walk(t, from, fromDir, func(path string, info os.FileInfo) {
		copied, err := filepath.Rel(fromDir, path)
		must(t, err)
		if copied = filepath.Join(toDir, copied); info.IsDir() {
			makeDir(t, to, copied)
		} else {
			writeFile(t, to, copied, readFile(t, from, path))
		}
	})
}

func (s *system) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	opened := &file{f, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[opened] = name
	return opened, nil
}

// left returns the names of the files that are open.
func (s *system) left() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A file is an open file of a system.
type file struct {
	files.File
	of *system
}

func (f *file) Close() error {
	f.of.mu.Lock()
	delete(f.of.open, f)
	f.of.mu.Unlock()
	return f.File.Close()
}
