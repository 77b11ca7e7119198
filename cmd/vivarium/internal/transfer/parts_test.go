package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Too much news is a walk, and nothing is kept for it.
func TestNews(t *testing.T) {
	n := newNews()
	n.add("/a")
	n.add("/a")
	if names, whole := n.take(); !slices.Equal(names, []string{"/a"}) || whole {
		t.Errorf("%q, %t", names, whole)
	}
	for i := range newsMax + 2 {
		n.add(fmt.Sprint("/", i))
	}
	if names, whole := n.take(); len(names) != 0 || !whole {
		t.Errorf("%d names, %t", len(names), whole)
	}
	n.add("/a")
	n.all()
	if names, whole := n.take(); len(names) != 0 || !whole {
		t.Errorf("%q, %t", names, whole)
	}
	if names, whole := n.take(); len(names) != 0 || whole {
		t.Errorf("%q, %t", names, whole)
	}
}

// A znode is forgotten with all below it, and only in the life that the caller has seen.
func TestKnown(t *testing.T) {
	k := newKnown()
	for _, name := range []string{"", "/a", "/a/b", "/a/b/c", "/ab"} {
		k.put(name, stamp{czxid: 1})
	}
	if got := k.children(""); !slices.Equal(got, []string{"/a", "/ab"}) {
		t.Errorf("%q", got)
	}
	born := k.born("/a")
	if k.forgetIf("/a", born-1) || !k.forgetIf("/a", born) || k.forgetIf("/a", born) {
		t.Error("it was forgotten in another life")
	}
	for name, want := range map[string]bool{
		"": true, "/a": false, "/a/b": false, "/a/b/c": false, "/ab": true,
	} {
		if _, ok := k.get(name); ok != want {
			t.Errorf("%q is known: %t", name, ok)
		}
	}
	k.put("/a/b", stamp{}) // before its parent
	k.put("/a", stamp{})
	k.put("/a/b", stamp{})
	if got := k.children("/a"); k.born("/a") == born || !slices.Equal(got, []string{"/a/b"}) {
		t.Errorf("%q", got)
	}
}

// Each name is visited once, after its parent, by a bounded number of visits at a time. The first
// error ends all.
func TestEach(t *testing.T) {
	var mu sync.Mutex
	var busy atomic.Int64
	seen := make(map[string]bool)
	visit := func(_ context.Context, name string) (more []string, err error) {
		now := busy.Add(1)
		defer busy.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		if seen[name] || name != "" && !seen[parent(name)] || now > workers {
			t.Errorf("%q: %d at a time", name, now)
		}
		seen[name] = true
		for i := 0; strings.Count(name, "/") < 4 && i < 5; i++ {
			more = append(more, fmt.Sprint(name, "/", i))
		}
		return more, nil
	}
	must(t, each(t.Context(), []string{""}, visit))
	if len(seen) != 1+5+25+125+625 {
		t.Errorf("%d visited", len(seen))
	}
	broken := errors.New("broken")
	err := each(t.Context(), []string{""}, func(ctx context.Context, name string) ([]string, error) {
		switch name {
		case "":
			return []string{"/1", "/2"}, nil
		case "/1":
			return nil, broken
		}
		<-ctx.Done()
		return []string{"/3"}, ctx.Err()
	})
	testkit.WantErr(t, err, broken)
	must(t, each(t.Context(), nil, nil))
}

func TestNumbersAgain(t *testing.T) {
	for name, want := range map[string]bool{
		"/q/n-0000000007": true, "/q/n-0000000006": false, "/q/n": false, "/q/n-000000000x": false,
	} {
		if numbersAgain([]string{"/q/a", name}, 7) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
