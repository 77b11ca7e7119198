package campaign

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func begun(path, key string, token embed.Zxid) deed {
	return deed{Kind: deedBegin, Path: path, Key: key, Token: lock.Token{Zxid: token}}
}

func done(path, key string, token embed.Zxid, o outcome) deed {
	return deed{Kind: deedDone, Path: path, Key: key, Token: lock.Token{Zxid: token}, Outcome: o}
}

func TestFindComebacks(t *testing.T) {
	const q = "/a/queue"
	of := func(d ...deed) past { return past{Deeds: d} }
	hold(t, findComebacks, []badHistory{
		{"a finished task is claimed again", of(begun(q, "x", 1), done(q, "x", 1, applied), begun(q, "x", 2)), of(begun(q, "x", 1), done(q, "x", 1, unknown), begun(q, "x", 2)), "began again"},
		{"a task was finished by its former worker", of(begun(q, "x", 1), begun(q, "x", 2), done(q, "x", 1, applied)), of(begun(q, "x", 1), begun(q, "x", 2), done(q, "x", 2, applied)), "began again"},
	})
}

func TestFindOldTicks(t *testing.T) {
	of := func(d ...deed) past { return past{Deeds: d} }
	hold(t, findOldTicks, []badHistory{
		{"a tick begins after a later one", of(begun("/a/jobs/least", "least 200", 1), begun("/a/jobs/least", "least 100", 2)), of(begun("/a/jobs/least", "least 200", 2), begun("/a/jobs/least", "least 100", 1)), "after"},
		{"a tick that runs at most once begins twice", of(begun("/a/jobs/most", "most 100", 1), begun("/a/jobs/most", "most 100", 2)), of(begun("/a/jobs/least", "least 100", 1), begun("/a/jobs/least", "least 100", 2)), "twice"},
	})
}

func TestFindSecondOnces(t *testing.T) {
	of := func(until int, got string) past {
		o := op{Client: "c", Call: callOnce, Path: "/a/once/1"}
		first, second := at(0, 50, o), at(10, 60, o)
		first.Got, second.Got = "x", got
		g := granted(1, 10, int(time.Duration(until)*time.Millisecond))
		g.Path, g.Kind = "/a/once/1/lock", kindOnce
		return past{Ops: []op{first, second}, Grants: []grant{g}}
	}
	hold(t, findSecondOnces, []badHistory{
		{"two have two results", of(40, "y"), of(40, "x"), "the result"},
		{"somebody goes on after the end", of(51, "x"), of(50, "x"), "still does it"},
	})
}

func TestFindMisdeeds(t *testing.T) {
	put := func(o outcome) op {
		return at(0, 1, op{Client: "c", Call: callPut, Path: "/a/queue", Data: "x", Outcome: o})
	}
	entries := func(keys ...string) (tree []entry) {
		for _, key := range keys {
			tree = append(tree, entry{Path: "/a/deeds/d-0000000000", Data: key})
		}
		return tree
	}
	for _, c := range []struct {
		name  string
		p     past
		tree  []entry
		right bool
	}{
		{"a task is done", past{Ops: []op{put(applied)}}, entries("x"), true},
		{"a task may not have been put", past{Ops: []op{put(unknown)}}, nil, true},
		{"a task is lost", past{Ops: []op{put(applied)}}, nil, false},
		{"a task is done twice", past{Ops: []op{put(applied)}}, entries("x", "x"), false},
		{"a task that was not put is done", past{Ops: []op{put(notApplied)}}, entries("x"), false},
		{"a tick is done", past{Deeds: []deed{done("/a/jobs/most", "most 1", 1, applied)}}, entries("most 1"), true},
		{"a tick may be done", past{Deeds: []deed{done("/a/jobs/most", "most 1", 1, unknown)}}, nil, true},
		{"a tick is lost", past{Deeds: []deed{done("/a/jobs/most", "most 1", 1, applied)}}, entries("most 2"), false},
	} {
		if found := findMisdeeds(&c.p, c.tree); (len(found) == 0) != c.right {
			t.Errorf("%s: found %q", c.name, found)
		}
	}
}
