package operationtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/storage/disk"
)

const supervisedDir = "/supervised"

// A supervised is one call of Supervise, in a bubble.
type supervised struct {
	t      *testing.T
	cfg    embed.Config
	seams  inside.Seams
	files  *memory.System
	faults *embedtest.Faults
	log    embedkit.Record

	nodes   chan *embed.Node // those that fn was called with
	restart chan time.Duration
	ended   chan error // what Supervise returned
	cancel  context.CancelFunc

	mu     sync.Mutex
	causes []error // of Events.Restarting
	acked  []string
}

// supervise returns a Supervise that has yet to run, of a node that is alone.
func supervise(t *testing.T) *supervised {
	s := &supervised{t: t, files: memory.New(), faults: embedtest.NewFaults(), nodes: make(chan *embed.Node, 100),
		restart: make(chan time.Duration, 1000), ended: make(chan error, 1)}
	s.seams = inside.Seams{Files: s.files}
	s.cfg = embed.Config{Dir: supervisedDir, Shards: shardsflag.N, Tick: embedtest.DefaultTick, Logger: embedkit.Quiet, Inside: &s.seams}
	s.cfg.Events.Restarting = func(cause error, wait time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.causes = append(s.causes, cause)
		s.restart <- wait
	}
	return s
}

// run begins the call.
func (s *supervised) run(fn func(context.Context, *embed.Node) error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancel = cancel
	go func() {
		s.ended <- embedtest.Supervise(ctx, s.cfg, s.faults, func(ctx context.Context, n *embed.Node) error {
			s.nodes <- n
			return fn(ctx, n)
		})
	}()
}

// serve is a function of a service that has nothing to do itself.
func serve(ctx context.Context, _ *embed.Node) error {
	<-ctx.Done()
	return ctx.Err()
}

// write is a function of a service that writes until it cannot, and keeps what was acknowledged.
func (s *supervised) write(ctx context.Context, n *embed.Node) error {
	session, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
	for i := 0; err == nil; i++ {
		var path string
		if path, err = session.Create(ctx, "/w-", make([]byte, 1000), embed.Sequential); err == nil {
			s.mu.Lock()
			s.acked = append(s.acked, path)
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	<-ctx.Done()
	return err
}

// sees fails the test unless a node has all that was acknowledged before.
func (s *supervised) sees(n *embed.Node) {
	s.t.Helper()
	s.mu.Lock()
	acked := s.acked
	s.mu.Unlock()
	session, err := n.NewSession(bounded(s.t), embed.SessionOptions{})
	must(s.t, err)
	for _, path := range acked {
		if _, ok, err := session.Exists(bounded(s.t), path); err != nil || !ok {
			s.t.Errorf("%s was acknowledged: %v, %v", path, ok, err)
		}
	}
	if len(acked) == 0 {
		s.t.Error("nothing was acknowledged")
	}
	must(s.t, session.Close())
}

// got returns what comes from a channel within a virtual time.
func got[T any](t *testing.T, what string, from <-chan T, within time.Duration) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(within):
		t.Fatalf("waited %v for %s", within, what)
		panic("unreachable")
	}
}

// node returns the next node that fn was called with.
func (s *supervised) node() *embed.Node {
	s.t.Helper()
	return got(s.t, "a node", s.nodes, 2*time.Minute)
}

// end returns what Supervise returns. By then the directory is free.
func (s *supervised) end() error {
	s.t.Helper()
	err := got(s.t, "Supervise to return", s.ended, 2*time.Minute)
	s.cancel()
	return err
}

// free fails the test unless a node can be started on the directory, once the disk is mended.
func (s *supervised) free() {
	s.t.Helper()
	s.faults.SetDisk(embedtest.Disk{})
	s.seams = inside.Seams{Files: s.files}
	n, err := embedtest.Start(s.cfg, s.faults)
	must(s.t, err)
	must(s.t, n.Ready(bounded(s.t)))
	must(s.t, n.Close())
}

var noRoom = embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Growth}

