package partition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
}

const dir = "/work"

var must, wantErr = testkit.Must, testkit.WantErr

// A field is a test of members that own parts. It checks that a part has one owner at a time.
type field struct {
	t   *testing.T
	ens *embedtest.Ensemble

	mu    sync.Mutex
	calls map[string][]*call // by part, in the order in which they began
}

// A call is a call of fn.
type call struct {
	member  string
	ctx     context.Context
	hold    *lock.Hold
	over    bool  // it has returned
	cause   error // why its ctx had ended then
	holdErr error
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, members int, test func(t *testing.T, f *field)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, &field{t: t, ens: embedtest.New(t, members, embedtest.Options{}), calls: make(map[string][]*call)})
	})
}

// begin records a call, and checks that no other one owns the part.
func (f *field) begin(ctx context.Context, member, part string, h *lock.Hold) *call {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &call{member: member, ctx: ctx, hold: h}
	for _, other := range f.calls[part] {
		switch {
		case h.Err() != nil:
			// It was lost at once, so others may own the part already.
		case other.hold.Err() == nil:
			f.t.Errorf("%s owns %s while %s does", member, part, other.member)
		case !other.over && other.ctx.Err() == nil:
			f.t.Errorf("%s owns %s, and the ctx of %s goes on", member, part, other.member)
		case h.Token().Compare(other.hold.Token()) <= 0:
			f.t.Errorf("%s owns %s with token %v after %v", member, part, h.Token(), other.hold.Token())
		}
	}
	f.calls[part] = append(f.calls[part], c)
	return c
}

func (f *field) end(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.over, c.cause, c.holdErr = true, context.Cause(c.ctx), c.hold.Err()
}

// A site is a member that runs.
type site struct {
	id     string
	leave  context.CancelFunc
	result chan error // of Run
}

