package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/files"
)

// A stuckSystem holds up what is written to its files, until it is freed.
type stuckSystem struct {
	files.System
	free   chan struct{}
	writes atomic.Int32
}

func (s *stuckSystem) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	return stuckFile{f, s}, err
}

type stuckFile struct {
	files.File
	sys *stuckSystem
}

func (f stuckFile) WriteAt(b []byte, at int64) (int, error) {
	<-f.sys.free
	f.sys.writes.Add(1)
	return f.File.WriteAt(b, at)
}

// A disk that hangs slows no write of the ensemble, whether the records fit in the memory of the
// File or not. When it goes on, no record is missing, and one call has written many.
func TestFile_HungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, sys := t.TempDir(), &stuckSystem{System: files.OS, free: make(chan struct{})}
		f, err := open(Config{Dir: dir}, sys)
		must(t, err)
		audit := func(c *embed.Config) { c.Audit = f.Record }
		ens := embedtest.New(t, 1, embedtest.Options{Config: audit})
		s := ens.Session(1, embed.SessionOptions{})
		_, err = s.Create(t.Context(), "/a", nil, embed.Persistent)
		must(t, err)
		const writes = 3 * waitMax
		began := time.Now()
		for range writes {
			_, err := s.Set(t.Context(), "/a", nil, embed.AnyVersion)
			must(t, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%d writes took %v", writes, took)
		}
		if got := collect(t, dir, Query{}); len(got) > 0 {
			t.Fatalf("the disk does not hang: %v", zxids(got))
		}
		close(sys.free)
		must(t, ens.Node(1).Close())
		must(t, f.Close())
		versions := 0
		for _, r := range collect(t, dir, Query{Path: "/a"}) {
			if r.Op == "set" {
				if versions++; int(r.Version) != versions {
					t.Fatalf("record %d is of version %d", versions, r.Version)
				}
			}
		}
		// What waited was written by one call. Of the rest, each may have had its own.
		if n := sys.writes.Load(); versions != writes || f.Dropped() != 0 || n > writes-waitMax+8 {
			t.Errorf("%d of %d records, %d dropped, with %d calls", versions, writes, f.Dropped(), n)
		}
	})
}

// If many records do not fit on the disk together, those are written that fit alone.
func TestFile_DiskAlmostFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sys := &fullSystem{System: files.OS, room: int64(3 * len(encode(set(100))))}
		f, err := open(Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, sys)
		must(t, err)
		batch := [][]byte{}
		for z := embed.Zxid(100); z < 110; z++ {
			batch = append(batch, encode(set(z)))
		}
		f.write(batch) // the loop waits
		if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, upTo(100, 102)) ||
			f.Dropped() != 7 {
			t.Errorf("%v, %d dropped", got, f.Dropped())
		}
		sys.room = 1 << 20
		f.Record(set(110))
		must(t, f.Close())
		if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, append(upTo(100, 102), -7, 110)) {
			t.Errorf("%v", got)
		}
	})
}

// A fullSystem has room for files of a limited size.
type fullSystem struct {
	files.System
	room int64
}

func (s *fullSystem) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	return fullFile{f, s}, err
}

type fullFile struct {
	files.File
	sys *fullSystem
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	if fits := f.sys.room - at; fits < int64(len(b)) {
		n, err := f.File.WriteAt(b[:max(fits, 0)], at)
		return n, errors.Join(err, syscall.ENOSPC)
	}
	return f.File.WriteAt(b, at)
}

// The age of a file counts by the clock of the member that writes it, however wrong the clocks are
// of the members that were asked. No record is deleted early, also if the File is opened again and
// again. Without that, none stays for ever either.
func TestFile_AgeByItsOwnClock(t *testing.T) {
	for _, wrong := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, opened again %v", wrong, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir, sys := t.TempDir(), &clockSystem{System: files.OS}
					c := Config{Dir: dir, Age: time.Hour}
					f, err := open(c, sys)
					must(t, err)
					defer func() { must(t, f.Close()) }()
					for z := 1; z <= 130; z++ {
						<-time.After(time.Minute)
						if again && z%10 == 0 {
							must(t, f.Close())
							f, err = open(c, sys)
							must(t, err)
						}
						r := set(embed.Zxid(z))
						r.Time = r.Time.Add(wrong)
						f.Record(r)
						synctest.Wait()
						got := zxids(collect(t, dir, Query{}))
						if want := upTo(got[0], z); !slices.Equal(got, want) || got[0] > max(1, z-59) ||
							!again && got[0] < z-122 {
							t.Fatalf("after %d minutes: %d to %d", z, got[0], got[len(got)-1])
						}
					}
				})
			})
		}
	}
}

