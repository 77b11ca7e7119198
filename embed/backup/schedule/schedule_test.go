package schedule_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var (
	must = testkit.Must

	_ metrics.Source = (*schedule.Schedule)(nil)
)

// A crew is an ensemble whose members back it up.
type crew struct {
	*embedtest.Ensemble
	t    *testing.T
	dirs map[embed.MemberID]string
	all  map[embed.MemberID]*schedule.Schedule
	ends sync.WaitGroup
	stop func()
}

// every is short, because an hour of three members takes long even in virtual time.
const every = 2 * time.Minute

// slow lets members beat every half second instead of every 10 ms, so that virtual time costs less.
// The least session timeout is then 36 s.
const slow = time.Second / 2

// beats returns options with a tick.
func beats(tick time.Duration) embedtest.Options {
	return embedtest.Options{Config: func(c *embed.Config) { c.Tick = tick }}
}

// newCrew starts schedules. prepare may change each before it runs.
func newCrew(t *testing.T, tick time.Duration, shared bool, prepare func(id embed.MemberID, s *schedule.Schedule)) *crew {
	t.Helper()
	c := &crew{Ensemble: embedtest.New(t, 3, beats(tick)), t: t, dirs: make(map[embed.MemberID]string), all: make(map[embed.MemberID]*schedule.Schedule)}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = func() { stop(); c.ends.Wait() }
	<-time.After(time.Minute) // until it has a lineage
	dir := t.TempDir()
	for _, id := range c.Members() {
		if c.dirs[id] = dir; !shared {
			c.dirs[id] = t.TempDir()
		}
		s, err := schedule.New(c.Node(id), schedule.Config{Dir: c.dirs[id], Every: every})
		must(t, err)
		if prepare != nil {
			prepare(id, s)
		}
		c.all[id] = s
		c.ends.Go(func() {
			if err := s.Run(ctx); ctx.Err() == nil && !errors.Is(err, embed.ErrFailed) && !errors.Is(err, embed.ErrClosed) {
				t.Errorf("member %d: %v", id, err)
			}
		})
	}
	return c
}

// files returns the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// sound verifies a backup, and returns by which member it is.
func sound(t *testing.T, file string) embed.MemberID {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	info, err := backup.Verify(bytes.NewReader(text))
	must(t, err)
	return info.Member
}

// value returns a sample's value, or the number of what a histogram has observed.
func value(t *testing.T, s metrics.Source, name string) float64 {
	t.Helper()
	for sample := range s.Samples() {
		if sample.Name == "vivarium_"+name {
			if sample.Histogram != nil {
				return float64(sample.Histogram.Count())
			}
			return sample.Value
		}
	}
	t.Errorf("%s is unknown", name)
	return 0
}

// One member makes each backup, and none that leads. All of them know of it.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, slow, true, nil)
		defer c.stop()
		leader := c.Node(1).Status().Shards[0].Leader
		<-time.After(5 * every)
		var made float64
		for _, id := range c.Members() {
			at := time.Unix(int64(value(t, c.all[id], "backup_last_success_timestamp_seconds")), 0)
			if age := time.Since(at); age < 0 || age > every || value(t, c.all[id], "backup_last_size_bytes") == 0 || value(t, c.all[id], "backup_failures_total") != 0 {
				t.Errorf("member %d knows of one %v ago", id, age)
			}
			n := value(t, c.all[id], "backup_seconds")
			if made += n; id == leader && n > 0 {
				t.Errorf("member %d leads, and has made %v", id, n)
			}
		}
		if made < 5 || made > 6 { // at once, and at each multiple of every
			t.Errorf("%v backups", made)
		}
		names := files(t, c.dirs[1])
		if len(names) != 1 { // the newest of the hour
			t.Errorf("%q", names)
		}
		for _, name := range names {
			if by := sound(t, filepath.Join(c.dirs[1], name)); !strings.HasSuffix(name, fmt.Sprintf("-%d.backup", by)) {
				t.Errorf("%s is by member %d", name, by)
			}
		}
	})
}

