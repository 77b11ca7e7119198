package watch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// TestTriggerMatrix is ZooKeeper's table of causes and watches. P is the znode that changes, Q its
// parent.
func TestTriggerMatrix(t *testing.T) {
	const p, q = "/q/p", "/q"
	none := []string(nil)
	for _, c := range []struct {
		cause tree.ChangeType
		path  string
		mode  Mode
		want  []string
	}{
		{tree.Created, p, Once, []string{"NodeCreated /q/p"}},
		{tree.Created, p, Persistent, []string{"NodeCreated /q/p"}},
		{tree.Created, p, Recursive, []string{"NodeCreated /q/p"}},
		{tree.Created, q, Once, []string{"NodeChildrenChanged /q"}},
		{tree.Created, q, Persistent, []string{"NodeChildrenChanged /q"}},
		{tree.Created, q, Recursive, []string{"NodeCreated /q/p"}},
		{tree.Created, "/", Once, none},
		{tree.Created, "/", Persistent, none},
		{tree.Created, "/", Recursive, []string{"NodeCreated /q/p"}},

		{tree.DataChanged, p, Once, []string{"NodeDataChanged /q/p"}},
		{tree.DataChanged, p, Persistent, []string{"NodeDataChanged /q/p"}},
		{tree.DataChanged, p, Recursive, []string{"NodeDataChanged /q/p"}},
		{tree.DataChanged, q, Once, none},
		{tree.DataChanged, q, Persistent, none},
		{tree.DataChanged, q, Recursive, []string{"NodeDataChanged /q/p"}},
		{tree.DataChanged, "/", Recursive, []string{"NodeDataChanged /q/p"}},

		{tree.Deleted, p, Once, []string{"NodeDeleted /q/p"}},
		{tree.Deleted, p, Persistent, []string{"NodeDeleted /q/p"}},
		{tree.Deleted, p, Recursive, []string{"NodeDeleted /q/p"}},
		{tree.Deleted, q, Once, []string{"NodeChildrenChanged /q"}},
		{tree.Deleted, q, Persistent, []string{"NodeChildrenChanged /q"}},
		{tree.Deleted, q, Recursive, []string{"NodeDeleted /q/p"}},
		{tree.Deleted, "/", Persistent, none},
		{tree.Deleted, "/", Recursive, []string{"NodeDeleted /q/p"}},

		// Neighbours: below, beside, and with a name that begins alike.
		{tree.Created, "/q/p/x", Persistent, none},
		{tree.Created, "/q/p/x", Recursive, none},
		{tree.Created, "/q/other", Recursive, none},
		{tree.Created, "/q/pp", Persistent, none},
		{tree.Created, "/q/pp", Recursive, none},
		{tree.Created, "/qq", Recursive, none},
	} {
		t.Run(fmt.Sprintf("%v/%v/%s", c.cause, c.mode, c.path), func(t *testing.T) {
			r := NewRegistry()
			s := r.Add(c.path, c.mode, Options{}, nil)
			r.Deliver(7, []tree.Change{{Type: c.cause, Path: p}}, nil)
			if got := received(s); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if ends := c.mode == Once && c.want != nil; ends != (r.Len() == 0) {
				t.Errorf("%d watches left", r.Len())
			}
		})
	}
}

// TestRootMatrix changes the root itself, and creates and deletes a child of it.
func TestRootMatrix(t *testing.T) {
	r := NewRegistry()
	persistent, recursive := r.Add("/", Persistent, Options{}, nil), r.Add("/", Recursive, Options{}, nil)
	r.Deliver(1, []tree.Change{{Type: tree.DataChanged, Path: "/"}, {Type: tree.Created, Path: "/a"}, {Type: tree.Deleted, Path: "/a"}}, nil)
	if got := received(persistent); !slices.Equal(got, []string{"NodeDataChanged /", "NodeChildrenChanged /", "NodeChildrenChanged /"}) {
		t.Errorf("persistent: %q", got)
	}
	if got := received(recursive); !slices.Equal(got, []string{"NodeDataChanged /", "NodeCreated /a", "NodeDeleted /a"}) {
		t.Errorf("recursive: %q", got)
	}
}

// received returns the events in the buffer, without waiting.
func received(s *Stream) []string {
	var texts []string
	for {
		select {
		case e, ok := <-s.Events():
			if !ok {
				return texts
			}
			texts = append(texts, fmt.Sprint(e.Type, " ", e.Path))
		default:
			return texts
		}
	}
}
