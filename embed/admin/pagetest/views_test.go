package pagetest

import (
	"context"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// views are the headings of the views, in the order of the tabs.
var views = []string{"Ensemble", "Tree", "Locks and elections", "Sessions", "Watches", "Events", "Backup"}

// Every view shows what there is to see.
func TestViews(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(2)
	m := lock.NewMutex(s, "/report")
	_, err := m.Lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan struct{})
	go func() { defer close(waits); _, _ = lock.NewMutex(e.session(3), "/report").Lock(ctx) }()
	t.Cleanup(func() { cancel(); <-waits })

	p := e.open(t, "editor", "ensemble")
	for _, text := range []string{"All is well.", "3 members vote, and 1 may fail.", "shop · member 1", "Member 1 is connected to 2, 3."} {
		p.see(text)
	}
	p.find("article", "Member 3")
	p.find("button", "Let member 2 lead")
	p.find("table", "Shards")

	p.click("link", "Tree")
	p.find("treeitem", "report")
	p.find("heading", "Data, 0 B")
	p.find("table", "Who may do what")

	p.click("link", "Locks and elections")
	p.find("list", "/report, from the holder to the last waiter")
	until(t, "the queue", func() bool { // the survey after the next one at the latest shows the waiter
		text := p.text()
		return strings.Contains(text, "1 holder, 1 waiter") && strings.Contains(text, "member 2\nholds") && strings.Contains(text, "member 3\nwaits")
	})

	p.click("link", "Sessions")
	p.click("link", hex(s.ID()))
	p.find("region", "Session "+hex(s.ID()))
	p.find("button", "End it")

	p.click("link", "Watches")
	p.see("Clients of this member’s gateway watch 0 paths.")
	for _, mode := range []embed.WatchMode{embed.WatchOnce, embed.WatchOnce, embed.WatchRecursive} {
		_, err := e.session(1).Watch(t.Context(), "/report", mode)
		must(t, err)
	}
	far := e.client(t)
	_, err = far.Watch(t.Context(), "/far", embed.WatchPersistent)
	must(t, err)
	p.see("watch 2 paths.") // that, and the list of members
	p.find("table", "By path")
	p.see("2 once, 1 recursive")
	p.find("table", "By session of a client")
	p.find("link", hex(far.ID()))
	p.click("link", "/far")
	p.find("heading", "Tree")

	p.click("link", "Events")
	p.see("ready")
	p.click("button", "Follow")
	p.see("Following /.")
	until(t, "a change to be shown", func() bool { // the follow begins some time after the click
		_, err := s.Create(t.Context(), "/seen-", nil, embed.Sequential)
		must(t, err)
		return strings.Contains(p.text(), "/seen-")
	})
	p.click("button", "Stop")

	p.click("link", "Backup")
	p.click("button", "Take a backup")
	p.find("dialog", "A token with the role “backup”")
	p.fill("Token", "backup")
	p.press("Enter")
	p.see("vivarium.backup:")
	p.fill("Export this subtree", "/report")
	p.click("button", "Export")
	p.find("dialog", "A token with the role “backup”")
	p.fill("Token", "viewer")
	p.press("Enter")
	p.see("viewer")
	p.click("button", "Preview")
	p.see("Choose a file first.")
}

// A wrong token is told to be wrong, and a right one is kept until the reader signs out.
func TestSignIn(t *testing.T) {
	e := startEnsemble(t)
	p := openTab(t)
	p.visit(e.url)
	p.see("This member wants to know who asks.")
	p.click("button", "Sign in")
	p.fill("Token", "wrong")
	p.press("Enter")
	p.see("This member does not know the token.")
	p.signIn("viewer")
	p.see("All is well.")
	p.click("button", "Sign out viewer-name")
	p.see("This member wants to know who asks.")
}

// A viewer sees everything, and no button that changes something.
func TestViewer(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	_, err := lock.NewMutex(s, "/report").Lock(t.Context())
	must(t, err)
	allowed := map[string]bool{"Sign out viewer-name": true, "Open": true, "Copy path": true, "Show": true, "Follow": true, "Search": true,
		"Take a backup": true, "Export": true} // the last two ask for a token of their own
	buttons := func(p *tab) (names []string) {
		for _, b := range p.all("button", "") {
			if !allowed[b.name] {
				names = append(names, b.name)
			}
		}
		return names
	}
	p := e.open(t, "viewer", "ensemble")
	settled := map[string]string{"Ensemble": "All is well.", "Tree": "Who may do what", "Locks and elections": "1 holder, nobody waits", "Sessions": hex(s.ID()),
		"Watches": "watch 0 paths", "Events": "ready", "Backup": "Whoever may edit sees an import here."}
	for _, name := range views {
		p.click("link", name)
		p.find("heading", name)
		p.see(settled[name])
		if found := buttons(p); len(found) > 0 {
			t.Errorf("a viewer is offered %q in the view %s", found, name)
		}
	}
	p.visit(e.url + "#sessions?id=" + hex(s.ID()))
	p.find("region", "Session "+hex(s.ID()))
	if found := buttons(p); len(found) > 0 {
		t.Errorf("a viewer is offered %q for a session", found)
	}
	// The same look finds the buttons of an editor.
	p.click("button", "Sign out viewer-name")
	p.signIn("editor")
	p.find("region", "Session "+hex(s.ID()))
	if found := buttons(p); len(found) == 0 {
		t.Error("an editor is offered nothing")
	}
}

