package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// queuesOf returns the queues of contenders. Each is given by words: its path, such as "/a/lock-1"
// for a lock's first contender; its session; its transaction; and the contenders that its caller
// holds.
func queuesOf(t testing.TB, contenders ...string) []lock.Queue {
	t.Helper()
	name := func(short string) string {
		parent, name, _ := cutLast(short, "/")
		kind, number, _ := cutLast(name, "-")
		words, kind := "", kind
		if before, after, ok := cutLast(kind, "."); ok {
			words, kind = before+"-", after
		}
		if kind != "__READ__" && kind != "__WRIT__" {
			kind += "-"
		}
		return fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012s-%s%s%010s", parent, number, words, kind, number)
	}
	znodes := map[string]embed.Znode{}
	for _, text := range contenders {
		fields := strings.Fields(text)
		var session, txn int
		_, err := fmt.Sscan(fields[1]+" "+fields[2], &session, &txn)
		must(t, err)
		var data []byte
		for _, held := range fields[3:] {
			data = append(data, "\nholding: "+name(held)...)
		}
		at := name(fields[0])
		znodes[at] = embed.Znode{Path: at, Data: data, Stat: embed.Stat{EphemeralOwner: embed.SessionID(session), Czxid: embed.Zxid(txn), Ctime: time.Unix(int64(txn), 0)}}
		for parent := at; parent != ""; {
			parent, _, _ = cutLast(parent, "/")
			if _, ok := znodes[parent]; !ok && parent != "" {
				znodes[parent] = embed.Znode{Path: parent}
			}
		}
	}
	var list []embed.Znode
	for _, z := range znodes {
		list = append(list, z)
	}
	slices.SortFunc(list, func(a, b embed.Znode) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	return all(t, lock.Queues("/", walked(list)))
}

// cycles returns the deadlocks among queues.
func cycles(t testing.TB, queues []lock.Queue) []lock.Cycle {
	t.Helper()
	all, err := lock.Cycles(context.Background(), queues)
	must(t, err)
	return all
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// short returns cycles in a form that does not depend on the link with which each begins.
func short(cycles []lock.Cycle) (list []string) {
	for _, c := range cycles {
		var links []string
		for i, l := range c.Links {
			links = append(links, shortPath(l.Waits.Path)+" behind "+shortPath(l.Behind.Path))
			if next := c.Links[(i+1)%len(c.Links)]; l.Behind.Session != next.Waits.Session && !slices.Contains(next.Waits.Holding, l.Behind.Path) {
				links = append(links, "BROKEN")
			}
		}
		slices.Sort(links)
		list = append(list, fmt.Sprintf("%v: %s", c.Certain, strings.Join(links, ", ")))
	}
	return list
}

func shortPath(p string) string {
	parent, name, _ := cutLast(p, "/")
	return parent + strings.TrimLeft(name[len(name)-10:], "0")
}

// Two links between callers make no cycle. Callers of one session that hold and wait make one only
// if they do not tell what they hold, and then it is not certain.
func TestCycles(t *testing.T) {
	for what, c := range map[string]struct {
		contenders []string
		want       []string
	}{
		"nobody": {},
		"a ring of two": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3 /a/lock-1", "/a/lock-2 2 4 /b/lock-1"},
			[]string{"true: /a2 behind /a1, /b2 behind /b1"},
		},
		"a ring in one session": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 1 2", "/b/lock-2 1 3 /a/lock-1", "/a/lock-2 1 4 /b/lock-1"},
			[]string{"true: /a2 behind /a1, /b2 behind /b1"},
		},
		"a chain of three": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/a/lock-2 2 3 /b/lock-1", "/b/lock-2 3 4"},
			nil,
		},
		"two goroutines of one session": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3 /x/lock-9", "/a/lock-2 2 4 /b/lock-1"},
			nil,
		},
		"nobody tells": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3", "/a/lock-2 2 4"},
			[]string{"false: /a2 behind /a1, /b2 behind /b1"},
		},
		"one tells": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3", "/a/lock-2 2 4 /b/lock-1"},
			[]string{"false: /a2 behind /a1, /b2 behind /b1"},
		},
		"two goroutines in one queue": {
			[]string{"/a/lock-1 1 1", "/a/lock-2 1 2"},
			nil,
		},
		"waits for itself": {
			[]string{"/a/lock-1 1 1", "/a/lock-2 1 2 /a/lock-1", "/a/lock-3 2 3"},
			[]string{"true: /a2 behind /a1"},
		},
		"behind a ring": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/c/lock-1 3 3", "/b/lock-2 1 4 /a/lock-1", "/a/lock-2 2 5 /b/lock-1", "/a/lock-3 3 6 /c/lock-1", "/c/lock-2 4 7"},
			[]string{"true: /a2 behind /a1, /b2 behind /b1"},
		},
		"readers share": {
			[]string{"/a/__READ__-1 1 1", "/b/__READ__-1 2 2", "/b/__READ__-2 1 3 /a/__READ__-1", "/a/__READ__-2 2 4 /b/__READ__-1"},
			nil,
		},
		"readers behind writers": {
			[]string{"/a/__READ__-1 1 1", "/b/__READ__-1 2 2", "/a/__WRIT__-2 3 5", "/b/__WRIT__-2 4 6", "/b/__READ__-3 1 7 /a/__READ__-1", "/a/__READ__-3 2 8 /b/__READ__-1"},
			[]string{"true: /a2 behind /a1, /a3 behind /a2, /b2 behind /b1, /b3 behind /b2"},
		},
		"an upgrade waits for other readers, not for its own": {
			[]string{"/a/__READ__-1 1 1", "/a/up.__WRIT__-2 1 2"},
			nil,
		},
		"a semaphore with a free end": {
			[]string{"/s/leases/lease-1 1 1", "/s/leases/lease-2 9 2", "/s/locks/lock-1 2 3 /b/lock-1", "/b/lock-1 2 4", "/b/lock-2 1 5 /s/leases/lease-1"},
			nil,
		},
		"a semaphore whose permits all wait": {
			[]string{"/s/leases/lease-1 1 1", "/s/leases/lease-2 3 2", "/s/locks/lock-1 2 3 /b/lock-1", "/b/lock-1 2 4", "/b/lock-2 1 5 /s/leases/lease-1", "/b/lock-3 3 6 /s/leases/lease-2"},
			[]string{"true: /b2 behind /b1, /s/locks1 behind /s/leases1"},
		},
		"candidates that lead elsewhere": {
			[]string{"/a/latch-1 1 1", "/b/latch-1 2 2", "/b/latch-2 1 3", "/a/latch-2 2 4"},
			nil,
		},
		"a leader waits for a lock": {
			[]string{"/e/latch-1 1 1", "/a/lock-1 2 2", "/a/lock-2 1 3 /e/latch-1", "/e/latch-2 2 4"},
			nil, // the candidate holds nothing by its call
		},
		"a lock of several": {
			[]string{"/a/lock-1 2 1", "/b/lock-2 2 1", "/b/lock-1 1 0", "/a/lock-2 1 2 /b/lock-1"},
			[]string{"true: /a2 behind /a1, /b2 behind /b1"},
		},
		"a lost contender waits no more": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 0 3 /a/lock-1", "/a/lock-2 2 4 /b/lock-1"},
			nil,
		},
		"behind a lost contender": {
			[]string{"/a/lock-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3 /a/lock-1", "/a/lock-2 0 4", "/a/lock-3 2 5 /b/lock-1"},
			[]string{"true: /a3 behind /a1, /b2 behind /b1"},
		},
		"behind a lost caller of a semaphore": {
			[]string{"/s/leases/lease-1 1 1", "/b/lock-1 2 2", "/b/lock-2 1 3 /s/leases/lease-1", "/s/locks/lock-1 0 4", "/s/locks/lock-2 2 5 /b/lock-1"},
			[]string{"true: /b2 behind /b1, /s/locks2 behind /s/leases1"},
		},
	} {
		if got := short(cycles(t, queuesOf(t, c.contenders...))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Any number of readers may wait behind a writer: the time grows with their number, not its square.
func TestCycles_ManyReaders(t *testing.T) {
	znodes := []embed.Znode{{Path: "/l"}}
	for i := range 50_000 {
		word := "__READ__"
		if i == 0 {
			word = "__WRIT__"
		}
		znodes = append(znodes, embed.Znode{
			Path: fmt.Sprintf("/l/_c_00000000-0000-4000-8000-%012d-%s%010d", i, word, i),
			Stat: embed.Stat{EphemeralOwner: 1, Czxid: embed.Zxid(i)},
		})
	}
	queues := all(t, lock.Queues("/", walked(znodes)))
	if len(queues) != 1 || len(queues[0].Waiters) != 49_999 || cycles(t, queues) != nil {
		t.Error("another queue")
	}
}

// Three callers on three members wait for one another. Each passes on the ctx of what it holds.
// Somebody finds the ring, and evicts one waiter, which ends it.
func TestCycles_Ring(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ended := make(chan error, 3)
		ring := []string{"/ring/a", "/ring/b", "/ring/c"}
		var holds []*lock.Hold
		var sessions []*embed.Session
		for i, path := range ring {
			sessions = append(sessions, ens.Session(embed.MemberID(i+1), embed.SessionOptions{}))
			h, err := lock.NewMutex(sessions[i], path).Lock(bounded(t))
			must(t, err)
			holds = append(holds, h)
		}
		for i, h := range holds {
			go func() {
				ctx, cancel := context.WithCancel(h.Context())
				defer cancel()
				next, err := lock.NewMutex(sessions[i], ring[(i+1)%3]).Lock(ctx)
				if err == nil {
					err = next.Release()
				}
				ended <- errors.Join(err, h.Release())
			}()
		}
		watcher := ens.Session(1, embed.SessionOptions{})
		var found []lock.Cycle
		ens.Until("the ring to close", func() bool {
			found = cycles(t, all(t, lock.Survey(bounded(t), watcher, "/ring")))
			return len(found) > 0
		})
		if len(found) != 1 || !found[0].Certain || len(found[0].Links) != 3 {
			t.Fatalf("%+v", found)
		}
		must(t, lock.Evict(bounded(t), watcher, found[0].Links[0].Waits.Path))
		evicted := 0
		for range ring {
			if err := <-ended; errors.Is(err, embed.ErrDeleted) {
				evicted++
			} else {
				must(t, err)
			}
		}
		if evicted != 1 {
			t.Errorf("%d callers were evicted", evicted)
		}
	})
}