// For ten minutes the disk fails every start, and the node before. Then it is mended, and the node
// is back within a minute with everything that was acknowledged. The waits grow up to a minute.
func TestSupervise_TheDiskIsMended(t *testing.T) {
	for name, c := range map[string]struct{ first, then embedtest.Disk }{
		"room":        {noRoom, noRoom},
		"quota":       {embedtest.Disk{Err: syscall.EDQUOT, On: embedtest.Growth}, embedtest.Disk{Err: syscall.EDQUOT, On: embedtest.Growth}},
		"descriptors": {embedtest.Disk{Err: syscall.EMFILE, On: embedtest.Growth}, embedtest.Disk{Err: syscall.EMFILE, On: embedtest.Descriptors}},
		"I/O error":   {embedtest.Disk{Err: syscall.EIO, On: embedtest.Growth}, embedtest.Disk{Err: syscall.EIO, On: embedtest.Reads}},
		"read-only":   {embedtest.Disk{Err: syscall.EIO, On: embedtest.Growth}, embedtest.Disk{Err: syscall.EROFS}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				s.run(s.write)
				n := s.node()
				<-time.After(10 * time.Second)
				s.faults.SetDisk(c.first)
				got(t, "the node to fail", n.Done(), time.Minute)
				s.faults.SetDisk(c.then)
				<-time.After(10 * time.Minute)
				select {
				case <-s.nodes:
					t.Fatal("there is a node on a broken disk")
				default:
				}
				s.faults.SetDisk(embedtest.Disk{})
				n = got(t, "the node to be back", s.nodes, time.Minute+time.Second)
				s.sees(n)
				s.waits(c.first.Err, c.then.Err)
				s.cancel()
				if err := s.end(); !errors.Is(err, context.Canceled) || n.Err() != nil {
					t.Errorf("%v, %v", err, n.Err())
				}
				s.free()
			})
		})
	}
}

// The process goes to another working directory. A relative Dir stays where it was.
func TestSupervise_ARelativeDir(t *testing.T) {
	t.Chdir(t.TempDir())
	elsewhere := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		s.files, s.seams.Files = nil, nil
		s.cfg.Dir, s.cfg.Inside = "data", &s.seams
		s.run(s.write)
		n := s.node()
		<-time.After(10 * time.Second)
		t.Chdir(elsewhere)
		s.faults.SetDisk(noRoom)
		got(t, "the node to fail", n.Done(), 2*time.Minute)
		s.faults.SetDisk(embedtest.Disk{})
		s.sees(s.node())
		s.cancel()
		_ = s.end()
	})
}

// waits checks all waits so far: each is for such a cause, and at least half of twice the one before,
// up to a minute.
func (s *supervised) waits(first, then error) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.causes); n < 12 || n > 30 {
		s.t.Errorf("%d waits in ten minutes", n)
	}
	for i, cause := range s.causes {
		want := then
		if i == 0 {
			want = first
			if !errors.Is(cause, embed.ErrFailed) {
				s.t.Errorf("the first cause is %v", cause)
			}
		}
		longest := min(time.Second<<i, time.Minute)
		if i > 6 {
			longest = time.Minute
		}
		if wait := <-s.restart; wait < longest/2 || wait > longest || !errors.Is(cause, want) {
			s.t.Errorf("wait %d: %v for %v", i, wait, cause)
		}
	}
}

// Waits begin anew after a node that was well, and only then.
func TestSupervise_WaitsBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		s.run(s.write)
		for i, c := range []struct{ runs, longest time.Duration }{
			{time.Second, time.Second}, {time.Second, 2 * time.Second}, {time.Minute, 4 * time.Second},
			{6 * time.Minute, time.Second}, {time.Second, 2 * time.Second},
		} {
			n := s.node()
			must(t, n.Ready(bounded(t)))
			<-time.After(c.runs)
			s.faults.SetDisk(noRoom)
			got(t, "the node to fail", n.Done(), time.Minute)
			s.faults.SetDisk(embedtest.Disk{})
			if wait := got(t, "the wait", s.restart, time.Minute); wait < c.longest/2 || wait > c.longest {
				t.Errorf("wait %d is %v, want up to %v", i, wait, c.longest)
			}
		}
		s.sees(s.node())
		s.cancel()
		_ = s.end()
		s.free()
	})
}

