package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
)

// list returns the znodes that a list of paths stands for: "/a" with the data "/a", "/a=x" with
// "x", and "/a!" as an ephemeral.
func list(paths ...string) iter.Seq2[backup.Znode, error] {
	return func(yield func(backup.Znode, error) bool) {
		for _, path := range paths {
			path, ephemeral := strings.CutSuffix(path, "!")
			path, data, given := strings.Cut(path, "=")
			if !given {
				data = path
			}
			z := backup.Znode{Path: path, Data: []byte(data), ACL: embed.OpenACL()}
			if ephemeral {
				z.Mode, z.Owner = embed.Ephemeral, 1
			}
			if !yield(z, nil) {
				return
			}
		}
	}
}

// plant creates what list stands for.
func plant(t *testing.T, s *embed.Session, paths ...string) {
	t.Helper()
	var sent []*embed.Pending
	for z := range list(paths...) {
		sent = append(sent, s.Submit(t.Context(), embed.OpCreateWith(z.Path, z.Data, embed.CreateOptions{Mode: z.Mode, Parents: true})))
	}
	for _, p := range sent {
		_, err := p.Result()
		must(t, err)
	}
}

// contents returns the whole tree outside /zookeeper, in the form of list.
func contents(t *testing.T, s *embed.Session) (all []string) {
	t.Helper()
	names, _, err := s.Children(t.Context(), "/")
	must(t, err)
	for _, name := range names {
		if name == "zookeeper" {
			continue
		}
		for z, err := range s.Walk(t.Context(), "/"+name) {
			must(t, err)
			text := z.Path
			if string(z.Data) != z.Path {
				text += "=" + string(z.Data)
			}
			if z.Stat.EphemeralOwner != 0 {
				text += "!"
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

// clear deletes what contents shows.
func clear(t *testing.T, s *embed.Session) {
	t.Helper()
	all := contents(t, s)
	slices.Reverse(all)
	var sent []*embed.Pending
	for _, text := range all {
		path, _, _ := strings.Cut(strings.TrimSuffix(text, "!"), "=")
		sent = append(sent, s.Submit(t.Context(), embed.OpDelete(path, embed.AnyVersion)))
	}
	for _, p := range sent {
		if _, err := p.Result(); err != nil && !errors.Is(err, embed.ErrNotEmpty) {
			t.Fatal(err)
		}
	}
	if len(contents(t, s)) > 0 { // "/a-b" sorts between "/a" and "/a/b"
		clear(t, s)
	}
}

// A part of a tree comes back at another path, with and without pruning. A dry run changes nothing,
// and says what the import then does.
func TestImport_IntoALivingTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 4)
		for name, c := range map[string]struct {
			there  []string
			o      backup.Options
			znodes []string
			steps  []string
			want   []string
			err    error
		}{
			"another path": {[]string{"/b"}, backup.Options{Path: "/a", As: "/b/c"},
				[]string{"/a", "/a-x", "/a/x", "/a/x/y", "/a/e!", "/ab"},
				[]string{"create /b/c", "create /b/c/x", "create /b/c/x/y"},
				[]string{"/b", "/b/c=/a", "/b/c/x/y=/a/x/y", "/b/c/x=/a/x"}, nil},
			"to the root": {nil, backup.Options{Path: "/a", As: "/"},
				[]string{"/a", "/a/x", "/a/zookeeper", "/a/zookeeper/quota"},
				[]string{"create /x"}, []string{"/x=/a/x"}, nil},
			"all, below a path": {nil, backup.Options{As: "/old"},
				[]string{"/", "/a", "/zookeeper", "/zookeeper/quota"},
				[]string{"create /old", "create /old/a"}, []string{"/old/a=/a", "/old=/"}, nil},
			"no parent": {nil, backup.Options{Path: "/a", As: "/b/c"}, []string{"/a"}, nil, nil, embed.ErrNoNode},
			"not there": {[]string{"/b"}, backup.Options{Path: "/c", Existing: backup.Skip, Prune: true},
				[]string{"/a", "/c-x"}, nil, []string{"/b"}, backup.ErrMissing},
			"nothing, which would delete everything": {[]string{"/b"}, backup.Options{Existing: backup.Overwrite, Prune: true},
				nil, nil, []string{"/b"}, backup.ErrMissing},
			"fail": {[]string{"/a/x"}, backup.Options{}, []string{"/0", "/a", "/a/x"},
				[]string{"create /0"}, []string{"/0", "/a/x", "/a="}, embed.ErrNodeExists},
			"overwrite what differs": {[]string{"/a", "/a/x=1"}, backup.Options{Existing: backup.Overwrite},
				[]string{"/a", "/a/x", "/a/y"}, []string{"overwrite /a/x", "create /a/y"}, []string{"/a", "/a/x", "/a/y"}, nil},
			"skip, and prune": {[]string{"/a=1", "/a/x", "/a-x"}, backup.Options{Path: "/a", Existing: backup.Skip, Prune: true},
				[]string{"/a", "/a-y"}, []string{"delete /a/x"}, []string{"/a-x", "/a=1"}, nil},
			"prune around ephemerals": {
				[]string{"/a", "/a/lock/e!", "/a/lock/f", "/a/deep/1/2/3", "/a/e=1!", "/a-x", "/b"},
				backup.Options{Path: "/a", Existing: backup.Overwrite, Prune: true},
				[]string{"/a", "/a/e", "/a/new", "/a/dead!"},
				[]string{"keep /a/e", "create /a/new", "keep /a/lock/e", "keep /a/lock", "delete /a/deep/1/2/3",
					"delete /a/deep/1/2", "delete /a/deep/1", "delete /a/deep", "delete /a/lock/f"},
				[]string{"/a", "/a-x", "/a/e=1!", "/a/lock/e!", "/a/lock=", "/a/new", "/b"}, nil},
			"below an ephemeral": {[]string{"/a", "/a/e!"}, backup.Options{Existing: backup.Skip},
				[]string{"/a", "/a/e", "/a/e/x"}, nil, []string{"/a", "/a/e!"}, embed.ErrNoChildrenForEphemerals},
			"prune at the root": {[]string{"/a", "/b/c"}, backup.Options{Existing: backup.Skip, Prune: true},
				[]string{"/", "/a"}, []string{"delete /b/c", "delete /b"}, []string{"/a"}, nil},
			"a parent that only the target has": {[]string{"/a/x", "/a/z"}, backup.Options{Existing: backup.Skip, Prune: true, Path: "/a"},
				[]string{"/a", "/a/x/y"}, []string{"create /a/x/y", "keep /a/x", "delete /a/z"}, []string{"/a/x", "/a/x/y", "/a="}, nil},
		} {
			clear(t, s)
			plant(t, s, c.there...)
			before := contents(t, s)
			run := func(dry bool) (backup.Report, []string, error) {
				var steps []string
				c.o.DryRun, c.o.Step = dry, func(s backup.Step) { steps = append(steps, fmt.Sprint(s.Action, " ", s.Path)) }
				report, err := backup.Import(t.Context(), backup.Session(s), list(c.znodes...), c.o)
				slices.Sort(steps)
				return report, steps, err
			}
			planned, plan, err := run(true)
			if now := contents(t, s); !slices.Equal(now, before) || !errors.Is(err, c.err) {
				t.Errorf("%s: the dry run has changed the tree: %v\n%v\n%v", name, err, before, now)
			}
			report, steps, err := run(false)
			slices.Sort(c.steps)
			slices.Sort(c.want)
			if got := contents(t, s); !errors.Is(err, c.err) || !slices.Equal(steps, c.steps) || !slices.Equal(got, c.want) {
				t.Errorf("%s: %v\n%q, want\n%q\n%q, want\n%q", name, err, steps, c.steps, got, c.want)
			}
			if report != planned || !slices.Equal(steps, plan) {
				t.Errorf("%s: planned were %v %q\ndone are    %v %q", name, planned, plan, report, steps)
			}
		}
	})
}