// A member that leads makes the backup if nobody else does.
func TestSchedule_TheLeaderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, beats(slow))
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: t.TempDir(), Every: time.Minute})
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		<-time.After(10 * time.Minute)
		if n := value(t, s, "backup_seconds"); n < 9 {
			t.Errorf("%v backups in ten minutes", n)
		}
		ens.Stop(1)
		if err := <-ended; !errors.Is(err, embed.ErrClosed) {
			t.Error(err)
		}
	})
}

// A spoiler spoils what is written.
type spoiler struct {
	io.Writer
	spoil func(b []byte) ([]byte, error)
}

func (s spoiler) Write(b []byte) (int, error) {
	cut, err := s.spoil(bytes.Clone(b))
	n, other := s.Writer.Write(cut)
	return n + len(b) - len(cut), errors.Join(err, other)
}

// Whatever goes wrong with the new backup, on every member, the old ones stay as they are and
// nothing else is left. The failures are counted, the ensemble is well, and later it goes on.
func TestSchedule_Fails(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) ([]byte, error){
		"the disk is full":       func(b []byte) ([]byte, error) { return b[:len(b)/2], syscall.ENOSPC },
		"a byte is changed":      func(b []byte) ([]byte, error) { b[len(b)/2] ^= 1; return b, nil },
		"a part is written away": func(b []byte) ([]byte, error) { return b[:len(b)/2], nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				broken := false
				c := newCrew(t, slow, true, func(id embed.MemberID, s *schedule.Schedule) {
					s.Before(func(_ context.Context, w io.Writer) io.Writer {
						return spoiler{w, func(b []byte) ([]byte, error) {
							mu.Lock()
							defer mu.Unlock()
							if broken {
								return spoil(b)
							}
							return b, nil
						}}
					})
				})
				defer c.stop()
				set := func(to bool) { mu.Lock(); defer mu.Unlock(); broken = to }
				<-time.After(2 * every)
				before := files(t, c.dirs[1])
				set(true)
				<-time.After(2 * every)
				if now := files(t, c.dirs[1]); !slices.Equal(now, before) || len(now) != 1 {
					t.Errorf("%q, and before %q", now, before)
				}
				for _, id := range c.Members() {
					if n := value(t, c.all[id], "backup_failures_total"); n < 1 || n > 8 || !c.Node(id).Health().Ready {
						t.Errorf("member %d: %v failures, %+v", id, n, c.Node(id).Health())
					}
				}
				set(false)
				<-time.After(2 * every)
				if now := files(t, c.dirs[1]); len(now) != 1 || now[0] <= before[0] {
					t.Errorf("afterwards %q", now)
				}
				for _, name := range files(t, c.dirs[1]) {
					sound(t, filepath.Join(c.dirs[1], name))
				}
			})
		})
	}
}

// A directory that is not there is a failure like others. It is not created.
func TestSchedule_WithoutADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, beats(slow))
		dir := filepath.Join(t.TempDir(), "mount")
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: dir})
		must(t, err)
		go s.Run(t.Context())
		<-time.After(20 * time.Minute)
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || value(t, s, "backup_failures_total") < 3 || value(t, s, "backup_last_success_timestamp_seconds") != 0 {
			t.Errorf("%v, %v failures", err, value(t, s, "backup_failures_total"))
		}
		must(t, os.Mkdir(dir, 0o700))
		<-time.After(6 * time.Minute)
		if names := files(t, dir); len(names) != 1 {
			t.Errorf("%q", names)
		}
	})
}

