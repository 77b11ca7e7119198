package partition_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/partition"
)

// The names that kazoo's SetPartitioner looks for.
var (
	shallowParty = regexp.MustCompile(`^[0-9a-f]{32}-(.+)$`)
	kazooLock    = regexp.MustCompile(`__lock__(-?\d{10})$`)
)

// A kazoo is a member of kazoo's SetPartitioner, by hand.
type kazoo struct {
	f *field
	s *embed.Session
}

// join creates a znode as kazoo's ShallowParty does.
func (k *kazoo) join(id string) (path string) {
	k.f.t.Helper()
	path = dir + "/party/0123456789abcdef0123456789abcdef-" + id
	_, err := k.s.Create(k.f.t.Context(), path, []byte(id), embed.Ephemeral)
	must(k.f.t, err)
	return path
}

// lock creates a contender as kazoo's Lock does, and returns its path.
func (k *kazoo) lock(part string) string {
	k.f.t.Helper()
	path, _, err := k.s.CreateWith(k.f.t.Context(), dir+"/locks/"+part+"/0123456789abcdef0123456789abcdef__lock__", nil,
		embed.CreateOptions{Mode: embed.EphemeralSequential, Parents: true})
	must(k.f.t, err)
	return path
}

// holds reports whether a contender is the first of those that kazoo sees.
func (k *kazoo) holds(path string) bool {
	k.f.t.Helper()
	parent, own := path[:strings.LastIndexByte(path, '/')], kazooLock.FindStringSubmatch(path)[1]
	names, _, err := k.s.Children(k.f.t.Context(), parent)
	must(k.f.t, err)
	for _, name := range names {
		if m := kazooLock.FindStringSubmatch(name); m != nil && m[1] < own {
			return false
		}
	}
	return true
}

// owned returns the parts of a member, sorted.
func (f *field) owned(id string) (parts []string) {
	for part, owner := range f.owners() {
		if owner == id {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}

// owning waits until the members own these parts, and nobody owns others.
func (f *field) owning(want map[string][]string) {
	f.t.Helper()
	f.within(2*time.Minute, func() string {
		n := 0
		for id, parts := range want {
			n += len(parts)
			if got := f.owned(id); !slices.Equal(got, parts) {
				return fmt.Sprintf("%s owns %v, not %v", id, got, parts)
			}
		}
		if all := len(f.owners()); all != n {
			return fmt.Sprintf("%d parts have an owner, not %d", all, n)
		}
		return ""
	})
}

// Beside a member of kazoo: the names and the shares are kazoo's, all give up all when it comes or
// goes, and the locks exclude each other.
func TestKazoo_BesideItsMember(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *field) {
		parts := []string{"p4", "p0", "p3", "p1", "p2"}
		k := &kazoo{f, f.ens.Session(1, embed.SessionOptions{})}
		begun := time.Now()
		f.run(1, "a", parts, partition.Options{Kazoo: true})
		f.run(1, "c", parts, partition.Options{Kazoo: true})
		f.owning(map[string][]string{"a": {"p0", "p2", "p4"}, "c": {"p1", "p3"}})
		if took := time.Since(begun); took < partition.SettleKazoo {
			t.Errorf("the first parts have owners after %v", took)
		}
		names, _, err := k.s.Children(t.Context(), dir+"/party")
		for _, name := range names {
			m := shallowParty.FindStringSubmatch(name)
			if m == nil || m[1] != "a" && m[1] != "c" {
				t.Errorf("a member's name is %s", name)
				continue
			}
			if data, _, err := k.s.Get(t.Context(), dir+"/party/"+name); string(data) != m[1] || err != nil {
				t.Errorf("the data of %s is %q, %v", name, data, err)
			}
		}
		if len(names) != 2 || err != nil {
			t.Errorf("members: %v, %v", names, err)
		}

		// It joins, and queues for a part of another: the part is kept until all give up.
		lock := k.lock("p1")
		if k.holds(lock) {
			t.Error("it does not see who holds the part")
		}
		own := k.join("b")
		f.owning(nil)
		f.mu.Lock()
		for part, calls := range f.calls {
			if why := context.Cause(calls[len(calls)-1].ctx); !errors.Is(why, partition.ErrMoved) {
				t.Errorf("%s ended with %v", part, why)
			}
		}
		f.mu.Unlock()
		f.within(time.Minute, func() string {
			if !k.holds(lock) {
				return "it does not hold its part"
			}
			return ""
		})
		want := map[string][]string{"a": {"p0", "p3"}, "c": {"p2"}} // and b has p1 and p4
		f.owning(want)
		owners, err := partition.Owners(t.Context(), k.s, dir)
		if o := owners["p1"]; len(owners) != 4 || o.Session != k.s.ID() || owners["p0"].ID != "a" || err != nil {
			t.Errorf("owners: %v, %v", owners, err)
		}
		f.rest(time.Minute)

		// It leaves, but its lock stays for a while: nobody else has that part meanwhile.
		must(t, k.s.Delete(t.Context(), own, embed.AnyVersion))
		f.owning(map[string][]string{"a": {"p0", "p2", "p4"}, "c": {"p3"}})
		f.rest(time.Minute)
		must(t, k.s.Delete(t.Context(), lock, embed.AnyVersion))
		f.owning(map[string][]string{"a": {"p0", "p2", "p4"}, "c": {"p1", "p3"}})
	})
}

// Members that come and go without end are counted when they rest.
func TestKazoo_ComeAndGo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *field) {
		parts := numbered("part-", 12)
		o := partition.Options{Kazoo: true, Settle: time.Second}
		sites := make(map[string]*site)
		for i := range 40 {
			id := fmt.Sprint("m", i*3%4)
			if s := sites[id]; s != nil {
				s.leave()
				wantErr(t, f.ended(s), context.Canceled)
			}
			sites[id] = f.run(embed.MemberID(i%3+1), id, parts, o)
			<-time.After(time.Duration(i*i%13) * 200 * time.Millisecond)
		}
		f.until(parts, "m0", "m1", "m2", "m3")
		f.rest(time.Minute)
		wantErr(t, f.ended(f.run(1, "m1", parts, o)), partition.ErrTaken)
		f.until(parts, "m0", "m1", "m2", "m3")
	})
}
