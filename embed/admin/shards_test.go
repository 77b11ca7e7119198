package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// With several shards a caller sees one tree, and is refused what would be more than one
// transaction.
func TestSeveralShards(t *testing.T) {
	const znodes = 12 // children of the root, on all shards
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 3 }})
		h, err := admin.New(ens.Node(1), admin.Options{Authorize: as})
		must(t, err)
		send := func(method, path, role, body string) answer {
			return request{method: method, path: path, role: role, body: body, header: map[string]string{"Content-Type": "application/json"}}.send(h)
		}
		var ops []string
		for i := range znodes {
			send(http.MethodPost, znode(fmt.Sprintf("/z%d", i)), "editor", "x").want(t, 201)
			ops = append(ops, fmt.Sprintf(`{"op":"set","path":"/z%d","text":"y","match":"*"}`, i))
		}
		s := ens.Session(1, embed.SessionOptions{})
		var holds []*lock.Hold
		for i := range znodes {
			hold, err := lock.NewMutex(s, fmt.Sprintf("/z%d/lock", i)).Lock(t.Context())
			must(t, err)
			holds = append(holds, hold)
		}

		var status struct{ Shards []struct{ Leader int } }
		send("GET", "/v1/status", "viewer", "").want(t, 200).json(t, &status)
		if len(status.Shards) != 3 || status.Shards[2].Leader != 1 {
			t.Errorf("%+v", status)
		}
		var root struct {
			Children []string
			Stat     struct{ NumChildren int }
		}
		send("GET", znode("/", "view", "stat,children"), "viewer", "").want(t, 200).json(t, &root)
		if len(root.Children) != znodes+1 || root.Stat.NumChildren != znodes+1 {
			t.Errorf("the root: %+v", root)
		}
		var page struct {
			Children []string
			More     bool
		}
		send("GET", znode("/", "view", "children", "after", "z1", "limit", "2"), "viewer", "").want(t, 200).json(t, &page)
		if strings.Join(page.Children, " ") != "z10 z11" || !page.More {
			t.Errorf("a page of the root: %+v", page)
		}
		var usage struct{ Children, Descendants, Bytes int }
		send("GET", "/v1/usage?path=/", "viewer", "").want(t, 200).json(t, &usage)
		if usage.Children != znodes+1 || usage.Descendants < 3*znodes || usage.Bytes < znodes {
			t.Errorf("%+v", usage)
		}
		var locks struct {
			Queues []struct {
				Path    string
				Holders []struct{ Session string }
			}
		}
		send("GET", "/v1/locks", "viewer", "").want(t, 200).json(t, &locks)
		if len(locks.Queues) != znodes || locks.Queues[0].Path != "/z0/lock" || locks.Queues[0].Holders[0].Session != hexOf(s.ID()) {
			t.Errorf("%+v", locks)
		}
		var one struct{ Ephemerals int }
		send("GET", "/v1/session?id="+hexOf(s.ID()), "viewer", "").want(t, 200).json(t, &one)
		if one.Ephemerals != znodes {
			t.Errorf("the session has %d ephemerals", one.Ephemerals)
		}

		a := send(http.MethodPost, "/v1/multi", "editor", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(t, 400)
		if a.outcome() != "refused" || !strings.Contains(a.body, "shard") {
			t.Errorf("%s, %s", a.outcome(), a.body)
		}
		send("GET", znode("/z0"), "viewer", "").want(t, 200)
		for _, hold := range holds {
			must(t, hold.Release())
		}
	})
}
