package pagetest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

var update = flag.Bool("update", false, "write the pictures of docs/admin")

// docs/admin.md shows the page. With -update, the pictures are taken again. They are not compared:
// fonts differ between machines.
func TestPictures(t *testing.T) {
	e := startEnsemble(t)
	e.furnish(t)
	for _, shot := range []struct {
		name, hash, scheme string
		ready              func(p *tab)
	}{
		{"ensemble", "ensemble", "light", func(p *tab) { p.see("All is well.") }},
		{"tree", "tree?path=/shop/config/limits", "light", func(p *tab) { p.see("basket"); p.find("treeitem", "orders") }},
		{"locks", "locks?root=/shop", "light", func(p *tab) { p.see("1 holder, 2 waiters") }},
		{"tree-dark", "tree?path=/shop/config/limits", "dark", func(p *tab) { p.see("basket"); p.find("treeitem", "orders") }},
	} {
		p := e.open(t, "editor", shot.hash)
		p.size(1200, 760)
		p.scheme(shot.scheme)
		shot.ready(p)
		p.picture(shot.name)
	}
	p := e.open(t, "viewer", "ensemble")
	p.size(1200, 760)
	p.scheme("light")
	e.Kill(3)
	p.see("Member 3 does not answer")
	p.see("not connected")
	p.picture("member-down")
}

// furnish creates what a service would have.
func (e *ensemble) furnish(t *testing.T) {
	t.Helper()
	s := e.session(1)
	for _, z := range []struct{ path, data string }{
		{"/shop", ""}, {"/shop/config", ""}, {"/shop/config/limits", `{"basket": 50, "hosts": ["a.shop.example", "b.shop.example"], "retries": 3}`},
		{"/shop/config/colours", ""}, {"/shop/orders", ""}, {"/shop/workers", ""},
	} {
		_, err := s.Create(t.Context(), z.path, []byte(z.data), embed.Persistent)
		must(t, err)
	}
	for i := range 3 {
		_, err := e.session(embed.MemberID(i+1)).Create(t.Context(), fmt.Sprintf("/shop/workers/worker-%d", i+1), nil, embed.Ephemeral)
		must(t, err)
	}
	_, err := lock.NewMutex(s, "/shop/orders/report").Lock(t.Context())
	must(t, err)
	_, err = election.New(s, "/shop/leader").Campaign(t.Context(), []byte("worker-1"))
	must(t, err)
	done := make(chan struct{}, 3)
	for i := range embed.MemberID(2) {
		other := e.session(i + 2)
		go func() { _, _ = lock.NewMutex(other, "/shop/orders/report").Lock(t.Context()); done <- struct{}{} }()
	}
	candidate := e.session(2)
	go func() {
		_, _ = election.New(candidate, "/shop/leader").Campaign(t.Context(), []byte("worker-2"))
		done <- struct{}{}
	}()
	t.Cleanup(func() {
		for range cap(done) {
			<-done
		}
	})
}

// picture takes a picture for the docs.
func (p *tab) picture(name string) {
	p.t.Helper()
	a, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	must(p.t, err)
	const most = 100 << 10
	if len(a.Data) == 0 || len(a.Data) > most {
		p.t.Errorf("the picture %s has %d bytes, want at most %d", name, len(a.Data), most)
	}
	file := filepath.Join("../../../docs/admin", name+".png")
	if *update {
		must(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(p.t, os.WriteFile(file, a.Data, 0o644))
	}
	if _, err := os.Stat(file); err != nil {
		p.t.Errorf("docs/admin.md shows it: %v", err)
	}
}
