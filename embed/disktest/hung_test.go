package disktest

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// soon is how long each half of Close waits for what hangs. Outside tests it is at least 10 s.
const soon = 200 * time.Millisecond

// C1.4: a disk that does not answer delays Close no longer than documented. The directory is free
// only after the hanging call has returned. Before, another node could not know what this call will
// still write.
//
// It is in real time, because some calls hang under a lock of dragonboat's.
func TestClose_OnADiskThatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h     *embedkit.Hanging
		early bool // hangs from the start
	}{
		"log write":     {embedkit.NewHanging(disk.OpWrite, "/raft/", 0), false},
		"log sync":      {embedkit.NewHanging(disk.OpSync, "/raft/", 0), false},
		"image sync":    {embedkit.NewHanging(disk.OpSync, "/image/", 0), false},
		"identity":      {embedkit.NewHanging(disk.OpCreate, "/identity", 1), true}, // the second: that the directory has a log
		"log directory": {embedkit.NewHanging(disk.OpSyncDir, "/raft/", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.early {
				c.h.Begin()
			}
			n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond, RequestTimeout: testkit.Patience, Logger: embedkit.Quiet,
				Inside: &inside.Seams{Fault: c.h.Ask, Close: soon}})
			must(t, err)
			defer n.Close()
			must(t, n.Ready(bounded(t)))
			s, err := n.NewSession(bounded(t), embed.SessionOptions{})
			must(t, err)
			c.h.Begin()
			until(t, "a call to hang", func() bool {
				s.Submit(bounded(t), embed.OpCreate("/x", nil, embed.Persistent))
				must(t, (*inside.Node)(n).Parts().Engine.RequestSnapshot())
				return c.h.Hit()
			})
			closed := make(chan error, 1)
			go func() { closed <- n.Close() }()
			select {
			case err = <-closed:
			case <-time.After(testkit.Patience):
				t.Fatal("Close does not end")
			}
			if err == nil || !strings.Contains(err.Error(), "locked") {
				t.Errorf("Close says %v", err)
			}
			if _, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: embedkit.Quiet}); !errors.Is(err, replication.ErrLocked) {
				t.Errorf("Start while the disk hangs: %v", err)
			}
			c.h.Free()
			becomesFree(t, dir)
		})
	}
}

// A stuckLog blocks at the line with a message, for as long as the test wants.
type stuckLog struct {
	message string
	hit     chan struct{} // closed when it blocks
	free    chan struct{}
}

func (l *stuckLog) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.message) {
		close(l.hit)
		<-l.free
	}
	return len(line), nil
}

// A logger that blocks holds up nothing of the node. Close ends, and the directory is free.
func TestClose_WithALoggerThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := &stuckLog{message: "msg=ready", hit: make(chan struct{}), free: make(chan struct{})}
	n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil)), Inside: &inside.Seams{Close: testkit.Patience}})
	must(t, err)
	defer n.Close()
	defer close(log.free)
	<-log.hit
	must(t, n.Close())
	n, err = embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: embedkit.Quiet})
	must(t, err)
	must(t, n.Close())
}

// becomesFree waits until a node can be started in a directory.
func becomesFree(t *testing.T, dir string) {
	t.Helper()
	until(t, "the directory to be free", func() bool {
		n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: embedkit.Quiet, Inside: &inside.Seams{Close: testkit.Patience}})
		if err != nil {
			if !errors.Is(err, replication.ErrLocked) {
				t.Fatal(err)
			}
			return false
		}
		must(t, n.Ready(bounded(t)))
		must(t, n.Close())
		return true
	})
}
