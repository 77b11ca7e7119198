package operationtest

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files/memory"
)

const (
	slowDisk   = "the disk is slow: see what else uses it"
	slowApply  = "applying is slow: look at the processor, the memory and the disk"
	slowCommit = "commits are slow: look at the disks of the members and the network"
	slowPeer   = "a member answers slowly: look at its log and the network"
	clockJump  = "the clock jumped: see what sets it"
)

// A disk that becomes slow is told of at a limited rate, with the figures of the last minute, and in
// the place of the commits that are slow because of it. The member's Health says so and stays ready.
// When the disk is fast again, both end.
func TestSlow_Disk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Record
		ens := embedtest.New(t, 1, embedtest.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) { c.Shards, c.Tick = 1, embed.DefaultTick }})
		n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
		must(t, err)
		write := func(d time.Duration) {
			for begin := time.Now(); time.Since(begin) < d; {
				<-time.After(100 * time.Millisecond)
				_, err := s.Set(bounded(t), "/a", nil, embed.AnyVersion)
				must(t, err)
			}
		}
		told := func() []map[string]any { return log.Of(1, slowDisk) }
		write(time.Minute)
		if lines, h := told(), n.Health(); len(lines) > 0 || h.Slow != "" || !h.Ready {
			t.Fatalf("a fast disk: %v, %+v", lines, h)
		}
		const delay = 300 * time.Millisecond
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: delay})
		write(30 * time.Minute) // told at once, and after 1, 3, 7 and 15 minutes
		lines := told()
		if len(lines) != 5 {
			t.Fatalf("told %d times: %v", len(lines), lines)
		}
		for i, l := range lines {
			took, p50, p99 := time.Duration(l["took"].(float64)), time.Duration(l["p50"].(float64)), time.Duration(l["p99"].(float64))
			if took < delay || took > 2*delay || l["level"] != "WARN" || l["election"] != float64(500*time.Millisecond) {
				t.Errorf("%v", l)
			}
			if first := i == 0; first != (l["repeated"] == 0.0) || first && p50 > delay/2 || i == 3 && p50 < delay/2 || p99 < p50 || p50 == 0 {
				t.Errorf("line %d: %v", i, l)
			}
		}
		if h := n.Health(); !h.Ready || !strings.Contains(h.Slow, "the disk is slow: an fsync has taken 300ms, and an election begins after 500ms") {
			t.Errorf("a slow disk: %+v", h)
		}
		if lines := append(log.Of(1, slowCommit), log.Of(1, slowApply)...); len(lines) > 0 {
			t.Errorf("it is the disk, and the log says %v", lines)
		}
		for _, l := range lines {
			for key, value := range l {
				if value == "" || value == nil {
					t.Errorf("%s is empty: %v", key, l)
				}
			}
		}
		ens.Faults(1).SetDisk(embedtest.Disk{})
		write(2 * time.Minute)
		if h := n.Health(); len(told()) != 5 || h.Slow != "" {
			t.Errorf("fast again: %+v, %v", h, told())
		}
	})
}

// Health says that the disk was slow for one minute after it was, also if nothing is written. What
// comes later counts anew.
func TestSlow_HealthClearsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards, c.Tick = 1, embed.DefaultTick }})
		ens.Ready(1)
		n := ens.Node(1)
		fsyncs := embedkit.EngineOf(n).Figures().Fsyncs
		want := func(after time.Duration, want string) {
			t.Helper()
			<-time.After(after)
			if slow := n.Health().Slow; (want == "") != (slow == "") || !strings.Contains(slow, want) {
				t.Errorf("%q, want %q", slow, want)
			}
		}
		want(0, "")
		fsyncs.Log.Observe(3 * time.Second)
		want(0, "an fsync has taken 3s")
		want(59*time.Second, "an fsync has taken 3s")
		want(2*time.Second, "")
		fsyncs.Other.Observe(400 * time.Millisecond)
		fsyncs.Log.Observe(300 * time.Millisecond)
		want(0, "an fsync has taken 400ms") // and not 3s
		want(30*time.Second, "an fsync has taken 400ms")
		fsyncs.Log.Observe(300 * time.Millisecond)
		want(31*time.Second, "an fsync has taken 300ms")
		want(30*time.Second, "")
	})
}

// What is slow is told of with its shard or peer, once for all shards. With a negative Config.Slow,
// nothing is.
func TestSlow_Kinds(t *testing.T) {
	for _, slow := range []time.Duration{0, 3 * time.Second, -1} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log embedkit.Record
				ens := embedtest.New(t, 2, embedtest.Options{
					Logger: slog.New(slog.NewJSONHandler(&log, nil)),
					Config: func(c *embed.Config) { c.Shards, c.Tick, c.Slow = 2, embed.DefaultTick, slow },
				})
				ens.Ready(1)
				<-time.After(time.Second)
				f := embedkit.EngineOf(ens.Node(1)).Figures()
				for _, h := range []interface{ Observe(time.Duration) }{
					&f.Shards[1].Replica.Applies, &f.Shards[1].Outbox.Commits, &f.Peers[0].Meters.RoundTrips, &f.Fsyncs.Other,
					&f.Fsyncs.Log, &f.Shards[0].Replica.Applies, &f.Shards[0].Outbox.Commits,
				} {
					h.Observe(124 * time.Millisecond)
					h.Observe(2 * time.Second)
				}
				synctest.Wait()
				for message, key := range map[string]string{slowDisk: "file other", slowApply: "shard 2", slowCommit: "shard 2", slowPeer: "peer 2"} {
					lines := log.Of(1, message)
					if slow != 0 {
						if len(lines) > 0 {
							t.Errorf("%v", lines)
						}
						continue
					}
					key, value, _ := strings.Cut(key, " ")
					if len(lines) != 1 || fmt.Sprint(lines[0][key]) != value || lines[0]["took"] != float64(2*time.Second) {
						t.Errorf("%s: %v", message, lines)
					}
				}
			})
		})
	}
}

// The wall clock of a member jumps forth and back. Each jump is told of once, however many sessions
// there are, and neither a sleep of the machine nor a slewed clock is one.
func TestSlow_ClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Record
		var w embedkit.Watchmaker
		n, err := embed.Start(embed.Config{Dir: "/member", Tick: 10 * time.Millisecond, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Inside: &inside.Seams{Clock: w.Clock(), Files: memory.New()}})
		must(t, err)
		t.Cleanup(func() { n.Close() })
		must(t, n.Ready(bounded(t)))
		var sessions []*embed.Session
		for range 3 {
			s, err := n.NewSession(bounded(t), embed.SessionOptions{Timeout: 10 * time.Second})
			must(t, err)
			sessions = append(sessions, s)
		}
		look := func() {
			for range 3 {
				for _, s := range sessions {
					s.State()
				}
				must(t, n.Ready(bounded(t)))
			}
		}
		look()
		w.Sleep(4 * time.Second)
		look()
		w.Jump(3 * time.Millisecond)
		look()
		w.Jump(time.Hour)
		look()
		until(t, "the jump to be told of", func() bool { return len(log.Of(1, clockJump)) > 0 })
		w.Jump(-time.Hour)
		look()
		if lines := log.Of(1, clockJump); len(lines) != 1 || lines[0]["by"] != float64(time.Hour) {
			t.Errorf("%v", lines)
		}
	})
}
