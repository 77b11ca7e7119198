package operationtest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
)

var (
	_ metrics.Source = (*embed.Node)(nil)
	_ metrics.Source = (*gateway.Gateway)(nil)
	_ metrics.Source = (*schedule.Schedule)(nil)
)

// values returns what a source says, by name and values of labels, such as "queue_bytes 1". A
// histogram is its count and its sum.
func values(t *testing.T, source metrics.Source) map[string]float64 {
	t.Helper()
	found := make(map[string]float64)
	for s := range source.Samples() {
		key := strings.TrimPrefix(s.Name, "vivarium_")
		var labels string
		for _, l := range s.Labels {
			labels += " " + l.Value
		}
		if h := s.Histogram; h != nil {
			found[key+"_count"+labels], found[key+"_sum"+labels] = float64(h.Count()), h.Sum
			continue
		}
		found[key+labels] = s.Value
	}
	must(t, metrics.Write(new(strings.Builder), source))
	return found
}

// wantValues checks some values.
func wantValues(t *testing.T, found, wanted map[string]float64) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if got, ok := found[key]; !ok || got != wanted[key] {
			t.Errorf("%s is %v, known is %v; want %v", key, got, ok, wanted[key])
		}
	}
}

// wantUnknown checks that there are no such values.
func wantUnknown(t *testing.T, found map[string]float64, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if v, ok := found[key]; ok {
			t.Errorf("%s is %v, want it to be unknown", key, v)
		}
	}
}

// scrape returns the values, and fails the test if that takes longer than a tenth of a second of
// the bubble.
func scrape(t *testing.T, source metrics.Source) map[string]float64 {
	t.Helper()
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 200*time.Millisecond { // of two looks, see values
			t.Errorf("two scrapes take %v", took)
		}
	}()
	return values(t, source)
}

// openLabels have values that depend on the ensemble and the build.
var openLabels = []string{"shard", "peer", "version", "go"}

// note notes the name, the kind and the labels of samples.
func note(all iter.Seq[metrics.Sample], found map[string]bool) {
	for s := range all {
		line := fmt.Sprintf("%s %v", s.Name, s.Kind)
		for _, l := range s.Labels {
			if slices.Contains(openLabels, l.Name) {
				l.Value = "*"
			}
			line += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		found[line] = true
	}
}

// TestSamples_Golden holds the names that dashboards and alerts depend on. Run it with -update after
// a change, and read the diff.
func TestSamples_Golden(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	file := func(name string, text []byte) string {
		name = filepath.Join(files, name)
		must(t, os.WriteFile(name, text, 0o600))
		return name
	}
	authority := testkit.NewAuthority(t, "authority")
	cert, key := testkit.PEM(t, authority.Issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"member-1.test", "member-2.test"} }))
	ca, certFile, keyFile := file("ca", authority.PEM()), file("crt", cert), file("key", key)
	ens := embedtest.New(t, 2, embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Shards = 2
		c.Audit = func(embed.AuditRecord) {}
		c.TLS = &embed.TLS{CertFile: certFile, KeyFile: keyFile, CAFile: ca}
	}})
	ens.Stop(2)
	ens.Restart(2) // only a second start replays a log
	for _, id := range ens.Members() {
		ens.Session(id, embed.SessionOptions{})
	}
	g, err := gateway.Start(ens.Node(1), gateway.Config{Listen: "127.0.0.1:0", TLS: &gateway.TLS{CertFile: certFile, KeyFile: keyFile},
		SASLUsers: file("users", nil)})
	must(t, err)
	defer g.Close()
	backups, err := schedule.New(ens.Node(1), schedule.Config{Dir: files})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = backups.Run(ctx) })
	recorded, _ := os.ReadFile(filepath.Join("..", "testdata", "metrics.txt"))
	found := make(map[string]bool)
	ens.Until("a connection, and free locks", func() bool {
		for _, id := range ens.Members() {
			note(ens.Node(id).Samples(), found)
		}
		note(g.Samples(), found)
		note(backups.Samples(), found)
		// The figures of the newest backup come last.
		return *golden.Update && found["vivarium_backup_last_size_bytes gauge"] || len(found) >= strings.Count(string(recorded), "\n")
	})
	golden.Check(t, filepath.Join("..", "testdata", "metrics.txt"), strings.Join(slices.Sorted(maps.Keys(found)), "\n")+"\n")
}