// What a mended disk does not cure is returned at once, and fn is called no second time.
func TestSupervise_OtherCausesAreReturned(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(s *supervised, n *embed.Node)
		want   error
		text   string
	}{
		"failed fsync": {func(s *supervised, n *embed.Node) {
			s.faults.SetDisk(embedtest.Disk{Err: syscall.EIO, On: embedtest.Syncs})
		}, syscall.EIO, ""},
		"fsync without room": {func(s *supervised, n *embed.Node) {
			s.faults.SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Syncs})
		}, syscall.ENOSPC, ""},
		"unknown error": {func(s *supervised, n *embed.Node) { s.faults.SetDisk(embedtest.Disk{Err: syscall.EINVAL}) }, syscall.EINVAL, ""},
		"killed":        {func(s *supervised, n *embed.Node) { embedkit.EngineOf(n).Kill() }, nil, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				s.run(s.write)
				n := s.node()
				<-time.After(time.Second)
				c.breaks(s, n)
				err := s.end()
				if !errors.Is(err, embed.ErrFailed) || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				synctest.Wait()
				if len(s.nodes) > 0 || len(s.restart) > 0 {
					t.Error("it was not the end")
				}
				s.free()
			})
		})
	}
}

// A Start that fails for anything else than the disk is returned at once, the first time too.
func TestSupervise_StartIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *supervised)
		want   string
	}{
		"wrong config": {func(s *supervised) { s.cfg.Shards = -1 }, "config: Shards"},
		"read-only":    {func(s *supervised) { s.faults.SetDisk(embedtest.Disk{Err: syscall.EROFS}) }, "read-only"},
		"in use": {func(s *supervised) {
			n, err := embed.Start(s.cfg)
			must(s.t, err)
			s.t.Cleanup(func() { must(s.t, n.Close()) })
		}, "is open by another node"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				c.before(s)
				s.run(serve)
				if err := s.end(); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, embed.ErrFailed) {
					t.Errorf("%v", err)
				}
				synctest.Wait()
				if len(s.nodes) > 0 || len(s.restart) > 0 {
					t.Error("it was not returned at once")
				}
			})
		})
	}
}

// The first start finds a full disk too. The log tells of it once.
func TestSupervise_FullFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		s.cfg.Logger = slog.New(slog.NewJSONHandler(&s.log, nil))
		s.faults.SetDisk(noRoom)
		s.run(serve)
		<-time.After(5 * time.Minute)
		lines := s.log.All()
		if len(lines) == 0 || len(lines) > 2 || lines[0]["dir"] != supervisedDir || !strings.Contains(fmt.Sprint(lines[0]["cause"]), "no space left") {
			t.Errorf("%v", lines)
		}
		s.faults.SetDisk(embedtest.Disk{})
		must(t, s.node().Ready(bounded(t)))
		s.cancel()
		_ = s.end()
		s.free()
	})
}

// What a disk is mended with may be wrong. A directory that is damaged, or another node's, is
// returned at once and stays as it is.
func TestSupervise_NeverTakesADamagedDirectory(t *testing.T) {
	identity := filepath.Join(supervisedDir, "identity")
	for name, damage := range map[string]func(s *supervised){
		"no identity": func(s *supervised) { must(s.t, s.files.Remove(identity)) },
		"half an identity": func(s *supervised) {
			f, err := s.files.OpenFile(identity, os.O_RDWR, 0)
			must(s.t, err)
			must(s.t, f.Truncate(10))
			must(s.t, f.Close())
		},
		"no log":   func(s *supervised) { must(s.t, s.files.Rename(supervisedDir+"/raft", "/raft-elsewhere")) },
		"no image": func(s *supervised) { must(s.t, s.files.Rename(supervisedDir+"/image", "/image-elsewhere")) },
		"another node's": func(s *supervised) {
			must(s.t, s.files.Rename(supervisedDir, "/elsewhere"))
			n, err := embed.Start(s.cfg)
			must(s.t, err)
			must(s.t, n.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				s.run(s.write)
				n := s.node()
				<-time.After(time.Second)
				must(t, embedkit.EngineOf(n).RequestSnapshot())
				<-time.After(time.Second)
				s.faults.SetDisk(noRoom)
				got(t, "the node to fail", n.Done(), time.Minute)
				got(t, "the wait", s.restart, time.Minute)
				synctest.Wait()
				damage(s)
				before := contents(t, s.files, supervisedDir)
				s.faults.SetDisk(embedtest.Disk{})
				err := s.end()
				if err == nil || !strings.Contains(err.Error(), supervisedDir) || errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%v", err)
				}
				t.Log(err)
				if after := contents(t, s.files, supervisedDir); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("the directory has changed")
				}
				if len(s.nodes) > 0 {
					t.Error("fn got a node")
				}
			})
		})
	}
}