// tree returns a random list of paths, parents first.
func tree(r *rand.Rand, top string, marks string) []string {
	had := map[string]bool{top: true}
	for range r.IntN(40) {
		path := top
		for range r.IntN(4) + 1 {
			path += "/" + string("abc-"[r.IntN(4)])
			had[path] = true
		}
	}
	paths := slices.Sorted(maps.Keys(had))
	for i := range paths {
		if r.IntN(3) == 0 {
			paths[i] += "=" + marks
		}
	}
	return paths
}

// Whatever there is and whatever is asked for, a dry run says what the import does. Nothing outside
// the target changes. With Overwrite and Prune, the target becomes what the backup has.
func TestImport_Random(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 24))
			clear(t, s)
			plant(t, s, tree(r, "/t/in", "old")...)
			plant(t, s, "/t/in-x/y", "/t/inx", "/u")
			outside := func() (all []string) {
				return slices.DeleteFunc(contents(t, s), func(p string) bool {
					return p == "/t/in" || p[:min(6, len(p))] == "/t/in/" || p[:min(6, len(p))] == "/t/in="
				})
			}
			before := outside()
			znodes := tree(r, "/s", "new")
			o := backup.Options{Path: "/s", As: "/t/in", Existing: backup.Skip + backup.Existing(r.IntN(2)), Prune: r.IntN(2) == 0, DryRun: true}
			planned, err := backup.Import(t.Context(), backup.Session(s), list(znodes...), o)
			must(t, err)
			o.DryRun = false
			done, err := backup.Import(t.Context(), backup.Session(s), list(znodes...), o)
			must(t, err)
			if planned != done || !slices.Equal(outside(), before) || done.Created+done.Existed+done.Overwritten != len(znodes) {
				t.Fatalf("seed %d: planned %v, done %v\n%q\n%q", seed, planned, done, before, outside())
			}
			again, err := backup.Import(t.Context(), backup.Session(s), list(znodes...), o)
			must(t, err)
			if again != (backup.Report{Existed: len(znodes)}) {
				t.Fatalf("seed %d: a repeat did %v", seed, again)
			}
			if o.Existing == backup.Overwrite && o.Prune {
				n := 0
				for z, err := range s.Walk(t.Context(), "/t/in") {
					must(t, err)
					n++
					path, data := "/s"+strings.TrimPrefix(z.Path, "/t/in"), string(z.Data)
					if !slices.Contains(znodes, path) && !slices.Contains(znodes, path+"="+data) {
						t.Fatalf("seed %d: %s has %s", seed, z.Path, data)
					}
				}
				if n != len(znodes) {
					t.Fatalf("seed %d: %d znodes, want %d", seed, n, len(znodes))
				}
			}
		}
	})
}