// run starts a member, whose functions wait for the end of their ctx.
func (f *field) run(at embed.MemberID, id string, parts []string, o partition.Options) *site {
	return f.runWith(at, id, parts, o, func(ctx context.Context, _ string, _ *lock.Hold) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

type function = func(ctx context.Context, part string, h *lock.Hold) error

func (f *field) runWith(at embed.MemberID, id string, parts []string, o partition.Options, fn function) *site {
	ctx, cancel := context.WithCancel(f.t.Context())
	s := &site{id: id, leave: cancel, result: make(chan error, 1)}
	o.ID = id
	node := f.ens.Node(at)
	go func() {
		s.result <- partition.Run(ctx, node, dir, parts, o, func(ctx context.Context, part string, h *lock.Hold) error {
			c := f.begin(ctx, id, part, h)
			defer f.end(c)
			return fn(ctx, part, h)
		})
	}()
	return s
}

// ended returns the result of a Run, for which it waits.
func (f *field) ended(s *site) error {
	f.t.Helper()
	select {
	case err := <-s.result:
		return err
	case <-time.After(5 * time.Minute):
		f.t.Fatalf("%s does not end", s.id)
		return nil
	}
}

// owners returns who owns which part now.
func (f *field) owners() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	owners := make(map[string]string)
	for part, calls := range f.calls {
		for _, c := range calls {
			if !c.over && c.ctx.Err() == nil {
				owners[part] = c.member
			}
		}
	}
	return owners
}

// until waits until the members own all parts, nobody more than a share.
func (f *field) until(parts []string, members ...string) map[string]string {
	f.t.Helper()
	share := (len(parts) + len(members) - 1) / len(members)
	var owners map[string]string
	f.within(time.Minute, func() string {
		owners = f.owners()
		n := counts(owners)
		for id, has := range n {
			if !slices.Contains(members, id) || has > share {
				return fmt.Sprintf("%s has %d parts", id, has)
			}
		}
		if len(owners) != len(parts) {
			return fmt.Sprintf("%d of %d parts have an owner", len(owners), len(parts))
		}
		return ""
	})
	return owners
}

// within waits until what returns no fault any more.
func (f *field) within(patience time.Duration, what func() string) {
	f.t.Helper()
	begun := time.Now()
	for fault := what(); fault != ""; fault = what() {
		if time.Since(begun) > patience {
			f.t.Fatalf("after %v: %s", patience, fault)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// began returns how many calls have begun.
func (f *field) began() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, calls := range f.calls {
		n += len(calls)
	}
	return n
}

// rest lets time pass, in which nothing may happen.
func (f *field) rest(d time.Duration) {
	f.t.Helper()
	before := f.owners()
	<-time.After(d)
	if after := f.owners(); !maps.Equal(before, after) {
		f.t.Errorf("at rest %v became %v", before, after)
	}
}

// Members that start together take their shares at once. One more takes its own from each, and only
// what moves stops; each function learns why. One that leaves hands its parts over.
//
// (In KAFKA-14016 and kafka#12348 a rebalance revoked more than it had to. In franz-go#995 a group
// rebalanced without end.)
func TestRun_OnlyWhatMovesStops(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *field) {
		parts := numbered("part-", 40)
		for i, id := range []string{"a", "b", "c"} {
			f.run(embed.MemberID(i+1), id, parts, partition.Options{})
		}
		before := f.until(parts, "a", "b", "c")
		if n := f.began(); n != len(parts) {
			t.Errorf("%d calls for %d parts: the start moved some", n, len(parts))
		}
		f.rest(time.Minute)
		d := f.run(2, "d", parts, partition.Options{})
		after := f.until(parts, "a", "b", "c", "d")
		if n := f.began() - len(parts); n != moved(before, after) {
			t.Errorf("%d parts moved, with %d calls", moved(before, after), n)
		}
		for part, calls := range f.calls {
			for _, c := range calls {
				if c.over && (!errors.Is(c.cause, partition.ErrMoved) || c.holdErr != nil) {
					t.Errorf("%s of %s ended with %v, while its Hold was %v", part, c.member, c.cause, c.holdErr)
				}
			}
		}
		begun := time.Now()
		d.leave()
		f.until(parts, "a", "b", "c")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v to take over from a member that left", took)
		}
		wantErr(t, f.ended(d), context.Canceled)
	})
}

// The next owner begins when the function of the last one has returned. (In golem#3766 a revocation
// that timed out lost the part for all. In Cadence-Docs#442 and synapse#12604 owners change at once,
// and nothing is drained.)
func TestRun_AStuckFunctionKeepsItsPart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := numbered("part-", 10)
		release := make(chan struct{})
		var mu sync.Mutex
		stuck := make(map[string]time.Duration)
		o := partition.Options{Stuck: func(part string, since time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			stuck[part] = since
		}}
		a := f.runWith(1, "a", parts, o, func(ctx context.Context, part string, _ *lock.Hold) error {
			<-ctx.Done()
			<-release
			return nil
		})
		f.until(parts, "a")
		f.run(1, "b", parts, partition.Options{})
		f.within(time.Minute, func() string {
			mu.Lock()
			defer mu.Unlock()
			if len(stuck) < 5 {
				return fmt.Sprintf("%d are said to be stuck", len(stuck))
			}
			for part, since := range stuck {
				if since < 30*time.Second {
					return fmt.Sprintf("%s is said to be stuck for %v", part, since)
				}
			}
			return ""
		})
		owners := f.owners() // without those that are stuck
		if n := counts(owners); n["b"] != 0 || n["a"] != 5 {
			t.Errorf("the owners are %v", owners)
		}
		close(release)
		f.until(parts, "a", "b")
		a.leave()
		wantErr(t, f.ended(a), context.Canceled)
		f.until(parts, "b")
	})
}