// Two nodes of one process count apart, and fit on one page.
func TestSamples_TwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/a", []byte("data"), embed.Ephemeral)
		must(t, err)
		_, err = s.Create(ctx, "/a", nil, embed.Ephemeral)
		if !errors.Is(err, embed.ErrNodeExists) {
			t.Fatal(err)
		}
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		w, err := s.Watch(ctx, "/a", embed.WatchPersistent)
		must(t, err)
		_, err = s.Set(ctx, "/a", []byte("more"), embed.AnyVersion)
		must(t, err)
		_, err = ens.Session(2, embed.SessionOptions{}).Sync(ctx, "/")
		must(t, err)
		_, err = s.Sync(ctx, "/") // node 1 knows the other session too
		must(t, err)
		one, two := values(t, ens.Node(1)), values(t, ens.Node(2))
		wantValues(t, one, map[string]float64{
			"sessions own": 1, "sessions remote": 0, "sessions ensemble": 2, "holds mutex": 1, "ephemerals 1": 2, "watches 1 own": 1,
			"watch_events_total 1": 1, "requests_total 1 refused": 1, "requests_total 1 unknown": 0, "failed": 0, "sessions_suspended": 0,
			"shard_has_leader 1": 1, "queue_requests 1": 0, "session_ends_total closed": 0,
		})
		wantValues(t, two, map[string]float64{"sessions own": 1, "sessions ensemble": 2, "holds mutex": 0, "ephemerals 1": 2, "watches 1 own": 0,
			"watch_events_total 1": 0, "requests_total 1 refused": 0, "sync_seconds_count 1": two["sync_seconds_count 1"]})
		if one["session_margin_seconds"] <= 0 || one["commit_seconds_count 1"] == 0 || one["apply_seconds_count 1"] == 0 || two["sync_seconds_count 1"] == 0 {
			t.Errorf("margin %v, %v commits, %v applies, %v syncs", one["session_margin_seconds"], one["commit_seconds_count 1"],
				one["apply_seconds_count 1"], two["sync_seconds_count 1"])
		}
		must(t, hold.Release())
		w.Close()
		must(t, s.Close())
		wantValues(t, values(t, ens.Node(1)), map[string]float64{"sessions own": 0, "holds mutex": 0, "watches 1 own": 0, "ephemerals 1": 0,
			"session_ends_total closed": 1, "holds_lost_total suspended": 0, "holds_lost_total expired": 0})
		label := func(member string) metrics.Label { return metrics.Label{Name: "member", Value: member} }
		must(t, metrics.Write(new(strings.Builder), metrics.With(ens.Node(1), label("1")), metrics.With(ens.Node(2), label("2"))))
	})
}

// Counters and histograms never go back while their node runs, whoever leads.
func TestSamples_GrowWhileLeadersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		last := make(map[*embed.Node]map[string]float64)
		look := func() {
			for _, id := range ens.Members() {
				n, now := ens.Node(id), make(map[string]float64)
				for s := range n.Samples() {
					key := fmt.Sprint(s.Name, s.Labels)
					switch {
					case s.Kind == metrics.Counter:
						now[key] = s.Value
					case s.Histogram != nil:
						now[key], now[key+" sum"] = float64(s.Histogram.Count()), s.Histogram.Sum
					}
				}
				for key, was := range last[n] {
					if v, ok := now[key]; ok && v < was {
						t.Errorf("member %d: %s was %v and is %v", id, key, was, v)
					}
				}
				last[n] = now
			}
		}
		for round := range 6 {
			leader := ens.Leader()
			other := leader%3 + 1
			s := ens.Session(other, embed.SessionOptions{})
			_, err := s.Create(ctx, fmt.Sprintf("/%d", round), nil, embed.Ephemeral)
			must(t, err)
			look()
			before := values(t, ens.Node(other))["leader_changes_total 1"]
			ens.Stop(leader)
			ens.Start(leader)
			ens.Ready(leader)
			ens.Until("the change of leaders to be counted", func() bool { return values(t, ens.Node(other))["leader_changes_total 1"] > before })
			look()
		}
	})
}