// Two followers need no connection to each other. The page of one alarms nobody, and promises nothing
// that only the leader knows.
func TestFollower(t *testing.T) {
	e := startEnsemble(t)
	e.TransferLeadership(2)
	e.Cut(1, 3)
	e.Kill(3)
	e.Restart(3)
	p := e.open(t, "viewer", "ensemble")
	p.see("Member 1 is connected to 2.")
	p.see("All is well here. Whether all members answer is known to member 2, which leads.")
	if strings.Contains(p.text(), "not connected") {
		t.Error("a connection that nobody needs is said to be missing")
	}
}

// A member that is down, and then the loss of the quorum, are in the first sentence.
func TestMemberDown(t *testing.T) {
	e := startEnsemble(t)
	p := e.open(t, "viewer", "ensemble")
	p.see("All is well.")
	e.Kill(3)
	p.see("Member 3 does not answer, and none more may fail.")
	p.see("Member 1 is connected to 2, and not to 3.")
	p.see("not connected")
	e.Kill(2)
	p.see("Something is wrong.")
	p.see("not ready")
	for _, name := range views {
		p.click("link", name)
		p.find("heading", name)
		if name != "Ensemble" {
			p.see("This member is not ready, so what it shows may be old.")
		}
	}
	p.click("link", "Tree")
	p.find("treeitem", "zookeeper")
	e.Restart(2)
	e.TransferLeadership(1)
	p.click("link", "Ensemble")
	p.see("Worth a look.")
}

// The harness notices what the browser complains about. Without this test, a mistake in listen
// would let the other tests pass.
func TestComplaints(t *testing.T) {
	e := startEnsemble(t)
	for what, script := range map[string]string{
		"Content Security Policy": "const s = document.createElement('style'); s.textContent = 'p { color: red }'; document.body.append(s)",
		"TrustedHTML":             "setTimeout(() => { document.body.innerHTML = '<b>x</b>' })",
		"spilt":                   "console.error('spilt')",
		"thrown":                  "setTimeout(() => { throw new Error('thrown') })",
		"none.svg":                "const i = new Image(); i.src = 'none.svg'; document.body.append(i)",
	} {
		p := newTab(t)
		p.visit(e.url)
		eval[int](p, script+"; 0")
		until(t, "the complaint about "+what, func() bool { return strings.Contains(strings.Join(p.complaints(), "\n"), what) })
	}
}

// Text can be read in both colour schemes: its contrast is at least 4.5 to 1.
func TestContrast(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	_, err := lock.NewMutex(s, "/report").Lock(t.Context())
	must(t, err)
	p := e.open(t, "editor", "ensemble")
	p.see("All is well.")
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		if got := eval[bool](p, "matchMedia('(prefers-color-scheme: dark)').matches"); got != (scheme == "dark") {
			t.Fatalf("the scheme is not %s", scheme)
		}
		for _, name := range views {
			p.click("link", name)
			p.find("heading", name)
			if name == "Locks and elections" {
				p.see("holds")
			}
			for _, text := range eval[[]string](p, tooFaint) {
				t.Errorf("%s, %s: %s", scheme, name, text)
			}
		}
	}
}

// tooFaint lists texts whose contrast to what is behind them is below 4.5.
const tooFaint = `(() => {
	const ctx = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
	const rgba = (c) => { ctx.clearRect(0, 0, 1, 1); ctx.fillStyle = c; ctx.fillRect(0, 0, 1, 1); return ctx.getImageData(0, 0, 1, 1).data; };
	const light = (c) => { const [r, g, b] = [...c].slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (el) => { for (; el; el = el.parentElement) { const c = rgba(getComputedStyle(el).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
	const found = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const el = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
		if (!text || !el.getClientRects().length || el.closest('svg, noscript')) continue;
		const [a, b] = [light(rgba(getComputedStyle(el).color)), light(behind(el))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) found.push(text + ': ' + ratio.toFixed(2));
	}
	return found;
})()`

// tooWide lists what sticks out of the window.
const tooWide = `(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] : [...document.body.querySelectorAll('*')]
	.filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((e) => e.outerHTML.slice(0, 150)))()`

// No view is wider than the window.
func TestWidths(t *testing.T) {
	e := startEnsemble(t)
	s := e.session(1)
	_, err := lock.NewMutex(s, "/a-lock-with-a-name-that-does-not-fit-into-the-window-of-a-telephone-however-one-turns-it").Lock(t.Context())
	must(t, err)
	p := e.open(t, "editor", "ensemble")
	p.see("All is well.")
	for _, name := range views {
		p.click("link", name)
		p.find("heading", name)
		if name == "Locks and elections" {
			p.see("holds")
		}
		for _, width := range []int64{390, 900, 1440} {
			p.size(width, 900)
			for _, e := range eval[[]string](p, tooWide) {
				t.Errorf("at %d pixels, the view %s: %s", width, name, e)
			}
		}
	}
}
