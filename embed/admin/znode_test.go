package admin_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/tree"
)

// shown is what a GET answers.
type shown struct {
	Path string
	Text *string
	Data []byte
	Stat *struct {
		Version, NumChildren int
		Mzxid                string
	}
	ACL      []struct{ Perms, Scheme, ID string }
	Children []string
	More     bool
}

func TestZnode_Parts(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		for path, data := range map[string][]byte{"/text": []byte("täxt"), "/octets": {0xff, 0}, "/empty": {}, "/nil": nil} {
			_, err := s.Create(t.Context(), path, data, embed.Persistent)
			must(t, err)
		}
		read := func(path string, more ...string) (v shown) {
			t.Helper()
			a := request{path: znode(path, more...), role: "viewer"}.send(h).want(t, 200)
			if a.header.Get("X-Vivarium-Zxid") == "" || a.outcome() != "" {
				t.Errorf("%s: %v", path, a.header)
			}
			a.json(t, &v)
			return v
		}
		if v := read("/text"); v.Text == nil || *v.Text != "täxt" || v.Data != nil || v.Stat == nil || v.ACL != nil || v.Children != nil {
			t.Errorf("text: %+v", v)
		}
		if v := read("/octets", "sync", ""); v.Text != nil || !slices.Equal(v.Data, []byte{0xff, 0}) {
			t.Errorf("octets: %+v", v)
		}
		if v := read("/empty"); v.Text == nil || *v.Text != "" {
			t.Errorf("empty: %+v", v)
		}
		if v := read("/nil"); v.Text != nil || v.Data != nil {
			t.Errorf("nil: %+v", v)
		}
		if v := read("/", "view", "children,acl", "limit", "2", "after", "empty"); !slices.Equal(v.Children, []string{"nil", "octets"}) || !v.More || v.Stat != nil ||
			len(v.ACL) != 1 || v.ACL[0].Perms != "cdrwa" {
			t.Errorf("children: %+v", v)
		}
		if v := read("/text", "view", "children"); v.Children == nil || len(v.Children) != 0 || v.More {
			t.Errorf("no children: %+v", v)
		}
		var u struct{ Children, Descendants, Bytes int }
		request{path: "/v1/usage" + query("path", "/"), role: "viewer"}.send(h).want(t, 200).json(t, &u)
		if u.Children != 5 || u.Bytes != 7 || u.Descendants < 5 {
			t.Errorf("usage: %+v", u)
		}
		request{path: znode("/none"), role: "viewer"}.send(h).want(t, 404)
		request{path: znode("/none", "view", "stat"), role: "viewer"}.send(h).want(t, 404)
	})
}

// A znode is created, changed and deleted only in the state that the caller has seen.
func TestZnode_Preconditions(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		at := znode("/a b%2F?#&ü")
		created := request{method: "POST", path: at, body: "1"}.send(h).want(t, 201)
		if created.outcome() != "applied" {
			t.Errorf("create: %s", created.outcome())
		}
		refuse := func(r request, status int) {
			t.Helper()
			if a := r.send(h).want(t, status); a.outcome() != "refused" {
				t.Errorf("%s: %s", r.method, a.outcome())
			}
		}
		refuse(request{method: "POST", path: at, body: "2"}, 409)
		refuse(request{method: "PUT", path: at, body: "2"}, 428)
		refuse(request{method: "DELETE", path: at}, 428)
		for _, tag := range []string{"", "x", "\"1-2\"", "1-2-3", "\"1-2--1\"", "\"1-2-3\", \"1-2-4\"", "W/\"1-2-3\"", "\"1-2-99999999999\"", "\""} {
			refuse(request{method: "PUT", path: at, header: map[string]string{"If-Match": tag}}, 400)
		}
		first := created.header.Get("ETag")
		if got := (request{path: at}).send(h).header.Get("ETag"); got != first || first == "" {
			t.Errorf("ETags %q and %q", first, got)
		}
		set := request{method: "PUT", path: at, body: "2", header: map[string]string{"If-Match": first}}.send(h).want(t, 200)
		second := set.header.Get("ETag")
		if set.outcome() != "applied" || second == first {
			t.Errorf("set: %s %s", set.outcome(), second)
		}
		refuse(request{method: "PUT", path: at, body: "3", header: map[string]string{"If-Match": first}}, 412)
		refuse(request{method: "DELETE", path: at, header: map[string]string{"If-Match": first}}, 412)

		// Deleted and created again with the same version is another znode.
		if a := (request{method: "DELETE", path: at, header: map[string]string{"If-Match": second}}).send(h).want(t, 204); a.outcome() != "applied" {
			t.Errorf("delete: %s", a.outcome())
		}
		refuse(request{method: "DELETE", path: at, header: map[string]string{"If-Match": "*"}}, 404)
		request{method: "POST", path: at}.send(h).want(t, 201)
		refuse(request{method: "PUT", path: at, header: map[string]string{"If-Match": first}}, 412)
		request{method: "PUT", path: at, header: map[string]string{"If-Match": "*"}}.send(h).want(t, 200)

		refuse(request{method: "POST", path: znode("/no/parent")}, 404)
		refuse(request{method: "POST", path: znode("/e", "mode", "ephemeral")}, 400)
		refuse(request{method: "POST", path: znode("/e", "mode", "ttl")}, 400)
		refuse(request{method: "POST", path: znode("/e", "ttl", "soon", "mode", "ttl")}, 400)
		refuse(request{method: "POST", path: znode("/e", "acl", "mine")}, 400)
		refuse(request{method: "POST", path: znode("/e", "acl", "creator")}, 400) // nobody: ErrInvalidACL
		refuse(request{method: "POST", path: znode("/big"), body: strings.Repeat("x", 1<<20+1)}, 413)
		refuse(request{method: "POST", path: znode("/e", "reason", strings.Repeat("x", 1025))}, 400)
		var w struct{ Path string }
		request{method: "POST", path: znode("/q/w/job-", "parents", "1", "mode", "sequential")}.send(h).want(t, 201).json(t, &w)
		if w.Path != "/q/w/job-0000000000" {
			t.Errorf("sequential: %s", w.Path)
		}
		request{method: "POST", path: znode("/t", "mode", "ttl", "ttl", "1m")}.send(h).want(t, 201)
		request{method: "POST", path: znode("/c", "mode", "container")}.send(h).want(t, 201)
	})
}