// A member that is cut off comes close to losing its sessions, then suspends them, and loses them.
func TestSamples_OfAMemberThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 300 * time.Millisecond }})
		other := ens.Leader()%3 + 1
		n, s := ens.Node(other), ens.Session(other, embed.SessionOptions{Timeout: 20 * time.Second})
		_, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		before := scrape(t, n)["session_margin_seconds"]
		ens.Isolate(other)
		told := make(map[string]float64)
		for i := range 4 {
			ctx, cancel := context.Background(), context.CancelFunc(func() {}) // the request timeout counts
			if i == 3 {
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			}
			_, err := s.Create(ctx, "/a", nil, embed.Persistent)
			cancel()
			switch {
			case errors.Is(err, embed.ErrUnknownOutcome):
				told["requests_total 1 unknown"]++
			case errors.Is(err, embed.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
				told["requests_total 1 unavailable"]++
			default:
				t.Fatal(err)
			}
		}
		wantValues(t, scrape(t, n), told)
		ens.Until("the session to be suspended", func() bool { now, _ := s.State(); return now == embed.Suspended })
		found := scrape(t, n)
		wantValues(t, found, map[string]float64{"shard_has_leader 1": 0, "shard_leads 1": 0, "sessions_suspended": 1, "holds mutex": 0,
			"suspensions_total silence": 1, "suspensions_total clock": 0, "holds_lost_total suspended": 1})
		if margin := found["session_margin_seconds"]; margin > 0 || before <= 0 {
			t.Errorf("the margin was %v and is %v", before, margin)
		}
		<-s.Done()
		wantValues(t, scrape(t, n), map[string]float64{"sessions own": 0, "sessions_suspended": 0, "session_ends_total expired": 1})
		wantUnknown(t, scrape(t, n), "session_margin_seconds")
		var lost float64
		for key, v := range scrape(t, n) {
			if strings.HasPrefix(key, "peer_dropped_total") && strings.HasSuffix(key, "disconnected") {
				lost += v
			}
		}
		if lost == 0 {
			t.Error("no message to a peer was lost")
		}
	})
}

// A slow disk shows in the time of fsyncs, and in that of commits, but not in that of applying.
func TestSamples_OfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 300 * time.Millisecond
		ctx, ens := bounded(t), embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		// The snapshot of the start would wait for the disk with a lock, and who waits for a lock stops
		// the clock.
		<-time.After(10 * time.Second)
		before := values(t, ens.Node(1))
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: delay})
		_, err := s.Create(ctx, "/a", nil, embed.Persistent)
		must(t, err)
		ens.Faults(1).SetDisk(embedtest.Disk{})
		after := values(t, ens.Node(1))
		grown := func(key string) time.Duration {
			return time.Duration((after[key] - before[key]) * float64(time.Second)).Round(time.Millisecond)
		}
		if log, commit, apply := grown("fsync_seconds_sum log"), grown("commit_seconds_sum 1"), grown("apply_seconds_sum 1"); log < delay || commit < delay || apply != 0 {
			t.Errorf("a write took %v in fsyncs of the log, %v to commit and %v to apply", log, commit, apply)
		}
	})
}

// A scrape does not wait for a disk that hangs.
func TestSamples_OfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		<-time.After(10 * time.Second) // until the snapshot of the start is done, as above
		before := values(t, ens.Node(1))
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Changes, Delay: time.Hour})
		sent := s.Submit(ctx, embed.OpCreate("/a", nil, embed.Persistent))
		synctest.Wait()
		found := scrape(t, ens.Node(1))
		wantValues(t, found, map[string]float64{"inflight_batches 1": 1, "znodes 1": before["znodes 1"], "sessions own": 1})
		ens.Faults(1).SetDisk(embedtest.Disk{})
		_, err := sent.Result()
		must(t, err)
		// No time may pass now: a sync of the image would wait for the disk with a lock, and who waits
		// for a lock stops the clock.
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Reads, Delay: time.Hour})
		wantValues(t, scrape(t, ens.Node(1)), map[string]float64{"inflight_batches 1": 0, "znodes 1": before["znodes 1"] + 1})
		ens.Faults(1).SetDisk(embedtest.Disk{})
	})
}

