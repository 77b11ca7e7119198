package group_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Changes yields the present state first, and then each one with what differs.
func TestChanges_SayWhatDiffers(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx := t.Context()
		g := watch(t, ens.Session(1, embed.SessionOptions{}), group.Options{})
		c := follow(t, g)
		c.want(t, "[]")
		a := join(t, ens.Opener(1), dir, "a", []byte("1"), group.Options{})
		c.want(t, "[a=1] joined a=1")
		b := join(t, ens.Opener(2), dir, "b", nil, group.Options{})
		was := c.want(t, "[a=1 b] joined b").Members[1]
		must(t, a.Set(ctx, []byte("2")))
		c.want(t, "[a=2 b] changed a=2")
		must(t, a.Set(ctx, []byte("2"))) // a write is a change
		c.want(t, "[a=2 b] changed a=2")
		s := ens.Session(3, embed.SessionOptions{})
		_, err := s.Sync(ctx, dir)
		must(t, err)
		stat, _, err := s.Exists(ctx, dir+"/b")
		must(t, err)
		if was.Session != stat.EphemeralOwner || was.Czxid != stat.Czxid || was.Mzxid != stat.Mzxid ||
			was.Path != dir+"/b" {
			t.Errorf("%+v, want %+v", was, stat)
		}
		if m, err := s.Member(ctx, was.Session); m != 2 || err != nil {
			t.Errorf("b is on member %d, %v", m, err)
		}
		_, err = s.Multi(ctx, embed.OpDelete(dir+"/b", embed.AnyVersion),
			embed.OpCreate(dir+"/b", []byte("x"), embed.Ephemeral),
			embed.OpCreate(dir+"/c", nil, embed.Persistent))
		must(t, err)
		c.want(t, "[a=2 b=x c] joined c again b=x")
		must(t, a.Close())
		c.want(t, "[b=x c] left a=2")
		must(t, s.Close())
		c.want(t, "[c] left b=x")
		must(t, b.Close()) // it may have come back meanwhile
		must(t, ens.Session(1, embed.SessionOptions{}).Delete(ctx, dir+"/c", embed.AnyVersion))
		members(t, g, "")
	})
}

