package operationtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// An audited keeps the records of each member.
type audited struct {
	mu   sync.Mutex
	list map[embed.MemberID][]embed.AuditRecord
}

// config lets each member record here.
func (a *audited) config(c *embed.Config) {
	id := c.ID
	c.Audit = func(r embed.AuditRecord) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.list == nil {
			a.list = make(map[embed.MemberID][]embed.AuditRecord)
		}
		a.list[id] = append(a.list[id], r)
	}
}

// of returns the records of a member that are chosen.
func (a *audited) of(id embed.MemberID, chosen func(embed.AuditRecord) bool) (list []embed.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.list[id] {
		if chosen(r) {
			list = append(list, r)
		}
	}
	return list
}

// below chooses what happened below a path.
func below(path string) func(embed.AuditRecord) bool {
	return func(r embed.AuditRecord) bool { return strings.HasPrefix(r.Path, path) }
}

// texts says what the records of a test say, without times and zxids.
func texts(list []embed.AuditRecord, s *embed.Session) (out []string) {
	for _, r := range list {
		text := fmt.Sprint(r.Op, " ", r.Path, " v", r.Version, " ", r.Mode, " ", r.Result)
		if r.Why != "" {
			text += " why " + r.Why
		}
		if r.Session != s.ID() || r.Member != 1 && r.Member != 2 {
			text += fmt.Sprint(" by ", r.Session, " at ", r.Member)
		}
		if ok := r.Result == "ok"; ok != (r.Zxid != 0) {
			text += fmt.Sprint(" with zxid ", r.Zxid)
		}
		out = append(out, text)
	}
	return out
}

func wantTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("recorded:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// Each operation with each kind of outcome, on the member that was asked and on another one.
func TestAudit_EachOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a audited
		ens := embedtest.New(t, 3, embedtest.Options{Config: a.config})
		ctx := t.Context()
		s := ens.Session(1, embed.SessionOptions{Root: "/a", Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("alice:secret")}}})
		closed := []embed.ACL{{Perms: embed.PermRead, Scheme: "auth"}}
		_, _, err := s.CreateWith(ctx, "/", nil, embed.CreateOptions{Parents: true})
		must(t, err)
		steps := []struct {
			do      func() error
			applied []string // on every member
			refused []string // on the member that was asked
		}{
			{do: func() error { _, err := s.Create(ctx, "/n", []byte("data"), embed.Persistent); return err },
				applied: []string{"create /a/n v0 Persistent ok"}},
			{do: func() error { _, err := s.Create(ctx, "/n", nil, embed.Persistent); return err },
				refused: []string{"create /a/n v0 Persistent znode already exists"}},
			{do: func() error { _, err := s.Create(ctx, "/s-", nil, embed.EphemeralSequential); return err },
				applied: []string{"create /a/s-0000000003 v0 EphemeralSequential ok"}},
			{do: func() error { _, err := s.Create(ctx, "/x/y", nil, embed.Container); return err },
				refused: []string{"create /a/x/y v0 Container znode does not exist"}},
			{do: func() error { _, err := s.Set(ctx, "/n", []byte("data"), 0); return err },
				applied: []string{"set /a/n v1 Persistent ok"}},
			{do: func() error { _, err := s.Set(ctx, "/n", []byte("data"), 7); return err },
				refused: []string{"set /a/n v7 Persistent version does not match"}},
			{do: func() error { return s.Delete(ctx, "/n", 7) },
				refused: []string{"delete /a/n v7 Persistent version does not match"}},
			{do: func() error { return s.Delete(ctx, "/", embed.AnyVersion) },
				refused: []string{"delete / v-1 Persistent invalid path"}},
			{do: func() error {
				_, err := s.Multi(ctx, embed.OpCheck("/n", 1), embed.OpSet("/n", nil, 1), embed.OpCreate("/m", nil, embed.TTL-1), embed.OpDelete("/n", 2))
				return err
			}, applied: []string{"set /a/n v2 Persistent ok", "create /a/m v0 Container ok", "delete /a/n v0 Persistent ok"}},
			{do: func() error {
				_, err := s.Multi(ctx, embed.OpSet("/m", nil, -1), embed.OpCheck("/n", 1), embed.OpDelete("/m", -1))
				return err
			}, refused: []string{"set /a/m v-1 Persistent operation 1: znode does not exist", "delete /a/m v-1 Persistent operation 1: znode does not exist"}},
			{do: func() error { _, err := s.Multi(ctx, embed.OpCheck("/m", 5)); return err }},
			{do: func() error {
				_, err := s.Multi(ctx, embed.OpCreate("/c", nil, 0), embed.OpAdd("/c", 5, embed.Text))
				return err
			},
				applied: []string{"create /a/c v0 Persistent ok", "add /a/c v1 Persistent ok"}},
			{do: func() error {
				_, _, err := s.CreateWith(ctx, "/p/q", nil, embed.CreateOptions{Parents: true})
				return err
			}, applied: []string{"create /a/p v0 Container ok", "create /a/p/q v0 Persistent ok"}},
			{do: func() error { _, err := s.SetACL(ctx, "/m", nil, 0); return err },
				refused: []string{"setacl /a/m v0 Persistent invalid ACL"}},
			{do: func() error { _, err := s.SetACL(ctx, "/m", closed, 0); return err },
				applied: []string{"setacl /a/m v1 Persistent ok"}},
			{do: func() error { _, err := s.Set(ctx, "/m", nil, -1); return err },
				refused: []string{"set /a/m v-1 Persistent not permitted"}},
			{do: func() error { return s.Delete(ctx, "relative", -1) }}, // refused before it is sent
			{do: func() error { _, _, err := s.Get(ctx, "/nothing"); return err }},
		}
		// Both members must have recorded a step before the next one.
		mark := 0
		for i, step := range steps {
			err := step.do()
			if failed := err != nil; failed != (len(step.applied) == 0) {
				t.Errorf("step %d: %v", i, err)
			}
			mark++
			_, err = s.Create(ctx, fmt.Sprint("/mark-", mark), nil, embed.Persistent)
			must(t, err)
			for _, id := range []embed.MemberID{1, 2} {
				ens.Until("the mark is recorded", func() bool { return len(a.of(id, below(fmt.Sprint("/a/mark-", mark)))) == 1 })
				got := a.of(id, below("/"))
				got = got[:len(got)-1]
				if i > 0 {
					before := slices.IndexFunc(got, func(r embed.AuditRecord) bool { return r.Path == fmt.Sprint("/a/mark-", mark-1) })
					got = got[before+1:]
				} else {
					got = got[slices.IndexFunc(got, func(r embed.AuditRecord) bool { return r.Path == "/a/n" }):]
				}
				want := step.applied
				if id == 1 {
					want = append(slices.Clone(want), step.refused...)
				}
				if got := texts(got, s); !slices.Equal(got, want) {
					t.Errorf("step %d, member %d: %q, want %q", i, id, got, want)
				}
				for _, r := range got {
					if !slices.Equal(r.Identities, []string{"digest:alice"}) || r.Time.Location() != time.UTC {
						t.Errorf("%+v", r)
					}
					if r.Op == "setacl" && r.Result == "ok" && !slices.Equal(r.ACL, []embed.ACL{{Perms: embed.PermRead, Scheme: "digest", ID: "alice"}}) {
						t.Errorf("the ACL: %+v", r.ACL)
					}
				}
			}
		}
	})
}