// A clockSystem says by the time of the bubble when its files were changed.
type clockSystem struct {
	files.System
	changed sync.Map // of the name: a time.Time
}

func (s *clockSystem) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	return clockFile{f, s, name}, err
}

func (s *clockSystem) Stat(name string) (os.FileInfo, error) {
	info, err := s.System.Stat(name)
	return s.dated(info, name), err
}

func (s *clockSystem) dated(info os.FileInfo, name string) os.FileInfo {
	at, ok := s.changed.Load(name)
	if !ok {
		return info
	}
	return datedInfo{info, at.(time.Time)}
}

type clockFile struct {
	files.File
	sys  *clockSystem
	name string
}

func (f clockFile) WriteAt(b []byte, at int64) (int, error) {
	f.sys.changed.Store(f.name, time.Now())
	return f.File.WriteAt(b, at)
}

func (f clockFile) Stat() (os.FileInfo, error) {
	info, err := f.File.Stat()
	return f.sys.dated(info, f.name), err
}

type datedInfo struct {
	os.FileInfo
	at time.Time
}

func (i datedInfo) ModTime() time.Time { return i.at }

// Files that cannot be deleted stop no record, and no deletion of others. The log tells of them once
// a minute. They are deleted as soon as that works.
func TestFile_WhatCannotBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, sys := t.TempDir(), &stickySystem{System: files.OS}
		var log bytes.Buffer
		f, err := open(Config{Dir: dir, Size: 400, Keep: 3,
			Logger: slog.New(slog.NewTextHandler(&log, nil))}, sys)
		must(t, err)
		record := func(first, last int) {
			for z := first; z <= last; z++ {
				f.Record(set(embed.Zxid(z)))
				synctest.Wait()
			}
		}
		record(100, 103)
		kept := numbers(namesIn(t, dir))
		sys.sticky.Store(&kept)
		record(104, 199)
		if n := f.Dropped(); n != 0 {
			t.Errorf("%d records were dropped", n)
		}
		got := numbers(namesIn(t, dir))
		if !slices.Equal(got[:len(kept)], kept) || len(got) != len(kept)+3 {
			t.Errorf("of %v, these are left: %v", kept, got)
		}
		if n := strings.Count(log.String(), "old audit files cannot be deleted"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
		sys.sticky.Store(new([]int))
		<-time.After(failPause)
		record(200, 200)
		if got := numbers(namesIn(t, dir)); len(got) != 3 {
			t.Errorf("these are left: %v", got)
		}
		must(t, f.Close())
	})
}

// A stickySystem refuses to delete some audit files.
type stickySystem struct {
	files.System
	sticky atomic.Pointer[[]int]
}

func (s *stickySystem) Remove(name string) error {
	if list := s.sticky.Load(); list != nil && slices.Contains(*list, numbers([]string{name})[0]) {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.EPERM}
	}
	return s.System.Remove(name)
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A file that cannot be read hides no other, and is an error.
func TestSearch_GoesOnAfterAFile(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(Config{Dir: dir, Size: 1, Keep: 9})
	must(t, err)
	for z := range 3 {
		f.Record(set(embed.Zxid(z)))
	}
	must(t, f.Close())
	name := filepath.Join(dir, nameOf(2))
	must(t, os.Remove(name))
	must(t, os.Mkdir(name, 0o700))
	var got []embed.AuditRecord
	var last error
	for r, err := range Search(dir, Query{}) {
		if last = err; err == nil {
			got = append(got, r)
		}
	}
	if !slices.Equal(zxids(got), []int{0, 2}) || last == nil || !strings.Contains(last.Error(), name) {
		t.Errorf("%v, %v", zxids(got), last)
	}
}

// What a directory does not have is an answer only if it is one of a File.
func TestSearch_AnotherDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, err := range Search(dir, Query{}) {
		if err == nil || !strings.Contains(err.Error(), "has no audit files") {
			t.Error(err)
		}
	}
	f, err := Open(Config{Dir: dir})
	must(t, err)
	if got := collect(t, dir, Query{}); len(got) > 0 {
		t.Error(got)
	}
	must(t, f.Close())
}
