package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/files"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// set is a record that a test tells from others by its zxid.
func set(z embed.Zxid) embed.AuditRecord {
	return embed.AuditRecord{Time: time.Now().UTC().Truncate(time.Second), Zxid: z, Shard: 1,
		Op: "set", Path: "/a", Session: 7, Member: 2, Version: int32(z), Result: "ok"}
}

func collect(t *testing.T, dir string, q Query) (list []embed.AuditRecord) {
	t.Helper()
	for r, err := range Search(dir, q) {
		must(t, err)
		list = append(list, r)
	}
	return list
}

// zxids returns the zxids of records; of a gap, how many are missing as a negative number.
func zxids(list []embed.AuditRecord) (out []int) {
	for _, r := range list {
		if r.Op == gapOp {
			out = append(out, -int(r.Lost))
		} else {
			out = append(out, int(r.Zxid))
		}
	}
	return out
}

func upTo(first, last int) (out []int) {
	for z := first; z <= last; z++ {
		out = append(out, z)
	}
	return out
}

// A record is read as it was written.
func TestLine(t *testing.T) {
	for _, r := range []embed.AuditRecord{
		set(1),
		{
			Time: time.UnixMilli(1).UTC(), Op: "gap", Shard: 3, After: 5, Zxid: 9, Lost: 1 << 40,
			Why: "x", Result: "ok",
		},
		{
			Time: time.UnixMilli(1).UTC(), Op: "create", Path: "/\x01\n\"ü",
			Mode: embed.EphemeralSequential, Session: 1 << 40, Client: "::1",
			ACL:        []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "alice"}},
			Identities: []string{"ip:::1", "super"}, Result: "operation 1: znode does not exist",
		},
	} {
		text := encode(r)
		if got, ok := decode(text); !ok || !reflect.DeepEqual(got, r) ||
			bytes.Count(text, []byte{'\n'}) != 1 {
			t.Errorf("%+v\nis read as\n%+v", r, got)
		}
	}
	if r, ok := decode(encode(embed.AuditRecord{Op: "set", Time: time.UnixMilli(1 << 50)})); !ok ||
		!r.Time.IsZero() {
		t.Errorf("a time that JSON cannot say: %+v", r)
	}
}

// Files end at their size, and only the newest are kept. A File goes on where the last one ended.
func TestFile_Size(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "audit")
	size := int64(3 * len(encode(set(100))))
	for z := embed.Zxid(100); z < 120; {
		f, err := Open(Config{Dir: dir, Size: size, Keep: 3})
		must(t, err)
		if _, err := Open(Config{Dir: dir}); err == nil ||
			!strings.Contains(err.Error(), "open already") {
			t.Fatalf("a second File: %v", err)
		}
		for range 5 {
			f.Record(set(z))
			z++
		}
		must(t, f.Close())
		must(t, f.Close())
		f.Record(set(999))
		if f.Dropped() != 1 {
			t.Errorf("%d dropped after Close", f.Dropped())
		}
	}
	if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, upTo(112, 119)) {
		t.Errorf("kept: %v", got)
	}
	names, err := filepath.Glob(filepath.Join(dir, "audit-*"))
	must(t, err)
	if len(names) != 3 {
		t.Errorf("%q", names)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > size || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, %v, %v", name, info.Size(), info.Mode(), err)
		}
	}
}

// A record that is larger than a file has one of its own.
func TestFile_LargeRecord(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(Config{Dir: dir, Size: 10})
	must(t, err)
	large := set(2)
	large.Path = "/" + strings.Repeat("x", 65535)
	for _, r := range []embed.AuditRecord{set(1), large, set(3)} {
		f.Record(r)
	}
	must(t, f.Close())
	if got := collect(t, dir, Query{}); !slices.Equal(zxids(got), upTo(1, 3)) ||
		got[1].Path != large.Path {
		t.Errorf("%v", zxids(got))
	}
}

// A hungFile writes nothing until it is let go.
type hungFile struct {
	files.File
	free chan struct{}
}

func (f hungFile) WriteAt(b []byte, at int64) (int, error) {
	<-f.free
	return f.File.WriteAt(b, at)
}

type hungSystem struct {
	files.System
	free chan struct{}
}

func (s hungSystem) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	return hungFile{f, s.free}, err
}