// A session that ends takes its ephemerals with it. Each member says which session that was, and
// why it ended, though the member that had the session died right after its last write.
func TestAudit_EndsOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a audited
		ens := embedtest.New(t, 3, embedtest.Options{Config: a.config})
		ctx := t.Context()
		auth := []embed.Auth{{Scheme: "digest", Credential: []byte("bob:secret")}}
		lost, kept := ens.Session(2, embed.SessionOptions{Auth: auth}), ens.Session(1, embed.SessionOptions{Auth: auth})
		for _, s := range []*embed.Session{lost, kept} {
			path := fmt.Sprint("/of-", s.ID())
			_, err := s.Create(ctx, path, nil, embed.Ephemeral)
			must(t, err)
			_, _, err = s.CreateWith(ctx, path+"-ttl", nil, embed.CreateOptions{Mode: embed.Ephemeral, TTL: time.Hour})
			must(t, err)
		}
		_, err := lost.Create(ctx, "/last", nil, embed.Persistent)
		must(t, err)
		ens.Kill(2)
		must(t, kept.Close())
		of := func(s *embed.Session) func(embed.AuditRecord) bool {
			return func(r embed.AuditRecord) bool { return r.Session == s.ID() }
		}
		for _, id := range []embed.MemberID{1, 3} {
			ens.Until("the session's expiry is recorded", func() bool {
				return slices.ContainsFunc(a.of(id, of(lost)), func(r embed.AuditRecord) bool { return r.Op == "expire" })
			})
			p := fmt.Sprint("/of-", lost.ID())
			got := a.of(id, of(lost))
			wantTexts(t, texts(got, lost), "open  v0 Persistent ok", "create "+p+" v0 Ephemeral ok", "create "+p+"-ttl v0 Ephemeral ok", "create /last v0 Persistent ok",
				"delete "+p+" v0 Persistent ok why session expired", "linger "+p+"-ttl v0 Persistent ok why session expired", "expire  v0 Persistent ok")
			for _, r := range got {
				if !slices.Equal(r.Identities, []string{"digest:bob"}) || r.Member != 2 {
					t.Errorf("%+v", r)
				}
			}
			p = fmt.Sprint("/of-", kept.ID())
			wantTexts(t, texts(a.of(id, of(kept)), kept), "open  v0 Persistent ok", "create "+p+" v0 Ephemeral ok", "create "+p+"-ttl v0 Ephemeral ok",
				"delete "+p+" v0 Persistent ok why session closed", "delete "+p+"-ttl v0 Persistent ok why session closed", "close  v0 Persistent ok")
		}
	})
}

// What the ensemble removes by itself says why: a released claim, and a container that was used.
func TestAudit_ByTheEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a audited
		ens := embedtest.New(t, 1, embedtest.Options{Config: a.config})
		ctx := t.Context()
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/c", nil, embed.Container)
		must(t, err)
		held, err := claim.New(ctx, s, embed.OpCreate("/c/e", nil, embed.Ephemeral))
		must(t, err)
		must(t, held.Release())
		ens.Until("the container is reaped", func() bool { return len(a.of(1, below("/c"))) == 4 })
		wantTexts(t, texts(a.of(1, below("/c")), s), "create /c v0 Container ok", "create /c/e v0 Ephemeral ok", "delete /c/e v0 Persistent ok why released",
			"delete /c v0 Persistent ok why reaped by 0 at 0")
	})
}

// Every member records the same changes of a shard, in the order of their zxids.
func TestAudit_IsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a audited
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Shards = 3
			a.config(c)
		}})
		var all sync.WaitGroup
		for id := embed.MemberID(1); id <= 3; id++ {
			s := ens.Session(id, embed.SessionOptions{})
			all.Go(func() {
				for i := range 50 {
					path := fmt.Sprintf("/w%d-%d", id, i)
					if _, err := s.Multi(t.Context(), embed.OpCreate(path, nil, 0), embed.OpSet(path, nil, 0)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for id := embed.MemberID(1); id <= 3; id++ {
			ens.Until("all is recorded", func() bool { return len(a.of(id, below("/w"))) == 300 })
			for shard := 1; shard <= 3; shard++ {
				got := a.of(id, func(r embed.AuditRecord) bool { return r.Shard == shard && r.Op != "start" })
				if !slices.IsSortedFunc(got, func(a, b embed.AuditRecord) int { return int(a.Zxid) - int(b.Zxid) }) {
					t.Errorf("member %d, shard %d: not in order", id, shard)
				}
				if first := a.of(1, func(r embed.AuditRecord) bool { return r.Shard == shard && r.Path != "" }); fmt.Sprint(first) != fmt.Sprint(a.of(id, func(r embed.AuditRecord) bool { return r.Shard == shard && r.Path != "" })) {
					t.Errorf("members 1 and %d differ on shard %d", id, shard)
				}
			}
		}
	})
}

// A sink that hangs holds up no write and no Close. What does not fit is counted. After Close, the
// sink gets nothing more: what was left is counted too.
func TestAudit_SlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fits = 1 << 16
		release := make(chan struct{})
		var records uint64
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Audit = func(embed.AuditRecord) {
				<-release
				records++
			}
		}})
		s, ctx := ens.Session(1, embed.SessionOptions{}), t.Context()
		ops := make([]embed.Op, 1000)
		for i := range ops {
			ops[i] = embed.OpSet("/", nil, embed.AnyVersion)
		}
		began := time.Now()
		const writes = fits/1000 + 10
		for range writes {
			_, err := s.Multi(ctx, ops...)
			must(t, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%d writes took %v", writes, took)
		}
		dropped := scrape(t, ens.Node(1))["audit_dropped_total"]
		if dropped < writes*1000-fits-10 || dropped > writes*1000-fits+10 {
			t.Errorf("%v records dropped", dropped)
		}
		began = time.Now()
		n := ens.Node(1)
		must(t, n.Close())
		if took := time.Since(began); took > embed.DefaultRequestTimeout+time.Second {
			t.Errorf("Close took %v", took)
		}
		ending := scrape(t, n)["audit_dropped_total"]
		if left := ending - dropped; left < fits || left > fits+10 { // the end of the session may be recorded too
			t.Errorf("%v records were left at the end", left)
		}
		close(release)
		synctest.Wait()
		if given := scrape(t, n)["audit_records_total"]; given != 1 || records != 1 { // the one that the sink had
			t.Errorf("%d records, %v counted", records, given)
		}
	})
}