// A scrape does not wait for a shard that stands still. It leaves out what that shard has behind its
// lock, and has the rest.
func TestSamples_OfAShardThatStandsStill(t *testing.T) {
	t.Parallel()
	ens, still, begin := embedkit.Stalling(t, 3)
	sent := begin()
	found := make(chan map[string]float64, 1)
	go func() { found <- values(t, ens.Node(2)) }()
	select {
	case got := <-found:
		wantUnknown(t, got, "ephemerals 3")
		for _, key := range []string{"ephemerals 1", "ephemerals 2", "ephemerals 4", "applied_index 3", "znodes 3", "sessions own", "sessions ensemble", "queue_requests 3"} {
			if _, ok := got[key]; !ok {
				t.Errorf("%s is not known", key)
			}
		}
		if got["committed_index 3"] <= got["applied_index 3"] {
			t.Errorf("shard 3 has applied %v of %v entries", got["applied_index 3"], got["committed_index 3"])
		}
	case <-time.After(testkit.Patience):
		t.Error("a scrape waits for the shard")
	}
	still.End()
	embedkit.WantApplied(t, sent)
	if _, ok := values(t, ens.Node(2))["ephemerals 3"]; !ok {
		ens.Until("the shard to go on", func() bool { _, ok := values(t, ens.Node(2))["ephemerals 3"]; return ok })
	}
}

// Samples works after Close and after a failure. What only a running node knows is not there.
func TestSamples_OfANodeThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		gone := []string{"sessions own", "sessions ensemble", "session_margin_seconds", "queue_requests 1", "ephemerals 1", "watches 1 own", "peer_connected 2", "disk_free_bytes", "log_bytes", "image_bytes"}
		closed, failed := ens.Node(1), ens.Node(3)
		for _, id := range []embed.MemberID{1, 3} {
			ens.Session(id, embed.SessionOptions{})
		}
		znodes := scrape(t, closed)["znodes 1"]
		ens.Stop(1)
		found := scrape(t, closed)
		wantValues(t, found, map[string]float64{"failed": 0, "shard_has_leader 1": 0, "shard_leads 1": 0, "znodes 1": znodes, "session_ends_total node": 0, "session_ends_total closed": 1})
		wantUnknown(t, found, gone...)
		ens.Kill(3)
		found = scrape(t, failed)
		wantValues(t, found, map[string]float64{"failed": 1, "shard_has_leader 1": 0, "session_ends_total node": 1})
		wantUnknown(t, found, gone...)
	})
}

// What the start took and what the directory uses, on real files.
func TestSamples_OfADirectory(t *testing.T) {
	t.Parallel()
	begin := float64(time.Now().UnixMilli()) / 1000
	n := embedkit.Alone(t, t.TempDir(), inside.Seams{})
	embedkit.Write(t, n, "/a")
	var found map[string]float64
	until(t, "the file system to answer in time, or to be one that cannot tell", func() bool {
		found = values(t, n)
		return found["log_bytes"] > 0 || runtime.GOOS != "linux"
	})
	for _, key := range []string{"start_seconds open", "start_seconds replay", "start_seconds register"} {
		if found[key] <= 0 {
			t.Errorf("%s is %v", key, found[key])
		}
	}
	if at, now := found["start_time_seconds"], float64(time.Now().UnixMilli())/1000; at < begin || at > now {
		t.Errorf("started at %v, between %v and %v", at, begin, now)
	}
	if runtime.GOOS == "linux" && (found["image_bytes"] <= 0 || found["log_bytes"]+found["image_bytes"] > found["disk_size_bytes"]) {
		t.Errorf("log %v, image %v", found["log_bytes"], found["image_bytes"])
	}
}