// D14: beside a disk that hangs, large records wait up to a bound in bytes. None is lost.
func TestFile_LargeRecordsBesideAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 512 << 10, 2 * waitBytes / (512 << 10)
		dir, free := t.TempDir(), make(chan struct{})
		f, err := open(Config{Dir: dir}, hungSystem{files.OS, free})
		must(t, err)
		var taken atomic.Int64
		go func() {
			for z := range embed.Zxid(n) {
				r := set(z)
				r.Path = "/" + strings.Repeat("x", size)
				f.Record(r)
				taken.Add(1)
			}
		}()
		synctest.Wait()
		if k := taken.Load(); k > waitBytes/size || k < waitBytes/size-1 {
			t.Errorf("%d records of %d KiB wait", k, size>>10)
		}
		close(free)
		synctest.Wait()
		must(t, f.Close())
		if got := collect(t, dir, Query{}); !slices.Equal(zxids(got), upTo(0, n-1)) {
			t.Errorf("%v", zxids(got))
		}
	})
}

// No record goes before its age, and none stays for more than twice of it, while records come.
func TestFile_Age(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f, err := Open(Config{Dir: dir, Age: time.Hour})
		must(t, err)
		defer f.Close()
		for z := 1; z <= 300; z++ {
			<-time.After(time.Minute)
			f.Record(set(embed.Zxid(z)))
			synctest.Wait() // until it is written
			got := zxids(collect(t, dir, Query{}))
			if want := upTo(got[0], z); !slices.Equal(got, want) || got[0] > max(1, z-59) || got[0] < z-122 {
				t.Fatalf("after %d minutes: %d to %d", z, got[0], got[len(got)-1])
			}
		}
	})
}

// Wherever a crash cuts the newest file, all whole records before the cut are found, and the ones
// that follow.
func TestFile_TornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(Config{Dir: dir})
	must(t, err)
	for z := embed.Zxid(1); z <= 3; z++ {
		f.Record(set(z))
	}
	must(t, f.Close())
	name := filepath.Join(dir, nameOf(1))
	whole, err := os.ReadFile(name)
	must(t, err)
	for cut := range whole {
		must(t, os.WriteFile(name, whole[:cut], 0o600))
		ends := bytes.Count(whole[:cut], []byte{'\n'})
		if cut+1 < len(whole) && whole[cut] == '\n' {
			ends++ // the line is whole but for its end
		} else if cut+1 == len(whole) {
			ends = 3
		}
		if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, upTo(1, ends)) {
			t.Fatalf("cut at %d: %v", cut, got)
		}
		f, err := Open(Config{Dir: dir})
		must(t, err)
		f.Record(set(9))
		must(t, f.Close())
		if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, append(upTo(1, ends), 9)) {
			t.Fatalf("cut at %d, and one more: %v", cut, got)
		}
	}
}

// A crash at any step of a rotation, that is after any call that changes the disk, leaves a
// directory that the next File goes on with.
func TestFile_CrashAtEveryStep(t *testing.T) {
	for step := 1; ; step++ {
		dir := t.TempDir()
		sys := &brokenSystem{System: files.OS, after: step, err: errors.New("the machine is off")}
		c := Config{Dir: dir, Size: 1, Keep: 2, Logger: slog.New(slog.DiscardHandler)}
		var before []int
		if f, err := open(c, sys); err == nil {
			for z := embed.Zxid(1); z <= 5; z++ {
				f.Record(set(z))
			}
			_ = f.Close()
			before = zxids(collect(t, dir, Query{}))
		}
		f, err := Open(c)
		must(t, err)
		f.Record(set(6))
		must(t, f.Close())
		got := zxids(collect(t, dir, Query{}))
		if !slices.Equal(got, append(before[max(0, len(before)-1):], 6)) &&
			!slices.Equal(got, []int{6}) { // a torn file is one of two
			t.Errorf("step %d: %v, then %v", step, before, got)
		}
		if sys.after > 0 { // nothing was left to break
			return
		}
	}
}

// A brokenSystem fails all calls that change something from one of them on, until it is mended.
type brokenSystem struct {
	files.System
	after int // how many calls succeed, plus one
	err   error
}

func (s *brokenSystem) broken() error {
	if s.after--; s.after > 0 || s.err == nil {
		return nil
	}
	return s.err
}

