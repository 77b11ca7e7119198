package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
)

// scarce is a disk that lacks something for a while.
type scarce struct {
	err   error
	until time.Time
	hit   int
}

func (s *scarce) ask(Op, string) error {
	if time.Now().Before(s.until) {
		s.hit++
		return s.err
	}
	return nil
}

// lacking makes calls of d fail with err for the given time.
func lacking(d *Disk, err error, length time.Duration) *scarce {
	s := &scarce{err: err, until: time.Now().Add(length)}
	d.SetFault(s.ask)
	d.SetReadFault(s.ask)
	return s
}

// waiting records what OnWait tells.
func waiting(d *Disk) *[]string {
	var told []string
	d.OnWait(func(err error) { told = append(told, fmt.Sprint(err)) })
	return &told
}

var lacks = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE}

// patients are the calls that wait.
func patients(d *Disk, log File) map[string]func() error {
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	opened := func(f File, err error) error {
		if err == nil {
			err = f.Close()
		}
		return err
	}
	return map[string]func() error{
		"create": func() error { return opened(d.Create(at("raft/new"))) },
		"append": func() error { return opened(d.OpenForAppend(at("raft/f"))) },
		"write":  func() error { _, err := log.Write([]byte("x")); return err },
		"mkdir":  func() error { return d.MkdirAll(at("dir")) },
		"rename": func() error { return d.Rename(at("raft/f"), at("raft/g")) },
		"link":   func() error { return d.Link(at("raft/f"), at("raft/h")) },
		"read":   func() error { return opened(d.OpenForRead(at("raft/f"))) },
		"dir":    func() error { return opened(d.OpenDir(at("raft"))) },
		"list":   func() error { _, err := d.List(at("raft")); return err },
		"stat":   func() error { _, err := d.Stat(at("raft/f")); return err },
	}
}

// C1.2: Room and descriptors come back. Until then a call that needs them is repeated, and has not
// failed.
func TestPatience_ALackThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lack := range lacks {
			d, log := openLog(t)
			put(t, d, filepath.Join(d.Dir(), "raft/f"), "x")
			d.Patience(time.Minute)
			told := waiting(d)
			calls := patients(d, log)
			for _, name := range []string{"create", "append", "write", "mkdir", "link", "read", "dir", "list", "stat", "rename"} {
				s := lacking(d, lack, 59*time.Second)
				began := time.Now()
				if err := calls[name](); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(began); took < 59*time.Second || took > time.Minute || s.hit < 10 {
					t.Errorf("%s took %v for a lack of %v, asked %d times", name, took, s.until.Sub(began), s.hit)
				}
				if len(*told) != 2 || !strings.Contains((*told)[0], lack.Error()) || (*told)[1] != "<nil>" {
					t.Errorf("%s: told %q", name, *told)
				}
				*told = nil
			}
			ok(t, d.Err())
			ok(t, log.Close())
		}
	})
}

// A lack that does not pass is a failure in the end. Without patience it is a failure at once, and
// so is any other error.
func TestPatience_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err      error
			patience time.Duration
			takes    time.Duration
		}{
			{syscall.ENOSPC, time.Minute, time.Minute},
			{syscall.EMFILE, time.Minute, time.Minute},
			{syscall.ENOSPC, 0, 0},
			{syscall.EIO, time.Minute, 0},
			{syscall.EROFS, time.Minute, 0},
		} {
			d, log := openLog(t)
			d.Patience(c.patience)
			told := waiting(d)
			lacking(d, c.err, time.Hour)
			began := time.Now()
			must[int](t)(log.Write([]byte("x")))
			wantErr(t, d.Err(), c.err)
			if took := time.Since(began); took != c.takes {
				t.Errorf("%v was waited for for %v, want %v", c.err, took, c.takes)
			}
			if slices.Contains(*told, "<nil>") {
				t.Errorf("%v: it failed, and told of its end: %q", c.err, *told)
			}
			ok(t, log.Close())
		}
		d := open(t)
		put(t, d, filepath.Join(d.Dir(), "f"), "x")
		d.Patience(time.Minute)
		lacking(d, syscall.EMFILE, time.Hour)
		told := waiting(d)
		_, err := d.OpenForRead(filepath.Join(d.Dir(), "f"))
		wantErr(t, err, syscall.EMFILE)
		ok(t, d.Err())
		if len(*told) != 2 || (*told)[1] != "<nil>" {
			t.Errorf("a read waited in vain, and the node did not fail for it: told %q", *told)
		}
	})
}

// A failed fsync is never repeated: the kernel has forgotten what it could not write, and the next
// fsync succeeds.
func TestPatience_NotForAnFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, what := range []string{"file", "directory"} {
			d, log := openLog(t)
			dir := must[File](t)(d.OpenDir(filepath.Join(d.Dir(), "raft")))
			d.Patience(time.Minute)
			s := lacking(d, syscall.ENOSPC, time.Second)
			began := time.Now()
			if what == "file" {
				ok(t, log.Sync())
			} else {
				ok(t, dir.Sync())
			}
			wantErr(t, d.Err(), syscall.ENOSPC)
			if s.hit != 1 || time.Since(began) != 0 {
				t.Errorf("the fsync of a %s was made %d times in %v", what, s.hit, time.Since(began))
			}
			ok(t, dir.Close())
			ok(t, log.Close())
		}
	})
}