// D14: records with long paths wait up to a bound in bytes.
func TestAudit_SlowSinkOfLongPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, most = 60 << 10, 64 << 20
		release := make(chan struct{})
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Audit = func(embed.AuditRecord) { <-release }
		}})
		defer close(release)
		s, ctx, path := ens.Session(1, embed.SessionOptions{}), t.Context(), "/"+strings.Repeat("x", size)
		_, err := s.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
		ops := make([]embed.Op, 50)
		for i := range ops {
			ops[i] = embed.OpSet(path, nil, embed.AnyVersion)
		}
		const writes = 2 * most / size / 50
		for range writes {
			_, err := s.Multi(ctx, ops...)
			must(t, err)
		}
		dropped := scrape(t, ens.Node(1))["audit_dropped_total"]
		if kept := writes*50 - dropped; kept > most/size || kept < most/size*9/10 {
			t.Errorf("%v records with %d KiB each are kept", kept, size>>10)
		}
	})
}

// A sink that was slow gets the records that waited, in order, and one that says how many are missing.
func TestAudit_SlowSinkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fits = 1 << 16
		release := make(chan struct{})
		var records, lost uint64
		var order []embed.Zxid
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Audit = func(r embed.AuditRecord) {
				<-release
				records++
				if lost += r.Lost; r.Lost == 0 {
					order = append(order, r.Zxid)
				}
			}
		}})
		s, ops := ens.Session(1, embed.SessionOptions{}), make([]embed.Op, 1000)
		for i := range ops {
			ops[i] = embed.OpSet("/", nil, embed.AnyVersion)
		}
		for range fits/len(ops) + 10 {
			_, err := s.Multi(t.Context(), ops...)
			must(t, err)
		}
		close(release)
		synctest.Wait()
		given, dropped := scrape(t, ens.Node(1))["audit_records_total"], scrape(t, ens.Node(1))["audit_dropped_total"]
		if uint64(given) != records || lost != uint64(dropped) || records != fits+2 { // one more was with the sink, and the one that tells of the lost ones
			t.Errorf("%d records, %v counted, %d lost, %v counted", records, given, lost, dropped)
		}
		if !slices.IsSorted(order) {
			t.Error("not in order")
		}
	})
}

// A sink that panics, or ends its goroutine, ends neither the process nor the records.
func TestAudit_PanickingSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // written by one goroutine at a time, and read when all wait
		var got []string
		ens := embedtest.New(t, 1, embedtest.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Config: func(c *embed.Config) {
			c.Audit = func(r embed.AuditRecord) {
				switch r.Path {
				case "/bad":
					panic("a bug of the service")
				case "/bad2":
					runtime.Goexit()
				}
				if r.Path != "" {
					got = append(got, r.Path)
				}
			}
		}})
		s, ctx := ens.Session(1, embed.SessionOptions{}), t.Context()
		for _, path := range []string{"/bad", "/a", "/bad2", "/b"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		synctest.Wait()
		if !slices.Equal(got, []string{"/a", "/b"}) {
			t.Errorf("recorded %q", got)
		}
		if text := log.String(); strings.Count(text, "Config.Audit panicked") != 1 || !strings.Contains(text, "a bug of the service") || !strings.Contains(text, "audit_test.go") {
			t.Errorf("log: %s", text)
		}
		if dropped := scrape(t, ens.Node(1))["audit_dropped_total"]; dropped != 2 {
			t.Errorf("%v dropped", dropped)
		}
	})
}