// A loop that is slow gets several changes in one, and the newest. Its Members are those that it
// has when it has made every change that it is told of.
func TestChanges_AreWhole(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		// Writes take time, and what slows the reader takes longer. Otherwise the loop would get
		// all at once in a bubble, or each by itself.
		embedkit.Distant(ens, time.Millisecond)
		ens.TransferLeadership(2)
		ens.Faults(1).SetLink(2, embedtest.Link{Delay: 10 * time.Millisecond})
		reader := ens.Session(1, embed.SessionOptions{})
		g := watch(t, reader, group.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		_, err := s.Create(t.Context(), dir, nil, embed.Persistent)
		must(t, err)
		var writer sync.WaitGroup
		defer writer.Wait()
		writer.Go(func() {
			for i := range 1500 {
				p := fmt.Sprintf("%s/%02d", dir, i*i%37)
				_, err := s.Create(t.Context(), p, fmt.Append(nil, i), embed.Ephemeral)
				if errors.Is(err, embed.ErrNodeExists) && i%3 > 0 {
					err = s.Delete(t.Context(), p, embed.AnyVersion)
				} else if errors.Is(err, embed.ErrNodeExists) {
					_, err = s.Set(t.Context(), p, fmt.Append(nil, i), embed.AnyVersion)
				}
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		replay := make(map[string]group.Member)
		var last embed.Zxid
		rounds, first := 0, true
		for c, err := range g.Changes(within(t, minutes)) {
			must(t, err)
			if c.Zxid < last {
				t.Fatalf("%d after %d", c.Zxid, last)
			}
			last = c.Zxid
			for _, m := range c.Joined {
				if _, there := replay[m.ID]; there {
					t.Fatalf("%s joins twice", m.ID)
				}
				replay[m.ID] = m
			}
			for _, m := range c.Left {
				if was := replay[m.ID]; was.Czxid != m.Czxid || was.Mzxid != m.Mzxid {
					t.Fatalf("%+v left, and was %+v", m, was)
				}
				delete(replay, m.ID)
			}
			for i, m := range slices.Concat(c.Changed, c.Again) {
				was, there := replay[m.ID]
				if !there || m.Mzxid <= was.Mzxid || (i < len(c.Changed)) != (was.Czxid == m.Czxid) {
					t.Fatalf("%+v, and was %+v", m, was)
				}
				replay[m.ID] = m
			}
			if len(replay) != len(c.Members) || !slices.IsSortedFunc(c.Members,
				func(a, b group.Member) int { return strings.Compare(a.ID, b.ID) }) {
				t.Fatalf("%s, replayed to %v", text(c), replay)
			}
			for _, m := range c.Members {
				if replay[m.ID].Mzxid != m.Mzxid {
					t.Fatalf("%+v, replayed to %+v", m, replay[m.ID])
				}
			}
			rounds++
			if len(c.Members) == 0 && !first {
				if _, open, _ := s.Exists(context.WithoutCancel(t.Context()), dir); s.Err() != nil || !open {
					break
				}
			}
			first = first && len(c.Members) == 0
			if rounds%7 == 0 {
				_, err := reader.Sync(t.Context(), dir) // it is slow
				must(t, err)
			}
		}
		if t.Logf("%d changes", rounds); rounds < 50 || !testkit.Night() && rounds > 1400 {
			t.Errorf("%d changes", rounds)
		}
	})
}

// Members that join are held back until nobody else joins for Settle, and for ten times as long at
// most. A member that leaves is reported at once, and so is new data while nobody joins.
func TestChanges_Settle(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		n := ens.Node(1)
		c := follow(t, watch(t, ens.Session(1, embed.SessionOptions{}),
			group.Options{Settle: 10 * time.Second}))
		c.want(t, "[]")
		enter := func(id string) *group.Announcement {
			a := join(t, n, dir, id, nil, group.Options{})
			present(t, a)
			return a
		}
		begun := time.Now()
		about := func(want time.Duration) {
			t.Helper()
			if d := time.Since(begun); d < want-time.Millisecond || d > want+2*time.Second {
				t.Errorf("told after %v, not %v", d, want)
			}
			begun = time.Now()
		}
		a, b := enter("a"), enter("b")
		<-time.After(5 * time.Second)
		enter("c")
		c.want(t, "[a b c] joined a b c")
		about(15 * time.Second)
		must(t, b.Close())
		c.want(t, "[a c] left b")
		about(0)
		must(t, a.Set(t.Context(), []byte("1")))
		c.want(t, "[a=1 c] changed a=1")
		about(0)
		d := enter("d")
		<-time.After(5 * time.Second)
		must(t, d.Close()) // which nobody was told of
		e := enter("e")
		must(t, a.Set(t.Context(), []byte("2")))
		c.none(t, 8*time.Second)
		must(t, a.Close())
		c.want(t, "[c e] joined e left a=1")
		about(13 * time.Second)
		var names []string
		for i := range 14 {
			names = append(names, fmt.Sprintf("f%02d", i))
			enter(names[i])
			<-time.After(8 * time.Second)
		}
		c.want(t, fmt.Sprintf("[c e %s] joined %[1]s", strings.Join(names[:13], " "))) // after 100 s
		must(t, e.Close())
		c.want(t, fmt.Sprintf("[c %s] joined f13 left e", strings.Join(names, " ")))
	})
}