func (s *brokenSystem) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	if err := s.broken(); err != nil && flag&os.O_CREATE != 0 {
		return nil, err
	}
	f, err := s.System.OpenFile(name, flag, perm)
	return brokenFile{f, s}, err
}

func (s *brokenSystem) Remove(name string) error {
	if err := s.broken(); err != nil {
		return err
	}
	return s.System.Remove(name)
}

type brokenFile struct {
	files.File
	sys *brokenSystem
}

// WriteAt writes half of it, and fails.
func (f brokenFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.sys.broken(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

func (f brokenFile) Truncate(size int64) error {
	if f.sys.err != nil && f.sys.after <= 0 {
		return f.sys.err
	}
	return f.File.Truncate(size)
}

// While the disk is full, records are counted, and the log says so once a minute. Afterwards a
// record says how many are missing.
func TestFile_DiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		dir, sys := t.TempDir(), &brokenSystem{System: files.OS}
		f, err := open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}, sys)
		must(t, err)
		defer f.Close()
		f.Record(set(1))
		synctest.Wait()
		sys.err, sys.after = syscall.ENOSPC, 0
		for z := embed.Zxid(2); z <= 11; z++ {
			f.Record(set(z))
			<-time.After(10 * time.Second)
		}
		synctest.Wait()
		if f.Dropped() != 10 {
			t.Errorf("%d dropped", f.Dropped())
		}
		if n := strings.Count(log.String(), "audit records cannot be written"); n != 2 ||
			!strings.Contains(log.String(), "no space left") {
			t.Errorf("%d lines: %s", n, log.String())
		}
		sys.err = nil
		f.Record(set(12))
		f.Record(set(13))
		synctest.Wait()
		if got := zxids(collect(t, dir, Query{})); !slices.Equal(got, []int{1, -10, 12, 13}) {
			t.Errorf("%v", got)
		}
		if n := strings.Count(log.String(), "audit records are written again"); n != 1 {
			t.Errorf("log: %s", log.String())
		}
	})
}

// A query finds by path, session and time, and always what is missing.
func TestSearch(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(Config{Dir: dir, Size: 200})
	must(t, err)
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 12, minute, 0, 0, time.UTC) }
	for i, r := range []embed.AuditRecord{
		{Op: "start"}, {Op: "create", Path: "/a", Session: 1}, {Op: "create", Path: "/a/b", Session: 2},
		{Op: "create", Path: "/ab", Session: 1},
		{Op: "gap", Lost: 5}, {Op: "delete", Path: "/a/b", Session: 2}, {Op: "expire", Session: 2},
	} {
		r.Time, r.Zxid = at(i), embed.Zxid(i)
		f.Record(r)
	}
	must(t, f.Close())
	for text, c := range map[string]struct {
		q    Query
		want []int
	}{
		"all":            {Query{}, []int{0, 1, 2, 3, -5, 5, 6}},
		"a path":         {Query{Path: "/a"}, []int{0, 1, -5}},
		"below":          {Query{Path: "/a", Below: true}, []int{0, 1, 2, -5, 5}},
		"below the root": {Query{Path: "/", Below: true}, []int{0, 1, 2, 3, -5, 5}},
		"a session":      {Query{Session: 2}, []int{0, 2, -5, 5, 6}},
		"both":           {Query{Session: 1, Path: "/ab"}, []int{0, 3, -5}},
		"since":          {Query{Since: at(5)}, []int{5, 6}},
		"until":          {Query{Until: at(1), Path: "/a"}, []int{0, 1}},
	} {
		if got := zxids(collect(t, dir, c.q)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", text, got, c.want)
		}
	}
	for range Search(dir, Query{}) {
		break // a caller may stop
	}
	for _, err := range Search(filepath.Join(dir, "none"), Query{}) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	err := Config{Size: -1, Keep: -1, Age: -1}.Validate()
	for _, field := range []string{"Dir", "Size", "Keep", "Age"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []Config{{}, {Dir: file}} {
		if _, err := Open(c); err == nil || !strings.HasPrefix(err.Error(), "audit: ") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	f, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := set(1 << 40)
	for b.Loop() {
		f.Record(r)
	}
	if err := f.Close(); err != nil { // what waits is part of the cost
		b.Error(err)
	}
}