// A backup that is good, but whose record the ACLs forbid, is a failure. Old backups go all the same,
// and Run ends with the error: the next record would be refused too.
func TestSchedule_MayNotRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, beats(slow))
		dir := t.TempDir()
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: dir, Every: every})
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		ens.Until("the first backup", func() bool { return value(t, s, "backup_seconds") == 1 })
		first := files(t, dir)
		session := ens.Session(1, embed.SessionOptions{})
		_, err = session.SetACL(t.Context(), "/zookeeper/vivarium/backup/last", embed.ReadACL(), embed.AnyVersion)
		must(t, err)
		select {
		case err := <-ended:
			if !errors.Is(err, embed.ErrNoAuth) {
				t.Error(err)
			}
		case <-time.After(10 * every):
			t.Error("Run goes on")
		}
		if n := value(t, s, "backup_failures_total"); n != 1 {
			t.Errorf("%v failures", n)
		}
		if now := files(t, dir); len(first) != 1 || len(now) != 1 || now[0] <= first[0] {
			t.Errorf("first %q, now %q", first, now)
		}
		sound(t, filepath.Join(dir, files(t, dir)[0]))
	})
}

// If the member that makes the backup dies or is cut off in the middle, another one makes it.
func TestSchedule_ItsMemberIsLost(t *testing.T) {
	for name, lose := range map[string]func(c *crew, id embed.MemberID){
		"killed":  func(c *crew, id embed.MemberID) { c.Kill(id) },
		"cut off": func(c *crew, id embed.MemberID) { c.Isolate(id) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes := make(chan embed.MemberID, 1)
				var once sync.Once
				// The session of the lost member must end before the leader's turn comes, after 30 s.
				c := newCrew(t, slow/5, false, func(id embed.MemberID, s *schedule.Schedule) {
					s.Before(func(ctx context.Context, w io.Writer) io.Writer {
						once.Do(func() {
							writes <- id
							<-ctx.Done()
						})
						return w
					})
				})
				defer c.stop()
				lost := <-writes
				lose(c, lost)
				<-time.After(5 * time.Minute)
				made := 0
				for _, id := range c.Members() {
					for _, name := range files(t, c.dirs[id]) {
						if by := sound(t, filepath.Join(c.dirs[id], name)); by == lost {
							t.Errorf("%s is by the lost member", name)
						}
						made++
					}
				}
				if made != 1 {
					t.Errorf("%d backups", made)
				}
			})
		})
	}
}

// With a clock that is a year ahead or behind, on any member, there is a backup every time, and
// the last one stays.
func TestSchedule_WithAWrongClock(t *testing.T) {
	for _, off := range []time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour, 3 * time.Minute, -3 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, slow, true, func(id embed.MemberID, s *schedule.Schedule) {
					if id == 2 {
						s.SetClock(func() time.Time { return time.Now().Add(off) })
					}
				})
				defer c.stop()
				made := func() (n float64) {
					for _, id := range c.Members() {
						n += value(t, c.all[id], "backup_seconds")
					}
					return n
				}
				for n := range 4 {
					before := made()
					<-time.After(every + every/2)
					if more := made() - before; more < 1 || more > 9 {
						t.Errorf("time %d: %v backups", n, more)
					}
					if names := files(t, c.dirs[1]); len(names) == 0 || len(names) > 2*(24+7+4) {
						t.Errorf("time %d: %q", n, names)
					}
				}
			})
		})
	}
}