// The znodes of kazoo's members have its names, and members that kazoo has created are listed.
func TestJoin_AsKazoo(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, n, s := t.Context(), ens.Node(1), ens.Session(1, embed.SessionOptions{})
		for _, c := range []struct {
			layout group.Layout
			theirs []string // names
			datas  []string
			ours   func(name string) (uuid string, ok bool)
			want   string
		}{
			{group.Party, []string{"0b74e9d4b1e94fa1a3ad0c4ea4ac1ff6__party__", "lock"},
				[]string{"host/1", "no member"},
				func(name string) (string, bool) { return strings.CutSuffix(name, "__party__") }, "a/b host/1"},
			{group.ShallowParty, []string{"0b74e9d4b1e94fa1a3ad0c4ea4ac1ff6-host-1", "plain"},
				[]string{"host-1", ""},
				func(name string) (string, bool) {
					return strings.CutSuffix(name,
						"-a-b")
				}, "a-b host-1 plain"},
		} {
			d := fmt.Sprint("/party", c.layout)
			_, err := s.Create(ctx, d, nil, embed.Persistent)
			must(t, err)
			for i, name := range c.theirs {
				_, err := s.Create(ctx, d+"/"+name, []byte(c.datas[i]), embed.Ephemeral)
				must(t, err)
			}
			id := "a/b"
			if c.layout == group.ShallowParty {
				id = "a-b"
			}
			for range 2 { // each under a name of its own
				a := join(t, n, d, id, nil, group.Options{Layout: c.layout})
				present(t, a)
				uuid, ok := c.ours(path.Base(a.Path()))
				if raw, err := hex.DecodeString(uuid); !ok || len(raw) != 16 || err != nil ||
					path.Dir(a.Path()) != d {
					t.Errorf("its path is %s", a.Path())
				}
				if got := get(t, s, a.Path()); got != id {
					t.Errorf("its data is %q", got)
				}
			}
			g, err := group.Watch(ctx, s, d, group.Options{Layout: c.layout})
			must(t, err)
			if got := ids(g.Members()); !strings.HasSuffix(got, c.want) ||
				len(g.Members()) != 1+len(strings.Fields(c.want)) {
				t.Errorf("layout %d: members %s", c.layout, got)
			}
			must(t, g.Close())
		}
	})
}

// The group goes on when its node has got the state of another member, and tells what differs.
func TestChanges_AcrossASnapshot(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		stays := join(t, ens.Opener(1), dir, "stays", nil, group.Options{})
		leaves := join(t, ens.Opener(2), dir, "leaves", nil, group.Options{})
		present(t, stays)
		present(t, leaves)
		g := watch(t, ens.Session(3, embed.SessionOptions{Timeout: time.Hour}), group.Options{})
		c := follow(t, g)
		members(t, g, "leaves stays")
		ens.Isolate(3)
		must(t, leaves.Close())
		comes := join(t, ens.Opener(2), dir, "comes", nil, group.Options{})
		present(t, comes)
		s := ens.Session(1, embed.SessionOptions{})
		for i := range 300 {
			_, err := s.Put(t.Context(), "/other", fmt.Append(nil, i))
			must(t, err)
		}
		must(t, ens.Snapshot(ens.Leader()))
		ens.HealAll()
		members(t, g, "comes stays")
		_ = c
	})
}

// A group with a member that never comes ends its Await with the ctx, and says who is there. It
// ends with its session and with Close.
func TestGroup_Ends(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		_, err := group.Watch(t.Context(), s, dir, group.Options{Settle: -1})
		wantErr(t, err, embed.ErrInvalidArgument)
		_, err = group.Watch(t.Context(), s, dir, group.Options{Layout: 9})
		wantErr(t, err, embed.ErrInvalidArgument)
		for _, none := range []string{"", "x", dir + "/"} {
			_, err = group.Watch(t.Context(), s, none, group.Options{Layout: group.Party})
			wantErr(t, err, embed.ErrInvalidPath)
		}
		g := watch(t, s, group.Options{})
		a := join(t, ens.Opener(1), dir, "a", nil, group.Options{})
		defer a.Close()
		now, err := g.Await(within(t, time.Minute),
			func(now []group.Member) bool { return len(now) == 2 })
		if ids(now) != "a" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", now, err)
		}
		over := make(chan error, 1)
		go func() {
			for _, err := range g.Changes(t.Context()) {
				if err != nil {
					over <- err
				}
			}
		}()
		must(t, g.Close())
		must(t, g.Close())
		wantErr(t, g.Err(), view.ErrClosed)
		select {
		case err := <-over:
			wantErr(t, err, view.ErrClosed)
		case <-time.After(minutes):
			t.Fatal("the loop goes on")
		}
		if ids(g.Members()) != "a" {
			t.Errorf("%v", g.Members())
		}
		g = watch(t, s, group.Options{})
		must(t, s.Close())
		select {
		case <-g.Done():
			wantErr(t, g.Err(), embed.ErrSessionClosed)
		case <-time.After(minutes):
			t.Fatal("it goes on without its session")
		}
	})
}

