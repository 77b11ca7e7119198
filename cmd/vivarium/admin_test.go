//go:build unix

package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The key admin opens a port that answers those who have a token, over a real connection.
func TestServe_Admin(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "tokens"), fmt.Appendf(nil, "ops editor %x\n", sha256.Sum256([]byte("secret"))), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"),
		[]byte("dir: data\ngateway: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0, tokensFile: tokens, openProbes: true}\n"), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	p.Says("msg=serving")
	m := regexp.MustCompile(`address=(\S+)$`).FindStringSubmatch(p.Line("msg=\"admin serves\""))
	if m == nil {
		t.Fatal("it does not say where the admin handler answers")
	}
	ask := func(method, path, token, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+m[1]+path, strings.NewReader(body))
		must(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		a, err := http.DefaultClient.Do(r)
		must(t, err)
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		must(t, err)
		return a.StatusCode, string(text)
	}
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/v1/status", "", 401}, {"GET", "/v1/status", "wrong", 401}, {"GET", "/v1/status", "secret", 200},
		{"GET", "/livez", "", 200}, {"GET", "/metrics", "", 200}, {"POST", "/v1/znode?path=/a", "secret", 201}, {"GET", "/v1/znode?path=/a", "secret", 200},
		{"GET", "/commands/ruok", "secret", 404},
	} {
		if status, text := ask(c.method, c.path, c.token, "one"); status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, status, c.status, text)
		}
	}
	if _, text := ask("GET", "/metrics", "", ""); !strings.Contains(text, "vivarium_gateway_") {
		t.Error("the metrics are not those of the gateway too")
	}
	// A follow that is under way does not keep the server from stopping.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m[1]+"/v1/follow?path=/", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer secret")
	follow, err := http.DefaultClient.Do(r)
	must(t, err)
	defer follow.Body.Close()
	if !follow.Close {
		t.Error("the connection of a stream would be used again, with the stream's deadline")
	}
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Errorf("it ended with %d", code)
	}
}