// Two sessions have n goroutines each. Each of these holds a lock, and waits for one of the other
// session. Nobody tells what it holds, so each might hold what any other of its session holds.
func TestCycles_ManyOfTwoSessions(t *testing.T) {
	const n = 4000
	list := []embed.Znode{{Path: "/l"}}
	for i := range n {
		for session := embed.SessionID(1); session <= 2; session++ {
			path := fmt.Sprintf("/l/%d-%06d", session, i)
			list = append(list, embed.Znode{Path: path})
			for place, owner := range []embed.SessionID{session, 3 - session} {
				name := fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d-lock-%010d", path, i, place)
				stat := embed.Stat{EphemeralOwner: owner, Czxid: embed.Zxid(len(list))}
				list = append(list, embed.Znode{Path: name, Stat: stat})
			}
		}
	}
	queues := all(t, lock.Queues("/", walked(list)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found := cycles(t, queues)
	runtime.ReadMemStats(&after)
	if len(found) != 1 || found[0].Certain || len(found[0].Links) != 2 {
		t.Errorf("%d deadlocks, the first %v", len(found), short(found[:min(1, len(found))]))
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
		t.Errorf("it took %d MiB for %d contenders", took, 4*n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock.Cycles(ctx, queues); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that is over: %v", err)
	}
}