// A share is the total divided by the members that are there.
func TestShare(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		g := watch(t, ens.Session(1, embed.SessionOptions{}), group.Options{})
		var here []*group.Announcement
		var got []float64
		for share, err := range g.Share(within(t, minutes), 12) {
			must(t, err)
			if got = append(got, share); len(got) == 6 {
				break
			}
			if len(got) > 3 { // now they leave
				must(t, here[len(here)-1].Close())
				here = here[:len(here)-1]
				continue
			}
			if len(here) == 0 { // the first member changes nothing
				here = append(here, join(t, ens.Opener(1), dir, "0", []byte("x"), group.Options{}))
				present(t, here[0])
				must(t, here[0].Set(t.Context(), nil))
			}
			here = append(here, join(t, ens.Opener(1), dir, fmt.Sprint(len(here)), nil, group.Options{}))
			defer here[len(here)-1].Close()
		}
		if fmt.Sprint(got) != "[12 6 4 3 4 6]" {
			t.Errorf("%v", got)
		}
		for _, err := range g.Share(within(t, time.Second), 12) {
			if err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			}
		}
	})
}

// Members are cut off, killed and started again at random, while each sets its data again and
// again. In the end all are there, once, with their newest data.
func TestGroup_ThroughFaults(t *testing.T) {
	for _, o := range []group.Options{{}, {Linger: 20 * time.Second}} {
		t.Run(fmt.Sprint("linger ", o.Linger), func(t *testing.T) {
			bubble(t, 3, 2, func(t *testing.T, ens *embedtest.Ensemble) {
				stop := make(chan struct{})
				nodes := make(chan struct{}, 1) // held while a member is started
				newest := make(chan string, 3)
				for id := range embed.MemberID(3) {
					go func() {
						var a *group.Announcement
						last := ""
						for i := 0; ; i++ {
							if a == nil || a.Err() != nil {
								if a != nil && !errors.Is(a.Err(), embed.ErrFailed) &&
									!errors.Is(a.Err(), embed.ErrClosed) {
									t.Error(a.Err())
								}
								last = fmt.Sprint("begun ", i)
								nodes <- struct{}{}
								n := ens.Node(id + 1)
								<-nodes
								a = group.Join(n, dir, fmt.Sprint(id+1), []byte(last), o)
							}
							select {
							case <-time.After(700 * time.Millisecond):
							case <-stop:
								newest <- fmt.Sprint(id+1, "=", last)
								<-t.Context().Done()
								_ = a.Close()
								return
							}
							ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
							last = fmt.Sprint("set ", i)
							_ = a.Set(ctx, []byte(last))
							cancel()
						}
					}()
				}
				for round := range 12 {
					id := embed.MemberID(round*round%3 + 1)
					switch round % 4 {
					case 0, 2:
						ens.Isolate(id)
						<-time.After(time.Duration(5+round) * time.Second)
						ens.HealAll()
					case 1:
						ens.Pause(id)
						<-time.After(time.Duration(5+round) * time.Second)
						ens.Resume(id)
					case 3:
						nodes <- struct{}{}
						ens.Kill(id)
						ens.Restart(id)
						<-nodes
					}
					<-time.After(time.Duration(round%5) * time.Second)
				}
				close(stop)
				var want []string
				for range 3 {
					select {
					case last := <-newest:
						want = append(want, last)
					case <-time.After(minutes):
						t.Fatal("a member does not end")
					}
				}
				slices.Sort(want)
				g := watch(t, ens.Session(1, embed.SessionOptions{}), group.Options{})
				now := members(t, g, strings.Join(want, " "))
				<-time.After(time.Minute)
				for i, m := range g.Members() {
					if m.Czxid != now[i].Czxid || m.Session == 0 {
						t.Errorf("%+v, and was %+v", m, now[i])
					}
				}
			})
		})
	}
}