// What is not a backup of this ensemble is never touched, whatever its name.
func TestSchedule_AmongForeignFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		other := embedtest.New(t, 1, beats(slow))
		<-time.After(time.Minute)
		var file bytes.Buffer
		_, err := other.Node(1).Backup(t.Context(), &file)
		must(t, err)
		long := time.Now().Add(-1000 * time.Hour)
		name := func(n int) string { return schedule.FileName(long.Add(time.Duration(n)*time.Minute), 1) }
		outside := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(outside, nil, 0o600))
		foreign := []string{"notes.txt", "vivarium.backup", "x" + name(0), name(0) + ".gz", name(0) + ".tmp-x", name(1), name(2), name(3), name(4), name(5), name(6) + ".tmp-1"}
		for _, f := range foreign[:5] {
			must(t, os.WriteFile(filepath.Join(dir, f), []byte("mine"), 0o600))
		}
		must(t, os.WriteFile(filepath.Join(dir, name(1)), file.Bytes(), 0o600)) // of another ensemble
		must(t, os.WriteFile(filepath.Join(dir, name(2)), []byte("no backup"), 0o600))
		must(t, os.WriteFile(filepath.Join(dir, name(3)), nil, 0o600))
		must(t, os.Mkdir(filepath.Join(dir, name(4)), 0o700))
		must(t, os.Symlink(outside, filepath.Join(dir, name(5))))
		must(t, os.WriteFile(filepath.Join(dir, name(6)+".tmp-1"), nil, 0o600)) // somebody may be writing it
		waste := name(7) + ".tmp-123"
		must(t, os.WriteFile(filepath.Join(dir, waste), nil, 0o600))
		now, err := os.Stat(filepath.Join(dir, waste))
		must(t, err)
		must(t, os.Chtimes(filepath.Join(dir, waste), time.Time{}, now.ModTime().Add(-25*time.Hour)))

		ens := embedtest.New(t, 1, beats(slow))
		<-time.After(time.Minute)
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: dir, Every: time.Minute, Keep: schedule.Keep{Hourly: 1}})
		must(t, err)
		go s.Run(t.Context())
		<-time.After(62 * time.Minute)
		names := files(t, dir)
		for _, f := range foreign {
			if !slices.Contains(names, f) {
				t.Errorf("%s is gone", f)
			}
		}
		if len(names) != len(foreign)+1 || slices.Contains(names, waste) {
			t.Errorf("%q", names)
		}
		if _, err := os.Stat(outside); err != nil {
			t.Error(err)
		}
	})
}

// Two ensembles share a directory, and their members have the same ids and clocks. Each keeps its
// own backups.
func TestSchedule_TwoEnsemblesInOneDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var all []*schedule.Schedule
		for range 2 {
			ens := embedtest.New(t, 1, beats(slow))
			s, err := schedule.New(ens.Node(1), schedule.Config{Dir: dir, Every: time.Minute, Keep: schedule.Keep{Hourly: 1000}})
			must(t, err)
			all = append(all, s)
		}
		<-time.After(2 * time.Minute) // until both have a lineage
		for _, s := range all {
			go s.Run(t.Context())
		}
		<-time.After(30 * time.Minute)
		of := make(map[string]string) // a lineage for each prefix of a name
		for _, name := range files(t, dir) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			info, err := backup.Verify(bytes.NewReader(text))
			must(t, err)
			prefix := name[:strings.LastIndex(name, "-2")]
			if l := of[prefix]; l != "" && l != info.Lineage {
				t.Errorf("%s is of %s and %s", prefix, l, info.Lineage)
			}
			of[prefix] = info.Lineage
		}
		for _, s := range all {
			if n := value(t, s, "backup_failures_total"); n > 0 {
				t.Errorf("%v failures", n)
			}
		}
		if len(of) != 2 {
			t.Errorf("%q: %v", files(t, dir), of)
		}
	})
}

// What has the name of the new backup already is not replaced, and old ones stay for it.
func TestSchedule_ANameThatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ens := embedtest.New(t, 1, beats(slow))
		<-time.After(time.Minute)
		stand := time.Now() // a clock that stands
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: dir, Every: time.Minute})
		must(t, err)
		s.SetClock(func() time.Time { return stand })
		go s.Run(t.Context())
		ens.Until("the first backup", func() bool { return value(t, s, "backup_seconds") == 1 })
		name := files(t, dir)[0]
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("taken"), 0o600))
		session := ens.Session(1, embed.SessionOptions{})
		must(t, session.Delete(t.Context(), "/zookeeper/vivarium/backup/last", embed.AnyVersion)) // so it is due again
		ens.Until("a failure", func() bool { return value(t, s, "backup_failures_total") > 0 })
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != "taken" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if names := files(t, dir); len(names) != 1 {
			t.Errorf("%q", names)
		}
	})
}

