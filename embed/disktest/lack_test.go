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
	"github.com/vivarium-go/vivarium/embed/internal/inside"
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
				removedDirectory(t, members, what)
			})
		}
	}
}

func removedDirectory(t *testing.T, members int, what string) {
	ens := embedtest.New(t, members, embedtest.Options{})
	const victim = 1
	ens.TransferLeadership(victim)
	n, s := ens.Node(victim), ens.Session(victim, embed.SessionOptions{Timeout: time.Minute})
	_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
	must(t, err)
	idle(t, ens, victim)
	until(t, "the directory to be gone", func() bool { // the node may be creating files in it
		return os.RemoveAll(filepath.Join(ens.Dir(victim), what)) == nil
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
func idle(t *testing.T, ens *embedtest.Ensemble, id embed.MemberID) {
	t.Helper()
	dir := ens.Dir(id)
	must(t, ens.Snapshot(id)) // the start takes one only if there are new entries
	var last []string
	since := time.Now()
	until(t, "a snapshot to be over", func() bool {
		all, err := filepath.Glob(filepath.Join(dir, "raft/*/*/snapshot-part-*/*/*"))
		must(t, err)
		busy, err := filepath.Glob(filepath.Join(dir, "raft/*/*/snapshot-part-*/*/*/dragonboat.snapshot.message"))
		must(t, err)
		if !slices.Equal(all, last) {
			last, since = all, time.Now()
		}
		return len(all) > 0 && len(busy) == 0 && time.Since(since) > 2*time.Second &&
			!slices.ContainsFunc(all, func(name string) bool { return strings.HasSuffix(name, ".generating") })
	})
}

// For a while three disks are full at the same time, or three members of one process have no
// descriptor left. All wait, none fails, and none loses anything. The ensemble goes on when there
// is room.
func TestDisk_AllMembersLackTheSame(t *testing.T) {
	for name, d := range map[string]embedtest.Disk{
		"room":        {Err: syscall.ENOSPC, On: embedtest.Growth},
		"quota":       {Err: syscall.EDQUOT, On: embedtest.Growth},
		"descriptors": {Err: syscall.EMFILE, On: embedtest.Descriptors},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{Config: patientFor(time.Hour)})
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

// patientFor makes members wait this long for what they lack.
func patientFor(d time.Duration) func(*embed.Config) {
	return func(c *embed.Config) { c.Inside = &inside.Seams{Lack: d} }
}

// Close does not wait for room, and what could not be written was not acknowledged. After Close the
// directory is free, and has everything that was written.
func TestClose_OnAFullDisk(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 1, embedtest.Options{Config: patientFor(time.Hour)})
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
