package pagetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

var must = testkit.Must

// until is testkit.Until without the stacks. Instead, the end of the test logs what the page shows.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(testkit.Patience)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// The browser of all tests. It starts with the first of them.
var browser struct {
	once  sync.Once
	ctx   context.Context
	close func()
	err   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.close != nil {
		browser.close()
	}
	os.Exit(code)
}

// startBrowser starts chromium and opens its first tab, which stays empty.
func startBrowser(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.WSURLReadTimeout(testkit.Patience), chromedp.DisableGPU,
		chromedp.Flag("js-flags", "--expose-gc"), chromedp.Flag("lang", "en"), chromedp.Flag("hide-scrollbars", false))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // chromium refuses to start its sandbox as root
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	browser.ctx, browser.close = ctx, func() { cancel(); cancelAllocator() }
	browser.err = chromedp.Do(ctx)
}

// A tab is a page in a browser context of its own: it shares no storage with other tabs.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the browser complained about
}

// openTab opens an empty tab. When the test ends, it fails if the browser has complained: of an
// error that no script caught, a line of console.error, or a violation of the policy for content.
func openTab(t *testing.T) *tab {
	t.Helper()
	p := newTab(t)
	t.Cleanup(func() {
		for _, problem := range p.complaints() {
			t.Errorf("the browser complained: %s", problem)
		}
	})
	return p
}

func newTab(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: the Debian package is chromium")
	}
	browser.once.Do(func() { startBrowser(path) })
	must(t, browser.err)
	p := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	t.Cleanup(cancel)
	must(t, chromedp.Do(ctx))
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	must(t, err)
	p.size(1440, 900)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page when the test failed:\n%s", p.outline())
		}
	})
	return p
}

// listen collects what the browser complains about. Answers of the member that are errors are no
// complaint: the page shows them.
func (p *tab) listen(ev any) {
	text := ""
	switch ev := ev.(type) {
	case *log.EventEntryAdded:
		if e := ev.Entry; e.Level == log.EntryLevelError && !(e.Source == log.EntrySourceNetwork && strings.Contains(e.URL, "/v1/")) {
			text = fmt.Sprintf("%s: %s (%s:%d)", e.Source, e.Text, e.URL, e.LineNumber)
		}
	case *runtime.EventExceptionThrown:
		text = "exception: " + ev.ExceptionDetails.Text
		if o := ev.ExceptionDetails.Exception; o != nil {
			text += " " + o.Description
		}
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeAssert {
			text = "console"
			for _, arg := range ev.Args {
				text += " " + arg.Description + string(arg.Value)
			}
		}
	case *page.EventJavascriptDialogOpening:
		text = "a dialog of the browser: " + ev.Message
	}
	if text != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, text)
	}
}

func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.problems...)
}

// size makes the window as large as so many pixels.
func (p *tab) size(width, height int64) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	must(p.t, err)
}

// scheme sets what colours the reader prefers: light or dark.
func (p *tab) scheme(name string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
	must(p.t, err)
}

// visit loads a URL, and waits until the page is painted: chromium drops clicks that come before.
func (p *tab) visit(url string) {
	p.t.Helper()
	must(p.t, chromedp.Do(p.ctx, chromedp.Navigate(url)))
	_, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](
		"new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))", chromedp.EvalAwaitPromise))
	must(p.t, err)
}

// eval evaluates an expression of JavaScript that measures something. Steps do not use it.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	must(p.t, err)
	return v
}
