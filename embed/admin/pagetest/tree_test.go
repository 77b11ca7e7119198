package pagetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// A znode has no children, one, or 100,000 of them. These are shown 500 at a time.
func TestTree_Children(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	e.children(t, s, "/none", 0)
	e.children(t, s, "/one", 1)
	e.children(t, s, "/many", 100_000)
	p := e.open(t, "viewer", "tree")

	p.click("treeitem", "none")
	until(t, "the mark that can be expanded to go", func() bool { return p.find("treeitem", "none").states["expanded"] == "" })
	p.click("treeitem", "one")
	p.find("treeitem", "n-000000")
	p.press("ArrowLeft")
	p.gone("treeitem", "n-000000")

	p.click("treeitem", "many")
	p.find("treeitem", "n-000499")
	p.see("100 000")
	p.see("500+")
	if got := len(p.below(3)); got != 501 { // and the one that shows more
		t.Errorf("%d items are shown, want 501", got)
	}
	p.click("treeitem", "Show 500 more")
	p.find("treeitem", "n-000999")
	p.see("1 000+")
	if e := p.focused(); e.name != "n-000500" {
		t.Errorf("after more were shown the focus is on %s", e)
	}
	if got := p.below(3); len(got) != 1001 || !slices.IsSorted(got[:1000]) {
		t.Errorf("%d items are shown, want 1001 in their order", len(got))
	}

	p.visit(e.url + "#tree?path=/many/n-099999") // a link that somebody has sent
	p.find("heading", "Data, 0 B")
	p.find("link", "n-099999")
}

// below returns the names of the tree's items of a level.
func (p *tab) below(level int) (names []string) {
	for _, e := range p.all("treeitem", "") {
		if e.states["level"] == fmt.Sprint(level) {
			names = append(names, e.name)
		}
	}
	return names
}

// What others change is shown: data, children that come and go, and the end of the znode.
func TestTree_Live(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(2)
	for _, path := range []string{"/a", "/a/one", "/a/two"} {
		_, err := s.Create(t.Context(), path, []byte("first"), embed.Persistent)
		must(t, err)
	}
	p := e.open(t, "viewer", "tree?path=/a")
	p.find("treeitem", "two")
	p.see("first")
	p.find("button", "Copy path")

	_, err := s.Set(t.Context(), "/a", []byte("second"), embed.AnyVersion)
	must(t, err)
	p.see("second")
	p.see("just changed")
	must(t, s.Delete(t.Context(), "/a/one", embed.AnyVersion))
	_, err = s.Create(t.Context(), "/a/three", nil, embed.Persistent)
	must(t, err)
	p.gone("treeitem", "one")
	p.find("treeitem", "three")
	if got := p.below(3); !slices.Equal(got, []string{"three", "two"}) {
		t.Errorf("the children are %q", got)
	}
	for _, path := range []string{"/a/two", "/a/three", "/a"} {
		must(t, s.Delete(t.Context(), path, embed.AnyVersion))
	}
	p.see("There is no such znode.")
	p.gone("treeitem", "a")
}

