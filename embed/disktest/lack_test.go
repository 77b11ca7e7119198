package disktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// C1.2: somebody removes a node's directory. If the node is alone, it acknowledges nothing from
// then on. The process lives, the node says what is missing, and Close returns. Of three members,
// the two others go on.
func TestDisk_RemovedDirectory(t *testing.T) {
	for _, members := range []int{1, 3} {
		for _, what := range []string{"", "raft", "image"} {
			t.Run(fmt.Sprintf("%d-%s", members, what), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) { removedDirectory(t, members, what) })
			})
		}
	}
}

func removedDirectory(t *testing.T, members int, what string) {
	on, dir := newDisk(t)
	ens := embedtest.New(t, members, embedtest.Options{Dir: dir, Config: func(c *embed.Config) { c.Inside = &inside.Seams{Files: on} }})
	const victim = 1
	ens.TransferLeadership(victim)
	n, s := ens.Node(victim), ens.Session(victim, embed.SessionOptions{Timeout: time.Minute})
	_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
	must(t, err)
	idle(t, ens, victim, on)
	until(t, "the directory to be gone", func() bool { // the node may be creating files in it
		return removeAll(on, filepath.Join(ens.Dir(victim), what)) == nil
	})
	_, err = s.Create(bounded(t), "/b", nil, embed.Persistent)
	if what != "image" && members == 1 && err == nil {
		t.Error("a write was acknowledged that is on no disk")
	}
	must(t, ens.Snapshot(victim)) // a snapshot needs the image
	until(t, "the node to fail", func() bool { return n.Err() != nil })
	if err := n.Err(); !errors.Is(err, disk.ErrRemoved) || !strings.Contains(err.Error(), "directory "+filepath.Join(ens.Dir(victim), what)) {
		t.Errorf("Err is %v", err)
	}
	for _, id := range ens.Members()[1:] {
		must(t, ens.Node(id).Err())
	}
	must(t, n.Close())
	if members == 1 {
		return
	}
	ens.Kill(victim)
	other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	_, err = other.Create(bounded(t), "/c", nil, embed.Persistent)
	must(t, err)
	_, ok, err := other.Exists(bounded(t), "/a")
	if must(t, err); !ok {
		t.Error("an acknowledged write is lost")
	}
}

// idle waits until a member takes no snapshot. If a snapshot is under way, dragonboat misses its
// files before our code misses their directory, and one of dragonboat's goroutines would stay.
func idle(t *testing.T, ens *embedtest.Ensemble, id embed.MemberID, on files.System) {
	t.Helper()
	must(t, ens.Snapshot(id)) // the start takes one only if there are new entries
	var last []string
	since := time.Now()
	until(t, "a snapshot to be over", func() bool {
		var all []string
		busy := false
		walk(t, on, filepath.Join(ens.Dir(id), "raft"), func(path string, _ os.FileInfo) {
			if _, below, _ := strings.Cut(path, "/snapshot-part-"); strings.Count(below, "/") >= 2 {
				all = append(all, path)
				busy = busy || strings.HasSuffix(path, ".generating") || strings.HasSuffix(path, "/dragonboat.snapshot.message")
			}
		})
		if !slices.Equal(all, last) {
			last, since = all, time.Now()
		}
		return len(all) > 0 && !busy && time.Since(since) > 2*time.Second
	})
}

// removeAll removes a directory and what is in it.
func removeAll(on files.System, dir string) error {
	f, err := on.OpenFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if on.Remove(path) != nil && removeAll(on, path) != nil {
			break // Remove says why
		}
	}
	return on.Remove(dir)
}

// For a while three disks are full at the same time, or three members of one process have no
// descriptor left. All wait, none fails, and none loses anything. The ensemble goes on when there
// is room. It is in real time, because Pebble and dragonboat wait for room while they hold locks.
func TestDisk_AllMembersLackTheSame(t *testing.T) {
	for name, d := range map[string]embedtest.Disk{
		"room":        {Err: syscall.ENOSPC, On: embedtest.Growth},
		"quota":       {Err: syscall.EDQUOT, On: embedtest.Growth},
		"descriptors": {Err: syscall.EMFILE, On: embedtest.Descriptors},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := patient(t, 3)
			s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
			_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
			must(t, err)
			for _, id := range ens.Members() {
				ens.Faults(id).SetDisk(d)
			}
			p := s.Submit(bounded(t), embed.OpCreate("/b", nil, embed.Persistent))
			for _, id := range ens.Members() {
				must(t, ens.Snapshot(id))
			}
			select {
			case <-p.Done():
				if name != "descriptors" { // an open log needs no new descriptor
					t.Error("a write was done without room")
				}
			case <-time.After(30 * embedtest.DefaultTick): // longer than an election
			}
			for _, id := range ens.Members() {
				ens.Faults(id).SetDisk(embedtest.Disk{})
			}
			_, err = p.Result()
			must(t, err)
			for _, id := range ens.Members() {
				ens.Ready(id)
				must(t, ens.Node(id).Err())
			}
			for _, id := range ens.Members() {
				ens.Kill(id)
			}
			for _, id := range ens.Members() {
				ens.Start(id)
			}
			again := ens.Session(2, embed.SessionOptions{})
			for _, path := range []string{"/a", "/b"} {
				_, ok, err := again.Exists(bounded(t), path)
				if must(t, err); !ok {
					t.Errorf("%s is lost", path)
				}
			}
		})
	}
}

// patient returns an ensemble whose members wait for what they lack, longer than the test takes.
func patient(t *testing.T, members int) *embedtest.Ensemble {
	on, dir := newDisk(t)
	return embedtest.New(t, members, embedtest.Options{Dir: dir, Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Inside = &inside.Seams{Files: on, Lack: time.Hour}
	}})
}

// Close does not wait for room, and what could not be written was not acknowledged. After Close the
// directory is free, and has everything that was written.
func TestClose_OnAFullDisk(t *testing.T) {
	t.Parallel()
	ens := patient(t, 1)
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
	must(t, err)
	ens.Faults(1).SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Growth})
	p := s.Submit(bounded(t), embed.OpCreate("/b", nil, embed.Persistent))
	select {
	case <-p.Done():
		t.Error("a write was done without room")
	case <-time.After(10 * embedtest.DefaultTick):
	}
	until(t, "Health to speak of the disk", func() bool {
		h := ens.Node(1).Health()
		return !h.Ready && strings.Contains(h.Waiting, "no space left")
	})
	must(t, ens.Node(1).Close())
	if _, err := p.Result(); err == nil {
		t.Error("a write was acknowledged that found no room")
	}
	ens.Kill(1)
	if _, err := ens.TryStart(1); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a start on a full disk: %v", err)
	}
	ens.Faults(1).SetDisk(embedtest.Disk{})
	ens.Restart(1)
	_, ok, err := ens.Session(1, embed.SessionOptions{}).Exists(bounded(t), "/a")
	if must(t, err); !ok {
		t.Error("an acknowledged write is lost")
	}
}