// A member is lost in each way. Its own functions learn of it before the others take its parts
// over; begin checks that. (In kazoo@2ac6331 a partitioner worked on while its connection was
// suspended, and kazoo#271 is about the same. In akka-core#27259 hand-overs waited for an owner that
// had left.)
func TestRun_AMemberIsLost(t *testing.T) {
	for name, lose := range map[string]func(f *field){
		"killed":   func(f *field) { f.ens.Kill(3) },
		"cut off":  func(f *field) { f.ens.Isolate(3) },
		"paused":   func(f *field) { f.ens.Pause(3) },
		"sleeping": func(f *field) { f.ens.Faults(3).Sleep(15 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, f *field) {
				parts := numbered("part-", 30)
				for i, id := range []string{"a", "b", "c"} {
					f.run(embed.MemberID(i+1), id, parts, partition.Options{})
				}
				f.until(parts, "a", "b", "c")
				lose(f)
				switch name {
				case "killed", "cut off", "paused":
					f.until(parts, "a", "b")
				}
				switch name {
				case "cut off":
					f.ens.HealAll()
				case "paused":
					f.ens.Resume(3)
				case "killed":
					return
				}
				f.until(parts, "a", "b", "c") // with a new session
				f.rest(time.Minute)
			})
		})
	}
}

// Members die while parts are handed over, on either side, and come back with the same ID.
func TestRun_KilledInAHandOver(t *testing.T) {
	for name, kills := range map[string]embed.MemberID{"who gives": 1, "who gets": 3} {
		for i := range 3 {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, f *field) {
					parts := numbered("part-", 30)
					slow := func(ctx context.Context, _ string, h *lock.Hold) error {
						<-ctx.Done()
						if h.Err() == nil {
							select {
							case <-time.After(time.Second):
							case <-t.Context().Done():
							}
						}
						return nil
					}
					f.runWith(1, "a", parts, partition.Options{}, slow)
					f.runWith(2, "b", parts, partition.Options{}, slow)
					f.until(parts, "a", "b")
					f.runWith(3, "c", parts, partition.Options{}, slow)
					// The parts move after two seconds, and their functions take one.
					<-time.After(1900*time.Millisecond + time.Duration(i)*600*time.Millisecond)
					f.ens.Kill(kills)
					id := map[embed.MemberID]string{1: "a", 3: "c"}[kills]
					f.until(parts, slices.DeleteFunc([]string{"a", "b", "c"}, func(m string) bool { return m == id })...)
					f.ens.Start(kills)
					f.runWith(kills, id, parts, partition.Options{}, slow)
					f.until(parts, "a", "b", "c")
					f.rest(time.Minute)
				})
			})
		}
	}
}

// When a function returns nil it is called again, with a greater token. begin checks that.
func TestRun_CallsAgain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		f.runWith(1, "a", []string{"x"}, partition.Options{}, func(context.Context, string, *lock.Hold) error { return nil })
		f.within(time.Minute, func() string {
			if n := f.began(); n < 5 {
				return fmt.Sprintf("%d calls", n)
			}
			return ""
		})
	})
}

// An error of a function ends Run, and the other members take over.
func TestRun_AnErrorEndsIt(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := numbered("part-", 6)
		fails, broken := make(chan struct{}), errors.New("broken")
		a := f.runWith(1, "a", parts, partition.Options{}, func(ctx context.Context, part string, _ *lock.Hold) error {
			select {
			case <-fails:
				return broken
			case <-ctx.Done():
				return nil
			}
		})
		f.run(1, "b", parts, partition.Options{})
		f.until(parts, "a", "b")
		fails <- struct{}{}
		err := f.ended(a)
		wantErr(t, err, broken)
		if !strings.Contains(err.Error(), "part part-") {
			t.Errorf("the error does not name the part: %v", err)
		}
		f.until(parts, "b")
	})
}

// Two with one ID: in kazoo both compute the same parts, one waits for ever, and the rest is
// nobody's. Here the second one waits for a while, as for a process that died, and gives up.
func TestRun_TwoWithOneID(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := numbered("part-", 4)
		a := f.run(1, "a", parts, partition.Options{})
		f.until(parts, "a")
		wantErr(t, f.ended(f.run(1, "a", parts, partition.Options{})), partition.ErrTaken)
		next := f.run(1, "a", parts, partition.Options{})
		a.leave()
		wantErr(t, f.ended(a), context.Canceled)
		f.until(parts, "a")
		next.leave()
		wantErr(t, f.ended(next), context.Canceled)
	})
}