// A name that is markup, and data of every kind, stay what they are.
func TestTree_Hostile(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	const name = `<img src=x onerror=alert(1)>`
	data := map[string]struct{ data, shown, how string }{
		name:          {`</pre><script>alert(1)</script>`, `</pre><script>alert(1)</script>`, "text"},
		"json":        {`{"b": [1, 2]}`, `"b": [`, "JSON"},
		"octets":      {"\x00\xff\x01", "00000000  00 ff 01", "hex"},
		"gzip":        {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcb\xc8\x04\x00\xac\x2a\x93\xd8\x02\x00\x00\x00", "hi", "gzip"},
		"%2F..?#&":    {"odd", "odd", "text"},
		"\u202egnihs": {"turned", "turned", "text"},
		"two  spaces": {"spaces", "spaces", "text"},
	}
	for name, d := range data {
		_, err := s.Create(t.Context(), "/"+name, []byte(d.data), embed.Persistent)
		must(t, err)
	}
	p := e.open(t, "editor", "tree")
	for name, d := range data {
		name = strings.Join(strings.Fields(name), " ") // as a screen reader reads it
		p.click("treeitem", name)
		p.find("link", name)
		p.see(d.shown)
		if b := p.find("button", d.how); b.states["pressed"] != "true" {
			t.Errorf("the data of %q is not shown as %s", name, d.how)
		}
	}
	if list := p.all("image", ""); len(list) > 0 { // the mark of the product is hidden
		t.Errorf("the page has images: %s", list)
	}
	p.click("link", "Sessions")
	p.click("link", "Events")
	p.click("button", "Follow")
	p.see("Following /.")
	until(t, "the change to be shown", func() bool {
		_, err := s.Set(t.Context(), "/"+name, nil, embed.AnyVersion)
		must(t, err)
		return len(p.all("link", "/"+name)) > 0
	})
}

// Two edit the same znode. The second one is told, and sees both versions before anything is saved.
func TestEdit_Conflict(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(2)
	_, err := s.Create(t.Context(), "/config", []byte("limit = 1"), embed.Persistent)
	must(t, err)
	p := e.open(t, "editor", "tree?path=/config")
	p.see("limit = 1")
	p.click("button", "Edit data")
	p.find("dialog", "Data of config")
	p.fill("Data", "limit = 2")
	_, err = s.Set(t.Context(), "/config", []byte("limit = 3"), embed.AnyVersion)
	must(t, err)
	p.click("button", "Save")
	p.find("dialog", "Somebody else has changed it")
	p.see("Theirs, version 1")
	p.see("limit = 2")
	p.see("limit = 3")
	e.wantData(t, "/config", "limit = 3")
	p.click("button", "Edit mine on")
	p.find("dialog", "Data of config")
	if got := p.find("textbox", "Data").value; got != "limit = 2" {
		t.Errorf("after the conflict the text is %q", got)
	}
	p.fill("Data", "limit = 2 or 3")
	p.click("button", "Save")
	p.see("Saved.")
	e.wantData(t, "/config", "limit = 2 or 3")

	p.click("button", "Edit data")
	p.find("dialog", "Data of config")
	must(t, s.Delete(t.Context(), "/config", embed.AnyVersion))
	p.click("button", "Save")
	p.find("dialog", "It is gone")
	p.press("Escape")
	p.see("There is no such znode.")
}

// Names are searched below the znode that is shown, also where nothing is loaded.
func TestTree_Search(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	for _, path := range []string{"/shop", "/shop/orders", "/shop/orders/order-17", "/other"} {
		_, err := s.Create(t.Context(), path, nil, embed.Persistent)
		must(t, err)
	}
	p := e.open(t, "viewer", "tree")
	p.find("treeitem", "shop")
	p.fill("Part of a name", "ORDER")
	p.click("button", "Search")
	p.see("2 names at and below / with “ORDER”")
	p.click("link", "/shop/orders/order-17")
	p.find("treeitem", "order-17")
	p.click("button", "Close")
	p.gone("link", "/shop/orders")
	p.fill("Part of a name", "none")
	p.press("Enter")
	p.see("0 names at and below /shop/orders/order-17")
}

// An ACL is edited as ZooKeeper's shell writes it. The page tells a mistake, and asks again before an
// ACL locks everybody out.
func TestEdit_ACL(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(2)
	_, err := s.Create(t.Context(), "/config", nil, embed.Persistent)
	must(t, err)
	p := e.open(t, "editor", "tree?path=/config")
	p.click("button", "Edit ACL")
	p.find("dialog", "ACL of config")
	if got := p.find("textbox", "Entries").value; got != "world:anyone:cdrwa" {
		t.Errorf("the entries are %q", got)
	}
	p.fill("Entries", "world:anyone:xa")
	p.click("button", "Save")
	p.see("Nothing was changed.")
	p.fill("Entries", "world:anyone:r")
	p.click("button", "Save")
	p.find("dialog", "Nobody could change it again")
	p.press("Escape")
	p.find("dialog", "ACL of config")
	p.fill("Entries", "world:anyone:ra\ndigest:alice:x:cdrwa")
	p.click("button", "Save")
	p.see("The ACL is saved.")
	p.see("read, admin")
	list, _, err := s.ACL(t.Context(), "/config")
	must(t, err)
	if len(list) != 2 || list[0].Perms != embed.PermRead|embed.PermAdmin || list[1].ID != "alice:x" {
		t.Errorf("the ACL is %+v", list)
	}
}

// wantData fails the test unless a znode has some data.
func (e *ensemble) wantData(t *testing.T, path, want string) {
	t.Helper()
	s := e.session(1)
	_, err := s.Sync(t.Context(), path)
	must(t, err)
	data, _, err := s.Get(t.Context(), path)
	must(t, err)
	if string(data) != want {
		t.Errorf("%s has %q, want %q", path, data, want)
	}
}

// The quorum goes while a write is on its way. The page says that its outcome is unknown, and what
// was typed is still there.
func TestEdit_QuorumLost(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	_, err := s.Create(t.Context(), "/config", []byte("limit = 1"), embed.Persistent)
	must(t, err)
	p := e.open(t, "editor", "tree?path=/config")
	p.click("button", "Edit data")
	p.find("dialog", "Data of config")
	p.fill("Data", "limit = 2")
	// The handler opens its session with the first write. Only then is the quorum lost.
	p.click("button", "Save")
	p.see("Saved.")
	e.wantData(t, "/config", "limit = 2")
	p.click("button", "Edit data")
	p.find("dialog", "Data of config")
	p.fill("Data", "limit = 3")
	cut := func(r *http.Request) {
		if r.Method == http.MethodPut {
			e.Isolate(1)
		}
	}
	e.before.Store(&cut)
	p.click("button", "Save")
	p.see("Unknown: the write may have been applied. Look before you repeat it.")
	if got := p.find("textbox", "Data").value; got != "limit = 3" {
		t.Errorf("the text is %q", got)
	}
	e.Until("member 1 to know that it has no quorum", func() bool { return !e.Node(1).Health().Ready })
	p.click("button", "Save")
	p.see("Nothing was changed.")
	e.before.Store(nil)
	e.HealAll()
	e.Ready(1)
	p.click("button", "Cancel")
	p.see("limit = ") // the page goes on
}

// A znode is created, filled and deleted without a mouse.
func TestKeyboard(t *testing.T) {
	e := startEnsemble(t)
	p := openTab(t)
	p.visit(e.url)
	p.find("button", "Sign in")
	p.tabTo("button", "Sign in")
	p.press("Enter")
	p.find("dialog", "Sign in")
	p.write("editor")
	p.press("Enter")
	p.see("All is well.")

	p.tabTo("link", "Tree")
	p.press("Enter")
	p.find("treeitem", "zookeeper")
	p.tabTo("treeitem", "/")
	p.press("ArrowDown")
	p.focusOn("treeitem", "zookeeper")
	p.press("Home")
	p.focusOn("treeitem", "/")
	p.press("End")
	p.focusOn("treeitem", "zookeeper")
	p.press("Home", "z") // the first letter of a name
	p.focusOn("treeitem", "zookeeper")
	p.press("ArrowLeft") // up to the parent
	p.focusOn("treeitem", "/")

	p.tabTo("button", "Create a child")
	p.press("Enter")
	p.find("dialog", "Create below /")
	p.write("jobs")
	p.tabTo("textbox", "Data")
	p.write("by hand")
	p.tabTo("button", "Create")
	p.press(" ")
	p.see("by hand")
	p.find("treeitem", "jobs")
	e.wantData(t, "/jobs", "by hand")

	p.tabTo("button", "Edit data")
	p.press("Enter")
	p.find("dialog", "Data of jobs")
	p.focusOn("textbox", "Data")
	p.press("Tab")
	p.focusOn("textbox", "Reason")
	p.press("Shift+Tab")
	p.focusOn("textbox", "Data")
	p.press("Escape")
	p.gone("dialog", "Data of jobs")
	p.focusOn("button", "Edit data")

	p.tabTo("button", "Delete")
	p.press("Enter")
	p.find("dialog", "Delete jobs")
	p.tabTo("button", "Delete")
	p.press("Enter")
	p.gone("treeitem", "jobs")
	s := e.session(1)
	_, err := s.Sync(t.Context(), "/")
	must(t, err)
	if _, ok, err := s.Exists(t.Context(), "/jobs"); err != nil || ok {
		t.Errorf("/jobs is still there: %v %v", ok, err)
	}

	for _, name := range views[2:] { // every view, and every control of it, takes the focus
		p.tabTo("link", name)
		p.press("Enter")
		p.find("heading", name)
	}
}

// tabTo presses Tab until an element has the focus.
func (p *tab) tabTo(role, name string) {
	p.t.Helper()
	for range 60 {
		if e := p.focused(); e.role == role && e.name == name {
			return
		}
		p.press("Tab")
	}
	p.t.Fatalf("Tab does not lead to the %s %q", role, name)
}

// focusOn waits until an element has the focus.
func (p *tab) focusOn(role, name string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("the focus to be on the %s %q", role, name), func() bool {
		e := p.focused()
		return e.role == role && e.name == name
	})
}