// contents returns all files below a directory, except for the empty lock file.
func contents(t *testing.T, files *memory.System, name string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	info, err := files.Stat(name)
	must(t, err)
	f, err := files.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer f.Close()
	if !info.IsDir() {
		data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
		must(t, err)
		if filepath.Base(name) != "lock" {
			all[name] = string(data)
		}
		return all
	}
	names, err := f.Readdirnames(-1)
	must(t, err)
	for _, below := range names {
		for path, data := range contents(t, files, filepath.Join(name, below)) {
			all[path] = data
		}
	}
	return all
}

// While the disk is mended its volume is not mounted. Nothing is founded in the empty directory,
// where all data would seem to be gone. When the volume is back, so is the node.
func TestSupervise_TheVolumeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		s.run(s.write)
		n := s.node()
		<-time.After(time.Second)
		s.faults.SetDisk(embedtest.Disk{Err: syscall.EIO, On: embedtest.Growth})
		got(t, "the node to fail", n.Done(), time.Minute)
		got(t, "the wait", s.restart, time.Minute)
		synctest.Wait()
		must(t, s.files.Rename(supervisedDir, "/unmounted"))
		s.faults.SetDisk(embedtest.Disk{})
		<-time.After(10 * time.Minute)
		if len(s.nodes) > 0 {
			t.Fatal("there is a node without the volume")
		}
		if got := contents(t, s.files, supervisedDir); len(got) > 0 {
			t.Fatalf("there is %v without the volume", got)
		}
		s.mu.Lock()
		last := s.causes[len(s.causes)-1]
		s.mu.Unlock()
		if !strings.Contains(last.Error(), "is its volume mounted?") {
			t.Errorf("it waits for %v", last)
		}
		must(t, s.files.Rename(supervisedDir, "/mountpoint"))
		must(t, s.files.Rename("/unmounted", supervisedDir))
		s.sees(s.node())
		s.cancel()
		_ = s.end()
		s.free()
	})
}

// The ctx ends in every phase. Supervise returns, and leaves no goroutine, of which the bubble would
// tell, and no lock on the directory.
func TestSupervise_CancelledInEveryPhase(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervise(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := embed.Supervise(ctx, s.cfg, serve); err != context.Canceled {
				t.Errorf("%v", err)
			}
			if _, err := s.files.Stat(supervisedDir); err == nil {
				t.Error("there is a directory")
			}
			s.free()
		})
	})
	for calls := 1; calls <= 200; calls += 13 { // of the disk, of which the first start makes more
		t.Run(fmt.Sprintf("call %d of the disk", calls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				var mu sync.Mutex
				left := calls
				s.seams.Fault = func(disk.Op, string) error {
					mu.Lock()
					defer mu.Unlock()
					if left--; left == 0 {
						s.cancel()
					}
					return nil
				}
				s.run(s.write)
				if err := s.end(); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				s.free()
			})
		})
	}
	for _, after := range []time.Duration{0, 400 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute} {
		t.Run(fmt.Sprintf("%v after the disk was full", after), func(t *testing.T) { // patience ends after half a second
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				s.run(s.write)
				s.node()
				<-time.After(time.Second)
				s.faults.SetDisk(noRoom)
				<-time.After(after)
				s.cancel()
				begin := time.Now()
				if err := s.end(); !errors.Is(err, context.Canceled) || after > time.Second && !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%v", err)
				}
				if took := time.Since(begin); after > time.Second && took > 0 {
					t.Errorf("the end of a wait took %v", took)
				}
				s.free()
			})
		})
	}
}