// The set changes by a rolling restart. A new part has an owner as soon as somebody knows it, one
// that is dropped has one as long as somebody does, and the rest is owned throughout. (In kazoo one
// waits for ever for a part that another keeps, and holds locks that nobody works on.)
func TestRun_TheSetChanges(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *field) {
		old := append(numbered("part-", 20), "old-0", "old-1")
		changed := append(numbered("part-", 20), "new-0", "new-1", "new-2")
		sites := make(map[string]*site)
		ids := []string{"a", "b", "c"}
		for i, id := range ids {
			sites[id] = f.run(embed.MemberID(i+1), id, old, partition.Options{})
		}
		f.until(old, ids...)
		for i, id := range ids {
			sites[id].leave()
			wantErr(t, f.ended(sites[id]), context.Canceled)
			sites[id] = f.run(embed.MemberID(i+1), id, changed, partition.Options{})
			want := slices.Concat(changed, []string{"old-0", "old-1"})
			if i == len(ids)-1 {
				want = changed
			}
			f.within(time.Minute, func() string {
				owners := f.owners()
				for _, part := range want {
					if owners[part] == "" {
						return part + " has no owner"
					}
				}
				if len(owners) != len(want) {
					return fmt.Sprintf("%d parts have an owner, of %d", len(owners), len(want))
				}
				return ""
			})
		}
		f.until(changed, ids...)
	})
}

// Members come and go while others still settle and lock. In the end all parts have an owner, and
// nothing but what is owned is left. (In kazoo#259 a change was lost while the last part was being
// locked. In kazoo#283 such changes left a deadlock, or wrong parts.)
func TestRun_MembersComeAndGo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *field) {
		parts := numbered("part/", 25)
		sites := make(map[string]*site)
		rounds := 30
		if testkit.Night() {
			rounds = 60
		}
		for i := range rounds {
			id := fmt.Sprint("m", i*7%5)
			if s := sites[id]; s != nil {
				s.leave()
				if i%3 > 0 {
					wantErr(t, f.ended(s), context.Canceled)
				} // else the next one with its ID begins while this one still ends
				delete(sites, id)
			}
			if i%4 > 0 {
				sites[id] = f.run(embed.MemberID(i%3+1), id, parts, partition.Options{Settle: time.Duration(i%5+1) * 100 * time.Millisecond})
			}
			<-time.After(time.Duration(i*i%17) * 150 * time.Millisecond)
		}
		ids := slices.Sorted(maps.Keys(sites))
		owners := f.until(parts, ids...)
		f.rest(time.Minute)
		s := f.ens.Session(1, embed.SessionOptions{})
		listed, err := partition.Owners(t.Context(), s, dir)
		must(t, err)
		for part, o := range listed {
			if o.ID != owners[part] || o.Token.Zxid == 0 || o.Session == 0 || o.Member == 0 {
				t.Errorf("%s is owned by %s, listed is %+v", part, owners[part], o)
			}
		}
		if len(listed) != len(parts) {
			t.Errorf("%d parts are listed", len(listed))
		}
		for _, x := range sites {
			x.leave()
			wantErr(t, f.ended(x), context.Canceled)
		}
		f.within(10*time.Minute, func() string { // the containers go, in their time
			if _, there, err := s.Exists(t.Context(), dir); there || err != nil {
				n, _ := s.CountDescendants(t.Context(), dir)
				return fmt.Sprintf("%d znodes are left, %v", n, err)
			}
			return ""
		})
	})
}

