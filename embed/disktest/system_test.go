package disktest

import (
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
	var above func(dir string)
	above = func(dir string) {
		if _, err := disk.Stat(dir); err == nil {
			return
		}
		above(filepath.Dir(dir))
		must(t, disk.Mkdir(dir, 0o755))
	}
	above(filepath.Dir(name))
	f, err := disk.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	must(t, err)
	_, err = f.WriteAt(data, 0)
	must(t, err)
	must(t, f.Close())
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
