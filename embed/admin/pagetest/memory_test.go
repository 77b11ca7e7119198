package pagetest

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// 10,000 changes that are shown as they happen leave nothing behind.
func TestMemory(t *testing.T) {
	testkit.ByNight(t, "it waits until the page has shown 11,000 changes")
	e := startEnsemble(t)
	s := e.session(1)
	_, err := s.Create(t.Context(), "/counter", nil, embed.Persistent)
	must(t, err)
	// The browser keeps an accessibility tree's knowledge of every element that there was, so this
	// test does without it.
	p := openTab(t)
	p.visit(e.url)
	eval[int](p, "sessionStorage.setItem('vivarium.token', 'viewer'); 1")
	p.visit(e.url + "?#events?path=/counter")
	follow := "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Follow')"
	until(t, "the view", func() bool { return eval[bool](p, "Boolean("+follow+")") })
	eval[int](p, follow+".click(); 1")
	sent := 0
	change := func(n int) {
		t.Helper()
		for range n {
			_, err := s.Set(t.Context(), "/counter", fmt.Append(nil, sent), embed.AnyVersion)
			must(t, err)
			sent++
		}
	}
	seen := func() int {
		return eval[int](p, `Number(/Following \/counter: ([\d\u202f]+)/.exec(document.body.innerText)?.[1].replaceAll('\u202f', '') || 0)`)
	}
	until(t, "the follow to begin", func() bool { change(1); return seen() > 0 })
	missed := sent - seen()
	change(1000) // more than the page keeps
	until(t, "the first changes", func() bool { return seen() >= sent-missed })
	before := p.heap()
	const changes = 10_000
	for range 20 {
		change(changes / 20)
		// A follower that lags by too much is ended, which is another test.
		until(t, "the changes", func() bool { return seen() >= sent-missed })
	}
	after := p.heap()
	t.Logf("heap after 1,000 changes: %.0f KiB; after %d more: %.0f KiB", before/1024, changes, after/1024)
	if after > 1.5*before {
		t.Errorf("the heap has grown from %.0f to %.0f bytes", before, after)
	}
	if n := eval[int](p, "document.querySelectorAll('*').length"); n > 5000 {
		t.Errorf("the page has %d elements", n)
	}
}

// heap returns how many bytes the page's scripts and elements hold, without garbage.
func (p *tab) heap() float64 {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	must(p.t, err)
	a, err := chromedp.Call(p.ctx, runtime.GetHeapUsage, cdp.Empty{})
	must(p.t, err)
	return a.UsedSize + a.EmbedderHeapUsedSize
}