// When fn returns and its node is well, that is the end: the node is shut down, and nothing of it is
// left.
func TestSupervise_FnReturns(t *testing.T) {
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		fn   func(context.Context, *embed.Node) error
		want error
	}{
		"nil":            {func(context.Context, *embed.Node) error { return nil }, nil},
		"an error":       {func(context.Context, *embed.Node) error { return mine }, mine},
		"its own lack":   {func(context.Context, *embed.Node) error { return syscall.ENOSPC }, syscall.ENOSPC},
		"the node ended": {func(_ context.Context, n *embed.Node) error { return errors.Join(n.Close(), mine) }, mine},
		"by its ctx": {func(ctx context.Context, n *embed.Node) error {
			err := n.Close()
			<-ctx.Done()
			return errors.Join(err, context.Cause(ctx))
		}, embed.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := supervise(t)
				s.run(func(ctx context.Context, n *embed.Node) error {
					must(t, n.Ready(ctx))
					return c.fn(ctx, n)
				})
				n := s.node()
				if err := s.end(); !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
				select {
				case <-n.Done():
				default:
					t.Error("the node runs")
				}
				if len(s.nodes) > 0 || len(s.restart) > 0 || n.Err() != nil {
					t.Error("it was not the end")
				}
				s.free()
			})
		})
	}
}

// fn ends with what its calls return when the node has failed. Then the cause counts, at the very
// moment when a call returns ErrFailed.
func TestSupervise_FnReturnsErrFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		s.run(func(ctx context.Context, n *embed.Node) error {
			session, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
			for err == nil {
				<-time.After(10 * time.Millisecond)
				_, err = session.Create(ctx, "/w-", nil, embed.Sequential)
			}
			if !errors.Is(err, embed.ErrFailed) && !errors.Is(err, embed.ErrUnknownOutcome) && ctx.Err() == nil {
				t.Errorf("a call returned %v", err)
			}
			return err
		})
		for range 3 {
			n := s.node()
			<-time.After(time.Second)
			s.faults.SetDisk(noRoom)
			got(t, "the node to fail", n.Done(), time.Minute)
			s.faults.SetDisk(embedtest.Disk{})
		}
		s.node()
		s.cancel()
		_ = s.end()
	})
}

// Of three members one has a full disk for three minutes. The others go on, and it comes back with
// everything. Then it is removed, and that is the end.
func TestSupervise_OneOfThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		members := map[embed.MemberID]string{1: "one.test:1", 2: "two.test:1", 3: "three.test:1"}
		of := func(s *supervised, id embed.MemberID) *supervised {
			s.cfg.Tick = embed.DefaultTick // three members that beat more often take long
			s.cfg.ID, s.cfg.Members, s.cfg.Join = id, members, []string{members[1], members[2], members[3]}
			s.seams.Network = func(transport.Network) transport.Network { return named{mesh.Network(uint64(id)), members} }
			return s
		}
		var others []*supervised
		for id := embed.MemberID(2); id <= 3; id++ {
			s := of(supervise(t), id)
			s.run(s.write)
			others = append(others, s)
		}
		s := of(supervise(t), 1)
		s.run(serve)
		n, other := s.node(), others[0].node()
		must(t, n.Ready(bounded(t)))
		<-time.After(10 * time.Second)
		s.faults.SetDisk(noRoom)
		<-time.After(3 * time.Minute)
		if !errors.Is(n.Err(), syscall.ENOSPC) {
			t.Fatalf("the node says %v", n.Err())
		}
		s.faults.SetDisk(embedtest.Disk{})
		n = got(t, "the node to be back", s.nodes, time.Minute+time.Second)
		must(t, n.Ready(bounded(t)))
		others[0].sees(n)
		if got := n.Status().Member; got != 1 {
			t.Errorf("it is back as member %d", got)
		}
		must(t, other.RemoveMember(bounded(t), 1))
		if err := s.end(); !errors.Is(err, embed.ErrRemoved) || !errors.Is(err, embed.ErrFailed) {
			t.Errorf("it was removed: %v", err)
		}
		for _, o := range others {
			o.cancel()
			_ = o.end()
		}
	})
}

// named is a network on which members dial addresses before they know ids.
type named struct {
	transport.Network
	members map[embed.MemberID]string
}

// Dial connects to the member with the address.
func (n named) Dial(ctx context.Context, to transport.Target) (net.Conn, error) {
	for id, address := range n.members {
		if address == to.Address {
			to.Member = uint64(id)
		}
	}
	return n.Network.Dial(ctx, to)
}