// A subtree goes whole or not at all, and only with as many znodes as the caller has seen.
func TestZnode_RecursiveDelete(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/a", "/a/b", "/a/b/c", "/a/d", "/ab"} {
			_, err := s.Create(t.Context(), path, nil, embed.Persistent)
			must(t, err)
		}
		del := func(status int, pairs ...string) {
			t.Helper()
			a := request{method: "DELETE", path: znode("/a", pairs...), header: map[string]string{"If-Match": "*"}}.send(h).want(t, status)
			if applied := status == 204; applied != (a.outcome() == "applied") {
				t.Errorf("%v: %s", pairs, a.outcome())
			}
		}
		del(409)
		del(428, "recursive", "")
		del(400, "expect", "4")
		del(400, "recursive", "", "expect", "10001")
		del(412, "recursive", "", "expect", "3")
		del(412, "recursive", "", "expect", "5")
		if n, err := s.CountDescendants(t.Context(), "/a"); err != nil || n != 3 {
			t.Fatalf("%d %v", n, err)
		}
		del(204, "recursive", "", "expect", "4")
		if _, ok, err := s.Exists(t.Context(), "/a"); err != nil || ok {
			t.Errorf("it is there: %v", err)
		}
		if _, ok, err := s.Exists(t.Context(), "/ab"); err != nil || !ok {
			t.Errorf("its neighbour has gone: %v", err)
		}
		del(404, "recursive", "", "expect", "1")
	})
}

func TestMulti(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		multi := func(body string, status int) answer {
			t.Helper()
			return request{method: "POST", path: "/v1/multi", body: body, header: map[string]string{"Content-Type": "application/json; charset=utf-8"}}.send(h).want(t, status)
		}
		a := multi(`{"ops":[{"op":"create","path":"/a","text":"1"},{"op":"create","path":"/a/s-","mode":"sequential","data":"/wA="},{"op":"set","path":"/a","text":"2","match":"*"}]}`, 200)
		if a.outcome() != "applied" || !strings.Contains(a.body, "/a/s-0000000000") {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		tag := request{path: znode("/a")}.send(h).header.Get("ETag")
		a = multi(fmt.Sprintf(`{"ops":[{"op":"check","path":"/a","match":%q},{"op":"set","path":"/a","text":"3","match":%q},{"op":"delete","path":"/none","match":"*"}]}`, tag, tag), 404)
		if a.outcome() != "refused" || !strings.Contains(a.body, "ops[2]") {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		if a := multi(`{"ops":[{"op":"check","path":"/a","match":"\"1-1-0\""}]}`, 412); !strings.Contains(a.body, "ops[0]") {
			t.Error(a.body)
		}
		for _, bad := range []string{
			`{}`, `{"ops":[]}`, `{"ops":[{}]}`, `[]`, `{"ops":[{"op":"get","path":"/a","match":"*"}]}`, `{"ops":[{"op":"create","path":"/b","match":"*"}]}`,
			`{"ops":[{"op":"set","path":"/a","match":"*","mode":"ttl"}]}`, `{"ops":[{"op":"set","path":"/a","match":"*","text":"","data":"AA=="}]}`,
			`{"ops":[{"op":"check","path":"/a","match":"*"}]} {}`, `{"ops":[{"op":"check","path":"/a","match":"*","more":1}]}`, `{"ops":[{"op":"check","path":"a","match":"*"}]}`, ``,
		} {
			want := 400
			if bad == `{"ops":[{}]}` {
				want = 428
			}
			if a := multi(bad, want); a.outcome() != "refused" {
				t.Errorf("%s: %s", bad, a.outcome())
			}
		}
		multi(`{"ops":[{"op":"set","path":"/a"}]}`, 428)
		request{method: "POST", path: "/v1/multi", body: `{}`}.send(h).want(t, 415)
		request{method: "POST", path: "/v1/multi", body: `{}`, header: map[string]string{"Content-Type": "text/plain"}}.send(h).want(t, 415)
		var v shown
		request{path: znode("/a")}.send(h).want(t, 200).json(t, &v)
		if *v.Text != "2" {
			t.Errorf("a refused multi has changed something: %s", *v.Text)
		}
	})
}

