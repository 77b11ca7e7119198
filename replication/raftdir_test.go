package replication

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func hostName(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// C6.1: A member with another host name, or with a moved directory, is the same member.
func TestOpen_AnotherHostNameAndPath(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	n := e.nodes[0]
	for round := range 3 {
		e.start(n)
		e.write(n, 1, fmt.Sprint("before ", round))
		snapshotNow(t, n)
		e.write(n, 1, fmt.Sprint("after ", round))
		e.stop(n)

		moved := filepath.Join(t.TempDir(), "moved")
		if err := os.Rename(n.dir, moved); err != nil {
			t.Fatal(err)
		}
		n.dir = moved
		raft := filepath.Join(n.dir, "raft")
		if err := os.Rename(filepath.Join(raft, hostName(t)), filepath.Join(raft, "container-4711")); err != nil {
			t.Fatal(err)
		}
		if _, last, exists, err := checkLog(viewOf(t, e, n), 1); err != nil || !exists || last < n.tapes[0].index {
			t.Fatalf("log under another host name: last %d, exists %v, %v", last, exists, err)
		}
	}
	e.start(n)
	e.barrier(n, 1)
	if got := n.tapes[0].state().count; got != 6 {
		t.Errorf("%d commands are there, want 6", got)
	}
	names, err := os.ReadDir(filepath.Join(n.dir, "raft"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		if f.IsDir() && f.Name() != hostName(t) {
			t.Errorf("folder %s is still there", f.Name())
		}
	}
}

// dragonboat writes its flag files in place, so a crash can leave half of one.
func TestOpen_HalfWrittenFlagFiles(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "x")
	e.stop(n)
	for _, name := range flagFiles {
		name = filepath.Join(n.dir, "raft", name)
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, whole[:len(whole)/2], 0o640); err != nil {
			t.Fatal(err)
		}
	}
	e.start(n)
	e.write(n, 1, "y")
}

func TestOpen_StrangeFolder(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	for _, folder := range []string{"one", "two"} {
		if err := os.MkdirAll(filepath.Join(n.dir, "raft", folder), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	n.disk = newPlainDisk(t)
	_, err := Open(e.config(n))
	if !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), "one") || !strings.Contains(err.Error(), "two") {
		t.Errorf("two folders: %v", err)
	}
}

// C3: Everything that an earlier process left is made durable before dragonboat reads it.
func TestOpen_SyncsEveryFileFirst(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "x")
	e.stop(n)
	var want []string
	err := filepath.WalkDir(filepath.Join(n.dir, "raft"), func(path string, f os.DirEntry, err error) error {
		if err == nil && f.Type().IsRegular() && !slices.Contains(flagFiles, f.Name()) {
			want = append(want, path)
		}
		return err
	})
	if err != nil || len(want) < 5 {
		t.Fatal(want, err)
	}
	var mu sync.Mutex
	var got []string
	d := newPlainDisk(t)
	d.onSync = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, name)
	}
	n.disk = d
	if err := prepareRaftDir(e.config(n).withDefaults()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("synced\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOpen_RefusesBadConfig(t *testing.T) {
	_, err := Open(Config{Dir: "here", Members: []MemberID{1, 1, 0}, Member: 5, Shards: 1000, Tick: 1, ElectionTicks: 2})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"dir", "disk", "member 5", "contain 0", "twice", "shards 1000", "tick 1ns", "election ticks 2", "transport"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}