var errCut = errors.New("cut")

// A cut target fails at one call, before or after it has done its work, and at all later ones.
type cut struct {
	backup.Target
	left  int
	after bool
}

func (c *cut) call(do func() error) error {
	c.left--
	if c.left < 0 || c.left == 0 && !c.after {
		return errCut
	}
	if err := do(); c.left > 0 {
		return err
	}
	return errCut
}

func (c *cut) Create(ctx context.Context, znodes []backup.Znode) error {
	return c.call(func() error { return c.Target.Create(ctx, znodes) })
}

func (c *cut) Overwrite(ctx context.Context, z backup.Znode) error {
	return c.call(func() error { return c.Target.Overwrite(ctx, z) })
}

func (c *cut) Delete(ctx context.Context, znodes []backup.Znode) error {
	return c.call(func() error { return c.Target.Delete(ctx, znodes) })
}

// An import that is interrupted before or after any of its writes, even one whose outcome it does
// not learn, goes on when it is repeated (etcd-backup-restore#58).
func TestImport_InterruptedAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		r := rand.New(rand.NewPCG(5, 24))
		there, znodes := tree(r, "/a", "old"), tree(r, "/a", "new")
		for i := range 250 { // more than one batch
			there, znodes = append(there, fmt.Sprintf("/a/o%03d", i)), append(znodes, fmt.Sprintf("/a/n%03d", i))
		}
		o := backup.Options{Path: "/a", Existing: backup.Overwrite, Prune: true}
		for _, after := range []bool{false, true} {
			cuts := 0
			for n := 1; ; n++ {
				clear(t, s)
				plant(t, s, there...)
				_, err := backup.Import(t.Context(), &cut{backup.Session(s), n, after}, list(znodes...), o)
				if err != nil && !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				over := err == nil
				_, err = backup.Import(t.Context(), backup.Session(s), list(znodes...), o)
				must(t, err)
				want := slices.Sorted(slices.Values(znodes))
				for i, path := range want {
					if path, data, ok := strings.Cut(path, "="); ok && path == data {
						want[i] = path
					}
				}
				if got := contents(t, s); !slices.Equal(got, want) {
					t.Fatalf("cut at call %d:\n%q, want\n%q", n, got, want)
				}
				if over {
					break
				}
				cuts++
			}
			if cuts < 10 {
				t.Errorf("cut %d times", cuts)
			}
		}
	})
}

