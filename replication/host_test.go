package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSingleMember_WritesAndRestarts(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	for round := range 4 {
		e.start(n)
		for i := range 10 {
			e.write(n, 1, fmt.Sprintf("%d-%d", round, i))
		}
		e.barrier(n, 1)
		if got, want := n.tapes[0].state().count, uint64(10*(round+1)); got != want {
			t.Fatalf("round %d: %d commands applied, want %d", round, got, want)
		}
		e.stop(n)
		if !n.tapes[0].closed {
			t.Fatal("machine is not closed")
		}
	}
}

func TestThreeMembers_AgreeAfterWritesFromAll(t *testing.T) {
	t.Parallel()
	e := found(t, 3, 2)
	e.startAll()
	for shard := ShardID(1); shard <= 2; shard++ {
		for i := range 30 {
			e.write(e.nodes[i%3], shard, fmt.Sprintf("%d/%d", shard, i))
		}
	}
	e.same(t)
}

func TestPropose_Refusals(t *testing.T) {
	e := found(t, 3, 1)
	n := e.nodes[0]
	e.start(n) // two of three are missing, so there is no leader
	for name, c := range map[string]struct {
		cmd  []byte
		want error
	}{
		"no leader": {[]byte("x"), ErrNoLeader},
		"empty":     {nil, ErrTooLarge},
		"too large": {make([]byte, CommandMax+1), ErrTooLarge},
	} {
		if _, err := n.host.Propose(1, c.cmd); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := n.host.Propose(2, []byte("x")); err == nil {
		t.Error("a shard that does not exist takes proposals")
	}
	host := n.host
	e.stop(n)
	if _, err := host.Propose(1, []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, ErrClosed)
	}
	if err := host.Close(0); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// Close is bounded even if the machine never returns, and its error says what stays. What stays
// ends when the machine returns.
func TestHost_CloseIsBounded(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	busy, free := make(chan struct{}), make(chan struct{})
	e.prepare = func(n *node) {
		n.tapes[0].onApply = func(Entry) {
			close(busy)
			<-free
		}
	}
	e.start(n)
	awaitLeader(t, n, 1)
	if _, err := n.host.Propose(1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-busy
	host := n.host
	n.host = nil
	err := host.Close(20 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "20ms") {
		t.Errorf("close: %v", err)
	}
	close(free)
	eventually(t, "end", func() bool { // end of all writes to the directory, which is removed after the test
		bridge.mu.Lock()
		defer bridge.mu.Unlock()
		return host.shards[0].machine.closed.Load() && !slices.Contains(bridge.mu.hosts, host)
	})
}

// Every call of a host that is being closed gets an answer.
func TestHost_CallsDuringClose(t *testing.T) {
	t.Parallel()
	for range 5 {
		e := found(t, 1, 1)
		n := e.nodes[0]
		e.start(n)
		e.write(n, 1, "warm")
		host := n.host
		calls := []func() error{
			func() error { _, err := host.Propose(1, []byte("x")); return err },
			func() error { return host.Barrier(context.Background(), 1, time.Minute) },
			func() error { return host.RequestSnapshot(1) },
			func() error { return host.TransferLeader(1, 1) },
			func() error { host.Leader(1); host.Committed(1); host.Leads(1); return host.StartShard(1, nil) },
		}
		var wg sync.WaitGroup
		for _, call := range calls {
			wg.Go(func() {
				for !errors.Is(call(), ErrClosed) {
					runtime.Gosched()
				}
			})
		}
		e.stop(n)
		wg.Wait()
	}
}

func TestStartShard_Refusals(t *testing.T) {
	e := found(t, 1, 2)
	n := e.nodes[0]
	e.start(n)
	if err := n.host.StartShard(1, n.tapes[0]); err == nil {
		t.Error("a shard starts twice")
	}
	if err := n.host.StartShard(3, n.tapes[0]); err == nil {
		t.Error("a shard starts that does not exist")
	}
	e.write(n, 1, "x")
	e.stop(n)

	// Other members than at the founding of the log. Usually the identity file is checked before
	// this.
	n.disk = e.newDisk(n.dir)
	c := e.config(n)
	c.Deployment = deployment(c.Digest)
	c.Members = []MemberID{1, 2}
	h, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	n.host = h
	if err := h.StartShard(1, n.tapes[0]); !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), "other members") {
		t.Errorf("other members: %v", err)
	}
}

// withSnapshot returns an ensemble whose only node has stopped, and the folder of its only
// snapshot.
func withSnapshot(t *testing.T) (e *ensemble, n *node, folder string) {
	t.Helper()
	e = found(t, 1, 1)
	n = e.nodes[0]
	e.start(n)
	e.write(n, 1, "x")
	snapshotNow(t, n)
	e.stop(n)
	folders, err := filepath.Glob(filepath.Join(n.dir, "raft/*/*/snapshot-part-1/snapshot-1-1/snapshot-*"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	return e, n, folders[0]
}

// dragonboat panics over a damaged flag file of a snapshot and does not say which. The error names
// the directory.
func TestStartShard_ADamagedSnapshot(t *testing.T) {
	e, n, folder := withSnapshot(t)
	flag := filepath.Join(folder, "dragonboat.snapshot.message") // a kill right after the snapshot leaves it
	if err := os.WriteFile(flag, []byte("noise that is no checksum"), 0o640); err != nil {
		t.Fatal(err)
	}
	n.disk = e.newDisk(n.dir)
	c := e.config(n)
	c.Deployment = deployment(c.Digest)
	var err error
	if n.host, err = Open(c); err != nil {
		t.Fatal(err)
	}
	if err := n.host.StartShard(1, n.tapes[0]); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), n.dir) {
		t.Errorf("a damaged snapshot: %v does not name the directory", err)
	}
}

func TestCommitted_FollowsCommandsOnly(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	for i := range 5 {
		e.write(e.nodes[0], 1, fmt.Sprint(i))
	}
	for _, n := range e.nodes {
		e.barrier(n, 1)
		m := n.tapes[0]
		eventually(t, "commit index", func() bool { return n.host.Committed(1) == m.lastIndex() })
	}
}

// A file with settings for dragonboat is named in the log. Nothing else shows that it was there
// before main.
func TestOpen_WarnsOfSettingsInTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	said := func() string {
		var log lines
		warnOfSettings(log.logger(slog.LevelWarn))
		return log.String()
	}
	if text := said(); text != "" {
		t.Errorf("with no file it says %s", text)
	}
	for _, name := range []string{"dragonboat-soft-settings.json", "dragonboat-hard-settings.json"} {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if text := said(); !strings.Contains(text, filepath.Join(dir, name)) {
			t.Errorf("with %s it says %s", name, text)
		}
	}
}