// A waiting call goes on at once when the node is closed or fails for another reason. Then it takes
// effect in memory.
func TestPatience_EndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for how, end := range map[string]func(d *Disk){
			"closed": func(d *Disk) { d.Patience(0) },
			"failed": func(d *Disk) { d.Fail(errInjected) },
		} {
			for name := range patients(open(t), nil) {
				d, log := openLog(t)
				put(t, d, filepath.Join(d.Dir(), "raft/f"), "x")
				d.Patience(time.Hour)
				told := waiting(d)
				lacking(d, syscall.ENOSPC, time.Hour)
				began := time.Now()
				go func() {
					<-time.After(time.Second + time.Millisecond)
					d.SetReadFault(nil)
					end(d)
				}()
				if err := patients(d, log)[name](); err != nil {
					t.Errorf("%s, %s: %v", how, name, err)
				}
				if took := time.Since(began); took > time.Second+time.Millisecond {
					t.Errorf("%s, %s: it went on after %v", how, name, took)
				}
				if how == "failed" && slices.Contains(*told, "<nil>") {
					t.Errorf("%s, %s: there is still no room, and it told of its end: %q", how, name, *told)
				}
				d.Fail(errInjected)
				if !d.Quiet() {
					t.Errorf("%s, %s: the call is still at the disk", how, name)
				}
				ok(t, log.Close())
			}
		}
	})
}

// If only part of a write found room, the write is completed at the same place when there is room
// again. Later writes follow behind it.
func TestPatience_APartialWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := openLog(t)
		name := filepath.Join(d.Dir(), "raft/1.log")
		must[int](t)(log.Write([]byte("whole ")))
		d.Patience(time.Minute)
		until := time.Now().Add(time.Second)
		d.SetFault(func(op Op, _ string) error {
			if time.Now().After(until) {
				return nil
			}
			w := must[*os.File](t)(os.OpenFile(name, os.O_RDWR, 0))
			must[int](t)(w.WriteAt([]byte("pa"), 6))
			ok(t, w.Close())
			return syscall.ENOSPC
		})
		must[int](t)(log.Write([]byte("partial")))
		must[int](t)(log.Write([]byte(" more")))
		ok(t, log.Sync())
		ok(t, d.Err())
		wantFile(t, d, name, "whole partial more")
		ok(t, log.Close())
		wantFile(t, must[*Disk](t)(Open(files.OS, d.Dir())), name, "whole partial more"+string(zeros[:aheadStep-len("partial more")]))
	})
}

// roomy is a file system whose files have room for so many bytes.
type roomy struct {
	files.System
	room int64
}

func (s roomy) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	f, err := s.System.OpenFile(name, flag, perm)
	return roomyFile{f, s.room}, err
}

type roomyFile struct {
	files.File
	room int64
}

func (f roomyFile) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.room {
		return f.File.WriteAt(p, off)
	}
	n, err := f.File.WriteAt(p[:max(0, f.room-off)], off)
	if err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

// C1.2: What is written has not failed because there is no room for the zeros behind it.
func TestPatience_NoRoomForZeros(t *testing.T) {
	d := must[*Disk](t)(Open(roomy{files.OS, 1000}, t.TempDir()))
	d.Logs(func(name string) bool { return strings.HasSuffix(name, ".log") })
	name := filepath.Join(d.Dir(), "1.log")
	log := must[File](t)(d.Create(name))
	part := strings.Repeat("x", 100)
	for range 10 {
		must[int](t)(log.Write([]byte(part)))
	}
	ok(t, log.Sync())
	ok(t, d.Err())
	wantFile(t, d, name, strings.Repeat(part, 10))
	must[int](t)(log.Write([]byte(part))) // to memory only
	wantErr(t, d.Err(), syscall.ENOSPC)
	ok(t, log.Close())
}

// The newest news is told last: if the end of a lack is told late, and another call lacks something
// by then, the listener must not be left with the end.
func TestPatience_TellsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.Patience(time.Minute)
		late := make(chan struct{})
		var mu sync.Mutex
		var told []string
		d.OnWait(func(err error) {
			if err == nil {
				<-late
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(err != nil))
		})
		list := func() { _, _ = d.List(d.Dir()) }
		lacking(d, syscall.EMFILE, time.Second)
		go list()
		<-time.After(2 * time.Second)
		lacking(d, syscall.EMFILE, 10*time.Second)
		go list()
		<-time.After(time.Second)
		close(late)
		synctest.Wait()
		mu.Lock()
		if want := []string{"true", "false", "true"}; !slices.Equal(told, want) {
			t.Errorf("while a call waits: told %v, want %v", told, want)
		}
		mu.Unlock()
		<-time.After(20 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"true", "false", "true", "false"}; !slices.Equal(told, want) {
			t.Errorf("at the end: told %v, want %v", told, want)
		}
	})
}