// A rival does something before a call, as others may.
type rival struct {
	backup.Target
	before func(call string)
}

func (r rival) Create(ctx context.Context, znodes []backup.Znode) error {
	r.before(fmt.Sprint("create ", len(znodes)))
	return r.Target.Create(ctx, znodes)
}

func (r rival) Overwrite(ctx context.Context, z backup.Znode) error {
	r.before("overwrite " + z.Path)
	return r.Target.Overwrite(ctx, z)
}

func (r rival) Delete(ctx context.Context, znodes []backup.Znode) error {
	r.before(fmt.Sprint("delete ", len(znodes)))
	return r.Target.Delete(ctx, znodes)
}

// Others who create and delete in the target meanwhile do not end an import, and prune does not
// delete what they hang below.
func TestImport_BesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		plant(t, s, "/a", "/a/old/x", "/a/gone", "/a/v=1")
		rivals := map[string]func(){
			"create 4":       func() { plant(t, s, "/a/new=rival") },
			"overwrite /a/v": func() { must(t, s.Delete(t.Context(), "/a/v", embed.AnyVersion)) },
			"create 1":       func() { plant(t, s, "/a/v=2") }, // the place is free, and then it is not
			"delete 3": func() {
				must(t, s.Delete(t.Context(), "/a/gone", embed.AnyVersion))
				plant(t, s, "/a/old/y")
			},
		}
		before := func(call string) {
			if do := rivals[call]; do != nil {
				delete(rivals, call)
				do()
			}
		}
		report, err := backup.Import(t.Context(), rival{backup.Session(s), before}, list("/a", "/a/new", "/a/v", "/a/v/w"),
			backup.Options{Path: "/a", Existing: backup.Overwrite, Prune: true})
		must(t, err)
		want := []string{"/a", "/a/new", "/a/old/y", "/a/old=", "/a/v", "/a/v/w"}
		if got := contents(t, s); !slices.Equal(got, want) || report.Kept != 1 || report.Deleted != 1 || len(rivals) > 0 {
			t.Errorf("%v, not called: %v\n%q, want\n%q", report, rivals, got, want)
		}
	})
}