// A Run that is cancelled at any moment ends, and leaves nothing.
func TestRun_CancelledAtAnyMoment(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := numbered("part-", 3)
		s := f.ens.Session(1, embed.SessionOptions{})
		for i := range 150 {
			x := f.run(1, "a", parts, partition.Options{Settle: time.Nanosecond})
			if i > 20 {
				<-time.After(time.Duration(i) * time.Millisecond / 3)
			}
			x.leave()
			wantErr(t, f.ended(x), context.Canceled)
			for _, of := range []string{"/members", "/parts/part-0", "/parts/part-1", "/parts/part-2"} {
				names, _, err := s.Children(t.Context(), dir+of)
				if len(names) > 0 || err != nil && !errors.Is(err, embed.ErrNoNode) {
					t.Fatalf("left below %s after %d: %v, %v", of, i, names, err)
				}
			}
		}
	})
}

// A looker is a ctx that calls do when its Err is called for the n-th time. Every method of a
// Session calls Err first.
type looker struct {
	context.Context
	n     int32
	do    func()
	looks atomic.Int32
}

func (l *looker) Err() error {
	if l.looks.Add(1) == l.n {
		l.do()
	}
	return l.Context.Err()
}

// A Run that is cancelled at any step, until it is a member, leaves nothing.
func TestRun_CancelledAtAnyStep(t *testing.T) {
	for _, kazoo := range []bool{false, true} {
		t.Run(fmt.Sprint("kazoo ", kazoo), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, f *field) {
				s := f.ens.Session(1, embed.SessionOptions{})
				for n := int32(1); ; n++ {
					ctx, cancel := context.WithCancel(t.Context())
					step := &looker{Context: ctx, n: n, do: cancel}
					time.AfterFunc(time.Second, cancel)
					err := partition.Run(step, f.ens.Opener(1), dir, []string{"a"}, partition.Options{ID: "a", Kazoo: kazoo},
						func(context.Context, string, *lock.Hold) error { return errors.New("before it has settled") })
					wantErr(t, err, context.Canceled)
					f.within(time.Minute, func() string {
						for _, of := range []string{"/members", "/party"} {
							names, _, err := s.Children(t.Context(), dir+of)
							if len(names) > 0 || err != nil && !errors.Is(err, embed.ErrNoNode) {
								return fmt.Sprintf("left below %s after step %d: %v, %v", of, n, names, err)
							}
						}
						return ""
					})
					if step.looks.Load() < n {
						break
					}
				}
			})
		})
	}
}

// A znode that nobody can read is a member that gets nothing, and stays.
func TestRun_WhatCannotBeRead(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		s := f.ens.Session(1, embed.SessionOptions{})
		for name, data := range map[string]string{"no-json": "10.0.0.1", "empty": "", "weight": `{"weight":101,"parts":["x"]}`, "list": `{"weight":1,"parts":7}`, "no-list": `{"weight":1}`} {
			_, _, err := s.CreateWith(t.Context(), dir+"/members/"+name, []byte(data), embed.CreateOptions{Parents: true})
			must(t, err)
		}
		_, _, err := s.CreateWith(t.Context(), dir+"/parts/%zz", nil, embed.CreateOptions{Parents: true})
		must(t, err)
		parts := numbered("part-", 5)
		f.run(1, "a", parts, partition.Options{})
		f.until(parts, "a")
		names, _, err := s.Children(t.Context(), dir+"/members")
		if len(names) != 6 || err != nil {
			t.Errorf("members: %v, %v", names, err)
		}
		owners, err := partition.Owners(t.Context(), s, dir)
		if len(owners) != 5 || err != nil {
			t.Errorf("owners: %v, %v", owners, err)
		}
	})
}