// ACLs are asked as the identities of the grant, in reads and in writes.
func TestIdentities(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		alice, bob, nobody := "editor/alice", "editor/bob", "editor"
		request{method: "POST", path: znode("/mine", "acl", "creator"), role: alice, body: "secret"}.send(h).want(t, 201)
		for _, role := range []string{bob, nobody} {
			a := request{path: znode("/mine"), role: role}.send(h).want(t, 403)
			if strings.Contains(a.body, "secret") {
				t.Errorf("%s reads %s", role, a.body)
			}
			if a := (request{method: "PUT", path: znode("/mine"), role: role, header: map[string]string{"If-Match": "*"}}).send(h).want(t, 403); a.outcome() != "refused" {
				t.Errorf("%s: %s", role, a.outcome())
			}
		}
		request{path: znode("/mine", "view", "data,stat,acl,children"), role: alice}.send(h).want(t, 200)
		request{method: "PUT", path: znode("/mine"), role: alice, header: map[string]string{"If-Match": "*"}}.send(h).want(t, 200)

		// One session for each set of identities, and none a minute after the last request.
		open := func() (n int) {
			t.Helper()
			var list struct {
				Sessions []struct{ Identities []string }
			}
			request{path: "/v1/sessions", role: "viewer"}.send(h).want(t, 200).json(t, &list)
			return len(list.Sessions)
		}
		if n := open(); n != 3 {
			t.Errorf("%d sessions, want 3", n)
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if n := open(); n != 0 {
			t.Errorf("%d sessions after a while, want 0", n)
		}
		request{path: znode("/mine"), role: alice}.send(h).want(t, 200) // without one
		for i := range 20 {                                             // more than there may be: the unused ones make room
			request{method: "POST", path: znode(fmt.Sprintf("/u%d", i)), role: fmt.Sprintf("editor/user%d", i)}.send(h).want(t, 201)
		}
		synctest.Wait()
		if n := open(); n > 16 {
			t.Errorf("%d sessions, want 16 at most", n)
		}
	})
}

// Whatever a znode is called, its path comes through the URL and back.
func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"a", "a b", "a%2Fb", "%", "?", "#", "&x=y", "+", ";", "ü", "\u2028", "a/b", "..", ".", "a//b", "\x00", "\xff", "\ud7ff", "\\", "\"", "<b>", "a\nb", "{}"} {
		f.Add(seed)
	}
	cfg := embed.Config{Dir: f.TempDir(), Tick: embedtest.DefaultTick, Logger: slog.New(slog.DiscardHandler)}
	embedkit.Patient(&cfg)
	node, err := embed.Start(cfg)
	must(f, err)
	f.Cleanup(func() { _ = node.Close() })
	must(f, node.Ready(f.Context()))
	h, err := admin.New(node, admin.Options{Authorize: as})
	must(f, err)
	f.Fuzz(func(t *testing.T, name string) {
		path := "/" + name
		legal := tree.ValidateCreatePath(path, embed.Persistent) == nil && !strings.HasPrefix(path+"/", "/zookeeper/")
		data := base64.StdEncoding.EncodeToString([]byte(name))
		a := request{method: "POST", path: znode(path, "parents", ""), body: data}.send(h)
		if !legal {
			if path != "/" && !strings.HasPrefix(path, "/zookeeper") && a.status != 400 && a.status != 413 {
				t.Errorf("%q: %d %s", path, a.status, a.body)
			}
			return
		}
		if a.status == 409 {
			return // a parent of an earlier one
		}
		a.want(t, 201)
		var v shown
		request{path: znode(path)}.send(h).want(t, 200).json(t, &v)
		if v.Path != path || v.Text == nil || *v.Text != data {
			t.Errorf("%q: %+v", path, v)
		}
		request{path: znode(tree.Parent(path), "view", "children")}.send(h).want(t, 200).json(t, &v)
		if !slices.Contains(v.Children, path[strings.LastIndexByte(path, '/')+1:]) && !v.More {
			t.Errorf("%q is not among %q", path, v.Children)
		}
		request{method: "DELETE", path: znode(path), header: map[string]string{"If-Match": a.header.Get("ETag")}}.send(h).want(t, 204)
	})
}