// Prune deletes only what it has read. What others created anew meanwhile at the same path stays,
// also if it has the same version, data and kind. So do an ephemeral, and what was written to.
func TestImport_PruneDeletesOnlyWhatItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		plant(t, s, "/a", "/a/anew", "/a/gone", "/a/held", "/a/parent/anew", "/a/same", "/a/written")
		rivals := 0
		before := func(call string) {
			if call != "delete 7" {
				return
			}
			rivals++
			for _, path := range []string{"/a/anew", "/a/held", "/a/parent/anew"} {
				must(t, s.Delete(t.Context(), path, embed.AnyVersion))
			}
			plant(t, s, "/a/anew", "/a/held!", "/a/parent/anew!")
			_, err := s.Set(t.Context(), "/a/written", []byte("now"), embed.AnyVersion)
			must(t, err)
		}
		report, err := backup.Import(t.Context(), rival{backup.Session(s), before}, list("/a"),
			backup.Options{Path: "/a", Existing: backup.Skip, Prune: true})
		must(t, err)
		want := []string{"/a", "/a/anew", "/a/held!", "/a/parent/anew!", "/a/parent=", "/a/written=now"}
		if got := contents(t, s); !slices.Equal(got, want) || report.Kept != 5 || report.Deleted != 2 || rivals != 1 {
			t.Errorf("%v, %d\n%q, want\n%q", report, rivals, got, want)
		}
	})
}

func exists(s *embed.Session, path string) (bool, error) {
	_, ok, err := s.Exists(context.Background(), path)
	return ok, err
}

// Options that cannot be are refused, and so is everything at /zookeeper.
func TestImport_WrongOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		for _, c := range []struct {
			o    backup.Options
			want error
		}{
			{backup.Options{Path: "a"}, embed.ErrInvalidPath},
			{backup.Options{As: "/a/"}, embed.ErrInvalidPath},
			{backup.Options{Path: "/zookeeper"}, embed.ErrInvalidPath},
			{backup.Options{As: "/zookeeper/quota/a"}, embed.ErrInvalidPath},
			{backup.Options{Existing: 3}, embed.ErrInvalidArgument},
			{backup.Options{Existing: -1}, embed.ErrInvalidArgument},
			{backup.Options{Prune: true}, embed.ErrInvalidArgument},
		} {
			if report, err := backup.Import(t.Context(), backup.Session(s), list("/", "/a", "/zookeeper"), c.o); !errors.Is(err, c.want) || report != (backup.Report{}) {
				t.Errorf("%+v: %v, %v", c.o, report, err)
			}
		}
		if got := contents(t, s); len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
}

// A backup that turns out to be damaged prunes nothing.
func TestImport_OfADamagedBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 1)
		plant(t, s, "/a/x")
		file := take(t, ens)
		plant(t, s, "/a/y")
		r, err := backup.NewReader(bytes.NewReader(file[:len(file)-1]))
		must(t, err)
		_, err = backup.Import(t.Context(), backup.Session(s), r.Znodes(), backup.Options{Path: "/a", Existing: backup.Skip, Prune: true})
		if ok, _ := exists(s, "/a/y"); !errors.Is(err, backup.ErrCorrupt) || !ok {
			t.Errorf("%v, still there: %v", err, ok)
		}
	})
}

// Only /zookeeper of the whole tree is the ensemble's own. A znode of that name elsewhere is as any
// other, also for Prune. What would come to the ensemble's own place is left out and counted.
func TestImport_ZnodesNamedZookeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 1)
		super := []embed.Auth{{Scheme: "digest", Credential: []byte("super:pw")}}
		tenant := ens.Session(1, embed.SessionOptions{Root: "/tenant", Auth: super})
		for name, c := range map[string]struct {
			s       *embed.Session
			as, top string // As, and where that is in the whole tree
		}{
			"elsewhere":      {s, "/tenant", "/tenant"},
			"below a root":   {tenant, "/", "/tenant"},
			"below both":     {tenant, "/zookeeper", "/tenant/zookeeper"},
			"no place there": {s, "/", ""},
		} {
			clear(t, s)
			plant(t, s, "/tenant/zookeeper/extra/x")
			o := backup.Options{Path: "/svc", As: c.as, Existing: backup.Overwrite, Prune: true}
			all := list("/svc", "/svc/other", "/svc/zookeeper", "/svc/zookeeper/config", "/svc/zookeeper/config/x")
			report, err := backup.Import(t.Context(), backup.Session(c.s), all, o)
			must(t, err)
			want, noPlace := []string{c.top + "/other=/svc/other"}, 3
			if c.top != "" {
				noPlace = 0
				for _, path := range []string{"/zookeeper", "/zookeeper/config", "/zookeeper/config/x"} {
					want = append(want, c.top+path+"=/svc"+path)
				}
			}
			got := slices.DeleteFunc(contents(t, s), func(text string) bool { return !strings.Contains(text, "=/svc/") })
			if slices.Sort(want); !slices.Equal(got, want) || report.NoPlace != noPlace {
				t.Errorf("%s: %v\n%q, want\n%q", name, report, got, want)
			}
			if there, err := exists(s, "/tenant/zookeeper/extra"); there || err != nil {
				t.Errorf("%s: what the backup has not is still there: %v", name, err)
			}
			if told := strings.Contains(report.String(), "3 left out because"); told != (noPlace > 0) {
				t.Errorf("%s: %v", name, report)
			}
		}
	})
}

