package admin_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// The page is there for everybody, with what it loads and a policy that keeps anything else out. What
// it asks for still takes a token, and without Options.Page there is none.
func TestPage(t *testing.T) {
	inBubble(t, 1, admin.Options{Authorize: as, Page: true}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		nobody := map[string]string{"As": ""}
		kinds := map[string]string{".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
		for _, name := range pageNames(t) {
			a := request{path: "/" + name, header: nobody}.send(h).want(t, http.StatusOK)
			if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, kinds[filepath.Ext(name)]) {
				t.Errorf("%s is %q", name, kind)
			}
			if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self'") {
				t.Errorf("%s has the policy %q", name, policy)
			}
		}
		a := request{path: "/", header: nobody}.send(h).want(t, http.StatusOK)
		if !strings.Contains(a.body, `src="app.js"`) {
			t.Errorf("the root is %q", a.body)
		}
		request{path: "/v1/status", header: nobody}.send(h).want(t, http.StatusUnauthorized)
		request{path: "/../admin.go", header: nobody}.send(h).want(t, http.StatusUnauthorized)
		request{path: "/", header: map[string]string{"Host": "evil.example"}}.send(h).want(t, http.StatusMisdirectedRequest)
		request{method: http.MethodPost, path: "/"}.send(h).want(t, http.StatusNotFound)
	})
	inBubble(t, 1, admin.Options{Authorize: as}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		request{path: "/"}.send(h).want(t, http.StatusNotFound)
	})
}

// The page is small, whole, and takes nothing from elsewhere. No znode's data can become markup.
func TestPage_Files(t *testing.T) {
	size, names := 0, pageNames(t)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("page", name))
		must(t, err)
		size += len(text)
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://`).Find(text); found != nil &&
			!strings.HasPrefix(string(found), "http") {
			t.Errorf("%s has %s", name, found)
		}
		for _, m := range regexp.MustCompile(`(?:from|src=|href=) ?['"]([^'"#]+)['"]`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("page", m[1])); err != nil {
				t.Errorf("%s loads %s, which is not there", name, m[1])
			}
		}
	}
	if size > 150<<10 {
		t.Errorf("the page has %d bytes", size)
	}
}

func pageNames(t *testing.T) (names []string) {
	entries, err := os.ReadDir("page")
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) == 0 {
		t.Fatal("there is no page")
	}
	return names
}