// Somebody deletes a member's znode, and one of a part's lock. Run mends both.
func TestRun_DeletedByHand(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := numbered("part-", 5)
		f.run(1, "a", parts, partition.Options{})
		f.until(parts, "a")
		s := f.ens.Session(1, embed.SessionOptions{})
		names, _, err := s.Children(t.Context(), dir+"/parts/part-1")
		must(t, err)
		must(t, s.Delete(t.Context(), dir+"/parts/part-1/"+names[0], embed.AnyVersion))
		f.within(time.Minute, func() string {
			if n := f.began(); n != 6 {
				return fmt.Sprintf("%d calls", n)
			}
			return ""
		})
		f.until(parts, "a")
		must(t, s.Delete(t.Context(), dir+"/members/a", embed.AnyVersion))
		f.within(time.Minute, func() string {
			if n := f.began(); n != 11 {
				return fmt.Sprintf("%d calls", n)
			}
			return ""
		})
		f.until(parts, "a")
	})
}

func TestRun_WhatIsWrong(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		none := func(context.Context, string, *lock.Hold) error { return nil }
		for name, c := range map[string]struct {
			dir   string
			parts []string
			o     partition.Options
			want  error
		}{
			"no parts":        {dir, nil, partition.Options{}, embed.ErrInvalidArgument},
			"an empty part":   {dir, []string{"a", ""}, partition.Options{}, embed.ErrInvalidArgument},
			"no text":         {dir, []string{"\xff"}, partition.Options{}, embed.ErrInvalidArgument},
			"an ID":           {dir, []string{"a"}, partition.Options{ID: "a/b"}, embed.ErrInvalidArgument},
			"a relative ID":   {dir, []string{"a"}, partition.Options{ID: ".."}, embed.ErrInvalidPath},
			"a weight":        {dir, []string{"a"}, partition.Options{Weight: 101}, embed.ErrInvalidArgument},
			"less":            {dir, []string{"a"}, partition.Options{Weight: -1}, embed.ErrInvalidArgument},
			"kazoo, a weight": {dir, []string{"a"}, partition.Options{Weight: 1, Kazoo: true}, embed.ErrInvalidArgument},
			"a settle":        {dir, []string{"a"}, partition.Options{Settle: -1}, embed.ErrInvalidArgument},
			"a path":          {"work", []string{"a"}, partition.Options{}, embed.ErrInvalidPath},
			"no path":         {"", []string{"a"}, partition.Options{}, embed.ErrInvalidPath},
			"too much":        {dir, numbered(strings.Repeat("x", 1000), 2000), partition.Options{}, embed.ErrTooLarge},
			"a part too long": {dir, []string{strings.Repeat("x", 1<<20)}, partition.Options{}, embed.ErrTooLarge},
		} {
			result := make(chan error, 1)
			go func() { result <- partition.Run(t.Context(), f.ens.Opener(1), c.dir, c.parts, c.o, none) }()
			select {
			case err := <-result:
				if !errors.Is(err, c.want) {
					t.Errorf("%s: %v, want %v", name, err, c.want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: it goes on", name)
			}
		}
		_, err := partition.Owners(t.Context(), f.ens.Session(1, embed.SessionOptions{}), "")
		wantErr(t, err, embed.ErrInvalidPath) // not the parts below the root
		node := f.ens.Node(1)
		must(t, node.Close())
		wantErr(t, partition.Run(t.Context(), node, dir, []string{"a"}, partition.Options{}, none), embed.ErrClosed)
	})
}

// In a session with a root, and directly below it.
func TestRun_BelowARoot(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		owns := make(chan string, 1)
		tenant := embed.OpenerWith(f.ens.Opener(1), embed.SessionOptions{Root: "/tenant"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := make(chan error, 1)
		go func() {
			result <- partition.Run(ctx, tenant, "/", []string{"a/b"}, partition.Options{}, func(ctx context.Context, part string, h *lock.Hold) error {
				owns <- part + " " + h.Path()[:len("/parts/a%2Fb/")]
				<-ctx.Done()
				return nil
			})
		}()
		select {
		case got := <-owns:
			if got != "a/b /parts/a%2Fb/" {
				t.Errorf("it owns %s", got)
			}
		case err := <-result:
			t.Error(err)
		case <-time.After(time.Minute):
			t.Error("it owns nothing")
		}
	})
}