// Lines that were cut are a shorter tree. They prune nothing, whichever line was the last; whoever
// does not prune is told.
func TestImport_OfCutLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := several(t, 1)
		paths := []string{"/a", "/a/x", "/a/y", "/a/z"}
		var text bytes.Buffer
		_, err := backup.WriteLines(&text, list(paths...))
		must(t, err)
		lines := slices.Collect(strings.Lines(text.String()))
		for cut := range len(lines) + 1 {
			for _, prune := range []bool{false, true} {
				clear(t, s)
				plant(t, s, append(paths, "/a/mine")...)
				report, err := backup.Import(t.Context(), backup.Session(s),
					backup.Lines(strings.NewReader(strings.Join(lines[:cut], ""))),
					backup.Options{Path: "/a", Existing: backup.Skip, Prune: prune})
				whole := cut == len(lines)
				want := paths
				if !prune || !whole {
					want = slices.Sorted(slices.Values(append(paths, "/a/mine")))
				}
				if got := contents(t, s); !slices.Equal(got, want) || report.NoEnd == whole {
					t.Errorf("%d lines, prune %v: %v\n%q, want\n%q", cut, prune, report, got, want)
				}
				switch {
				case cut == 0 && !errors.Is(err, backup.ErrMissing),
					cut > 0 && prune && errors.Is(err, backup.ErrNoEnd) == whole,
					cut > 0 && (!prune || whole) && err != nil:
					t.Errorf("%d lines, prune %v: %v", cut, prune, err)
				}
			}
		}
	})
}

// A secret never comes under the ACL that a znode had before. If its own is refused, it stays out.
func TestImport_NoDataUnderAnOldACL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 1)
		anyone := ens.Session(1, embed.SessionOptions{})
		secret := func(a embed.ACL) iter.Seq2[backup.Znode, error] {
			return func(yield func(backup.Znode, error) bool) {
				yield(backup.Znode{Path: "/secret", Data: []byte("password"), ACL: []embed.ACL{a}}, nil)
			}
		}
		plant(t, s, "/secret=old")
		o := backup.Options{Existing: backup.Overwrite}
		alice := embed.ACL{Perms: embed.PermAll, Scheme: "unknown", ID: "alice"}
		if report, err := backup.Import(t.Context(), backup.Session(s), secret(alice), o); !errors.Is(err, embed.ErrInvalidACL) || report.Overwritten != 0 {
			t.Errorf("%v, %v", report, err)
		}
		if data, _, err := anyone.Get(t.Context(), "/secret"); string(data) != "old" || err != nil {
			t.Errorf("anyone reads %q, %v", data, err)
		}

		alice.Scheme, alice.ID = "digest", "alice:hash"
		_, err := backup.Import(t.Context(), backup.Session(s), secret(alice), o)
		must(t, err)
		if data, _, err := anyone.Get(t.Context(), "/secret"); !errors.Is(err, embed.ErrNoAuth) {
			t.Errorf("anyone reads %q, %v", data, err)
		}
		if data, _, err := s.Get(t.Context(), "/secret"); string(data) != "password" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
}