// A config that cannot be is refused, with every problem.
func TestConfig(t *testing.T) {
	err := schedule.Config{Every: time.Second, Keep: schedule.Keep{Hourly: -1, Daily: 1001, Weekly: -2}}.Validate()
	for _, want := range []string{"Dir", "Every", "Keep.Hourly", "Keep.Daily", "Keep.Weekly"} {
		if !strings.Contains(fmt.Sprint(err), want+" is") {
			t.Errorf("%v: it lacks %s", err, want)
		}
	}
	if _, err := schedule.New(nil, schedule.Config{}); !errors.Is(err, embed.ErrInvalidArgument) {
		t.Error(err)
	}
	must(t, schedule.Config{Dir: "d", Every: time.Minute, Keep: schedule.Keep{Weekly: 1000}}.Validate())
}

// Whatever the record says of times to come, the backups go on, and the log says so.
func TestSchedule_ARecordFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, beats(slow))
		var log embedkit.Journal
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: t.TempDir(), Every: every, Logger: log.Logger()})
		must(t, err)
		go s.Run(t.Context())
		session := ens.Session(1, embed.SessionOptions{})
		for range 40 {
			next := time.Now().Truncate(every).Add(every).UTC()
			record := fmt.Sprintf(`{"tick":%q,"time":%q,"member":1,"file":"x.backup","size":1}`, next.Format(time.RFC3339), next.Format(time.RFC3339))
			_, err := session.Put(t.Context(), "/zookeeper/vivarium/backup/last", []byte(record))
			must(t, err)
			<-time.After(every / 4)
		}
		if n := value(t, s, "backup_seconds"); n < 8 {
			t.Errorf("%v backups in ten times", n)
		}
		if !log.Says("from the future") {
			t.Error("the log does not say that records were refused")
		}
		if value(t, s, "backup_last_size_bytes") == 1 {
			t.Error("the metrics tell of a backup that nobody made")
		}
	})
}

// A client can neither write the record nor hold the lock, nor keep the members from either: not
// before the first backup, and not by a quota, an ACL or a full tree.
func TestSchedule_IsClosedToClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Tick, c.MaxTreeSize = slow, 1<<20 }})
		clients, end, err := clienttest.Over(ens.Node(1), func(ctx context.Context) (net.Conn, error) { return ens.Dial(ctx, 1) })
		must(t, err)
		defer end()
		client, err := clients.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		attack := func() {
			t.Helper()
			for _, path := range []string{"/zookeeper/vivarium", "/zookeeper/vivarium/backup/last", "/zookeeper/vivarium/backup/lock", "/zookeeper/quota/zookeeper", "/zookeeper/quota/zookeeper/vivarium/zookeeper_limits"} {
				_, putErr := client.Put(t.Context(), path, []byte(`{"tick":"2999-01-01T00:00:00Z"}`))
				_, aclErr := client.SetACL(t.Context(), path, embed.ReadACL(), embed.AnyVersion)
				if !errors.Is(putErr, embed.ErrNoAuth) || !errors.Is(aclErr, embed.ErrNoAuth) && !errors.Is(aclErr, embed.ErrNoNode) {
					t.Errorf("%s: %v, %v", path, putErr, aclErr)
				}
			}
			if _, err := client.SetACL(t.Context(), "/zookeeper", embed.ReadACL(), embed.AnyVersion); !errors.Is(err, embed.ErrNoAuth) {
				t.Error(err)
			}
			if _, err := lock.NewMutex(client, "/zookeeper/vivarium/backup/lock").Lock(t.Context()); !errors.Is(err, embed.ErrNoAuth) {
				t.Errorf("the lock: %v", err)
			}
		}
		attack()
		for err == nil { // until the tree is full
			_, err = client.Create(t.Context(), "/full-", make([]byte, 1000), embed.Sequential)
		}
		if !errors.Is(err, embed.ErrQuotaExceeded) {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = client.Create(t.Context(), "/f-", nil, embed.Sequential)
		}
		s, err := schedule.New(ens.Node(1), schedule.Config{Dir: t.TempDir(), Every: every})
		must(t, err)
		go s.Run(t.Context())
		for range 4 {
			<-time.After(every)
			attack()
		}
		if n := value(t, s, "backup_seconds"); n < 3 {
			t.Errorf("%v backups in four times", n)
		}
	})
}
