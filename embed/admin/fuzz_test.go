package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// fuzzed are the paths that a fuzzer asks for. No other path has a query or a body.
var fuzzed = []string{"/v1/znode", "/v1/acl", "/v1/multi", "/v1/import", "/v1/find", "/v1/usage", "/v1/sessions", "/v1/session", "/v1/sessions/end", "/v1/watches",
	"/v1/recent", "/v1/audit", "/v1/export", "/v1/locks", "/v1/locks/graph", "/v1/locks/revoke", "/v1/locks/evict", "/v1/leadership", "/v1/follow", "/readyz", "/none"}

// FuzzRequest sends the admin any query and any body. Nothing panics, nothing is an internal error, and
// the node lives on.
func FuzzRequest(f *testing.F) {
	methods := []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead}
	for i := range fuzzed {
		for m := range methods {
			f.Add(uint8(i), uint8(m), "path=/a&limit=1&sync=true&root=/a&id=0x1&view=data,stat", `{"path":"/a","ops":[{"op":"create","path":"/a"}]}`, "*")
		}
		f.Add(uint8(i), uint8(2), "limit=-1&after=%ff&mode=ttl&ttl=-1s&acl=world:anyone:cdrwa&existing=overwrite", "{\"path\":\"/b\"}\n[]\nnull", "\"9223372036854775808\"")
	}
	cfg := embed.Config{Dir: f.TempDir(), Tick: embedtest.DefaultTick, MaxTreeSize: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
	embedkit.Patient(&cfg)
	node, err := embed.Start(cfg)
	must(f, err)
	f.Cleanup(func() { _ = node.Close() })
	must(f, node.Ready(f.Context()))
	h, err := admin.New(node, admin.Options{Authorize: as})
	must(f, err)
	f.Fuzz(func(t *testing.T, path, method uint8, query, body, match string) {
		q := httptest.NewRequest(methods[int(method)%len(methods)], "http://localhost"+fuzzed[int(path)%len(fuzzed)], strings.NewReader(body))
		q.URL.RawQuery = query
		q.Header.Set("As", "editor")
		if match != "" {
			q.Header.Set("If-Match", match)
		}
		ctx, cancel := context.WithTimeout(q.Context(), 50*time.Millisecond) // a follow has no end
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q.WithContext(ctx))
		if w.Code == http.StatusInternalServerError && ctx.Err() == nil {
			t.Errorf("%s %s?%s: %d %s", q.Method, q.URL.Path, query, w.Code, w.Body)
		}
		request{path: "/livez"}.send(h).want(t, 200)
	})
}