// Names are found whatever their case, in the whole subtree that may be read.
func TestFind(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		for _, path := range []string{"/shop", "/shop/Orders", "/shop/Orders/order-1", "/shop/Orders/x", "/other"} {
			request{method: "POST", path: znode(path)}.send(h).want(t, 201)
		}
		find := func(pairs ...string) (paths []string, more bool) {
			t.Helper()
			var a struct {
				Paths []string
				More  bool
			}
			request{path: "/v1/find" + query(pairs...), role: "viewer"}.send(h).want(t, 200).json(t, &a)
			slices.Sort(a.Paths)
			return a.Paths, a.More
		}
		if paths, more := find("path", "/", "name", "ORDER"); !slices.Equal(paths, []string{"/shop/Orders", "/shop/Orders/order-1"}) || more {
			t.Errorf("found %q %v", paths, more)
		}
		if paths, more := find("path", "/", "name", "order", "limit", "1"); len(paths) != 1 || !more {
			t.Errorf("found %q %v, want one and more", paths, more)
		}
		if paths, more := find("path", "/shop/Orders/x", "name", "order"); paths == nil || len(paths) != 0 || more {
			t.Errorf("below the name, found %q %v", paths, more)
		}
		request{path: "/v1/find?path=/"}.send(h).want(t, 400)
		request{path: "/v1/find?path=/none&name=x"}.send(h).want(t, 404)
	})
}

// An ACL is replaced by who may do so, if it is still the one that was read.
func TestSetACL(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		request{method: "POST", path: znode("/a"), body: "1"}.send(h).want(t, 201)
		set := func(aversion, role, body string, status int) answer {
			t.Helper()
			pairs := []string{"path", "/a"}
			if aversion != "" {
				pairs = append(pairs, "aversion", aversion)
			}
			return request{method: "PUT", path: "/v1/acl" + query(pairs...), role: role, body: body, header: map[string]string{"Content-Type": "application/json"}}.send(h).want(t, status)
		}
		const mine = `{"acl": [{"perms": "rwa", "scheme": "auth", "id": ""}, {"perms": "r", "scheme": "world", "id": "anyone"}]}`
		set("0", "viewer", mine, 403)
		set("", "editor/alice", mine, 428)
		set("1", "editor/alice", mine, 412)
		set("0", "editor/alice", `{"acl": [{"perms": "rx", "scheme": "world", "id": "anyone"}]}`, 400)
		set("0", "editor/alice", `{"acl": []}`, 400)
		set("0", "editor", mine, 400) // nobody is authenticated
		if a := set("0", "editor/alice", mine, 200); a.outcome() != "applied" {
			t.Errorf("the outcome is %q", a.outcome())
		}
		set("1", "editor", `{"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]}`, 403)
		var z struct {
			ACL []struct{ Perms, Scheme, ID string }
		}
		request{path: znode("/a", "view", "acl"), role: "editor/alice"}.send(h).want(t, 200).json(t, &z)
		if len(z.ACL) != 2 || z.ACL[0].Perms != "rwa" || z.ACL[0].Scheme != "digest" || z.ACL[1].Perms != "r" {
			t.Errorf("the ACL is %+v", z.ACL)
		}
		set("-1", "editor/alice", `{"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]}`, 200)
		request{method: "PUT", path: "/v1/acl" + query("path", "/a", "aversion", "2"), body: mine}.send(h).want(t, 415)
	})
}

// What sessions of the process watch is listed by path.
func TestWatches(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, mode := range []embed.WatchMode{embed.WatchOnce, embed.WatchOnce, embed.WatchRecursive} {
			_, err := s.Watch(t.Context(), "/a", mode)
			must(t, err)
		}
		_, err := s.Watch(t.Context(), "/", embed.WatchPersistent)
		must(t, err)
		watches := func(pairs ...string) string {
			t.Helper()
			return request{path: "/v1/watches" + query(pairs...), role: "viewer"}.send(h).want(t, 200).body
		}
		want := `{"clientPaths":0,"clients":[],"here":[{"path":"/","persistent":1},{"path":"/a","once":2,"recursive":1}]}`
		if got := strings.TrimSpace(watches()); got != want {
			t.Errorf("the watches are %s, want %s", got, want)
		}
		if got := watches("limit", "1"); !strings.Contains(got, `"more":true`) {
			t.Errorf("the first watch is %s", got)
		}
	})
}