// All nodes of a Supervise record in turn, on one goroutine.
func TestAudit_UnderSupervise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervise(t)
		var starts, others int
		s.cfg.Audit = func(r embed.AuditRecord) {
			if r.Op == "start" {
				starts++
			} else {
				others++
			}
		}
		s.run(func(ctx context.Context, n *embed.Node) error {
			session, err := n.NewSession(ctx, embed.SessionOptions{})
			if err == nil {
				_, err = session.Create(ctx, "/n-", nil, embed.Sequential)
			}
			return errors.Join(err, context.Cause(ctx))
		})
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		if starts == 0 || others < 2 { // Supervise has waited for them
			t.Errorf("%d and %d records", starts, others)
		}
	})
}

// A member that gets the state of another one instead of the log has no records of what it has not
// applied itself. Its audit says so: each change that it lacks is in one of its gaps.
func TestAudit_GapOfAnInstalledImage(t *testing.T) {
	const late = 3
	for what, leave := range map[string]func(*embedtest.Ensemble) (back func()){
		"stopped": func(e *embedtest.Ensemble) func() { e.Stop(late); return func() { e.Start(late) } },
		"cut off": func(e *embedtest.Ensemble) func() { e.Isolate(late); return e.HealAll },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a audited
				ens := embedtest.New(t, 3, embedtest.Options{KeepEntries: 1, Config: func(c *embed.Config) {
					c.Shards = 4
					a.config(c)
				}})
				for _, id := range ens.Members() {
					ens.Ready(id)
				}
				s := ens.Session(1, embed.SessionOptions{})
				write := func(n int) {
					for i := range n {
						_, err := s.Create(t.Context(), embedkit.OnShard[i%4]+"-", nil, embed.Sequential)
						must(t, err)
					}
				}
				write(8)
				same := func() bool {
					return slices.EqualFunc(ens.Node(1).Status().Shards, ens.Node(late).Status().Shards,
						func(a, b embed.ShardStatus) bool { return a.Zxid == b.Zxid })
				}
				ens.Until("member 3 to follow", same)
				back := leave(ens)
				for range 3 {
					write(40)
					for _, id := range []embed.MemberID{1, 2} {
						must(t, ens.Snapshot(id))
					}
					<-time.After(10 * time.Second) // snapshots cut the log in the background
				}
				back()
				ens.Until("member 3 to catch up", same)
				write(8)
				ens.Until("member 3 to follow again", same)
				synctest.Wait()
				wantGaps(t, &a, late)
			})
		})
	}
}

// wantGaps checks that a member has a gap for all that member 1 has recorded and it has not.
func wantGaps(t *testing.T, a *audited, late embed.MemberID) {
	t.Helper()
	type change struct {
		shard int
		zxid  embed.Zxid
	}
	has := make(map[change]bool)
	for _, r := range a.of(late, below("/")) {
		has[change{r.Shard, r.Zxid}] = true
	}
	gaps := a.of(late, func(r embed.AuditRecord) bool { return r.Op == "gap" })
	missing := 0
	for _, r := range a.of(1, below("/")) {
		if has[change{r.Shard, r.Zxid}] {
			continue
		}
		missing++
		if !slices.ContainsFunc(gaps, func(g embed.AuditRecord) bool { return g.Shard == r.Shard && g.After < r.Zxid && r.Zxid <= g.Zxid }) {
			t.Errorf("%v is missing, and in no gap", r)
		}
	}
	if missing < 100 || len(gaps) == 0 {
		t.Errorf("%d records are missing, and there are %d gaps", missing, len(gaps))
	}
	for _, g := range gaps {
		if g.Why != "another member sent its state" || g.Lost != 0 || g.Time.IsZero() || g.Result != "ok" {
			t.Errorf("%+v", g)
		}
	}
	if gaps := a.of(1, func(r embed.AuditRecord) bool { return r.Op == "gap" }); len(gaps) > 0 {
		t.Errorf("member 1 lacks nothing: %v", gaps)
	}
}
