package group_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
	membersflag.Define()
}

const dir = "/workers"

var (
	must    = testkit.Must
	wantErr = testkit.WantErr
)

// bubble tests in virtual time, with an ensemble of so many members and a slow tick.
func bubble(t *testing.T, n, shards int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, n, embedtest.Options{Config: func(c *embed.Config) {
			c.Tick, c.Shards, c.ContainerCheckInterval = 100*time.Millisecond, shards, time.Second
		}})
		test(t, ens)
	})
}

// within returns a context that ends after so long.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// minutes is how long a test waits for what must happen, in virtual time.
const minutes = 5 * time.Minute

// status waits for a status of an announcement, and fails with the statuses that it saw instead.
func status(t *testing.T, a *group.Announcement, what string,
	ok func(group.Status) bool) group.Status {
	t.Helper()
	var seen []string
	for s, err := range a.Changes(within(t, minutes)) {
		if err == nil && ok(s) {
			return s
		}
		seen = append(seen, fmt.Sprint(s.Present, " ", s.Err, " ", err))
	}
	t.Fatalf("%s: waited for %s, and saw\n%s", a.Path(), what, strings.Join(seen, "\n"))
	return group.Status{}
}

func present(t *testing.T, a *group.Announcement) group.Status {
	t.Helper()
	return status(t, a, "it to be present", func(s group.Status) bool { return s.Present })
}

// done waits for the end of an announcement and returns its error.
func done(t *testing.T, a *group.Announcement) error {
	t.Helper()
	select {
	case <-a.Done():
	case <-time.After(minutes):
		t.Fatalf("%s lasts, with %+v", a.Path(), a.Status())
	}
	return a.Err()
}

// watch opens the group of the directory.
func watch(t *testing.T, s *embed.Session, o group.Options) *group.Group {
	t.Helper()
	g, err := group.Watch(t.Context(), s, dir, o)
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// ids writes members as their ids, each with its data.
func ids(list []group.Member) string {
	var all []string
	for _, m := range list {
		if all = append(all, m.ID); string(m.Data) != m.ID && len(m.Data) > 0 {
			all[len(all)-1] += "=" + string(m.Data)
		}
	}
	return strings.Join(all, " ")
}

// text writes a change as one line.
func text(c group.Change) string {
	out := "[" + ids(c.Members) + "]"
	for _, part := range []struct {
		name string
		list []group.Member
	}{{"joined", c.Joined}, {"left", c.Left}, {"changed", c.Changed}, {"again", c.Again}} {
		if len(part.list) > 0 {
			out += " " + part.name + " " + ids(part.list)
		}
	}
	return out
}

// members waits until the members are those.
func members(t *testing.T, g *group.Group, want string) []group.Member {
	t.Helper()
	now, err := g.Await(within(t, minutes), func(now []group.Member) bool { return ids(now) == want })
	if err != nil {
		t.Fatalf("members are [%s], want [%s]: %v", ids(now), want, err)
	}
	return now
}

// A changes is a loop over the changes of a group. Its goroutine ends with the test.
type changes struct{ lines chan group.Change }

func follow(t *testing.T, g *group.Group) changes {
	c := changes{make(chan group.Change)}
	ctx := t.Context()
	go func() {
		for change, err := range g.Changes(ctx) {
			if err != nil {
				return
			}
			select {
			case c.lines <- change:
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// want waits for the next change.
func (c changes) want(t *testing.T, want string) group.Change {
	t.Helper()
	select {
	case got := <-c.lines:
		if text(got) != want {
			t.Fatalf("got  %s\nwant %s", text(got), want)
		}
		return got
	case <-time.After(minutes):
		t.Fatalf("waited in vain for %s", want)
	}
	return group.Change{}
}

// none checks that no change comes for so long.
func (c changes) none(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case got := <-c.lines:
		t.Fatalf("an unexpected change: %s", text(got))
	case <-time.After(d):
	}
}

// children returns the names below a path.
func children(t *testing.T, s *embed.Session, path string) []string {
	t.Helper()
	names, _, err := s.Children(t.Context(), path)
	if err != nil {
		return nil
	}
	return slices.Clone(names)
}

// join announces a member until the test ends.
func join(t *testing.T, from embed.Opener, dir, id string, data []byte,
	o group.Options) *group.Announcement {
	a := group.Join(from, dir, id, data, o)
	t.Cleanup(func() { _ = a.Close() })
	return a
}
