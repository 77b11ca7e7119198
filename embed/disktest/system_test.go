package disktest

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
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

// disks are the file systems of the members of an ensemble in real time. By day they are in memory,
// so that no member waits for another test's fsyncs. By night they are the machine's.
type disks struct {
	dir string // the ensemble's
	mu  sync.Mutex
	all map[embed.MemberID]*system
}

func newDisks(t testing.TB) *disks {
	d := &disks{dir: "/", all: make(map[embed.MemberID]*system)}
	if testkit.Night() {
		d.dir = t.TempDir()
	}
	return d
}

// of returns the file system of a member.
func (d *disks) of(id embed.MemberID) *system {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[id] == nil {
		if testkit.Night() {
			d.all[id] = newSystem(files.OS)
		} else {
			d.all[id] = newSystem(memory.New())
		}
	}
	return d.all[id]
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
