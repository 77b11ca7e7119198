//go:build unix

package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The key admin opens a port that answers those who have a token, over a real connection.
func TestServe_Admin(t *testing.T) {
	t.Parallel()
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

// startAdmin runs a member with the admin handler, whose token is "secret", and returns its address.
func startAdmin(t *testing.T) (address string) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "tokens"), fmt.Appendf(nil, "ops viewer %x\n", sha256.Sum256([]byte("secret"))), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "node.yaml"),
		[]byte("dir: data\ngateway: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0, tokensFile: tokens, openProbes: true}\n"), 0o644))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	p.Says("msg=serving")
	return regexp.MustCompile(`address=(\S+)$`).FindStringSubmatch(p.Line("msg=\"admin serves\""))[1]
}

// Idle connections take only so many descriptors, and keep nobody from asking.
func TestServe_AdminIsBounded(t *testing.T) {
	t.Parallel()
	address := startAdmin(t)
	const many = 2*adminConnectionsPerAddress + 1
	ended := make(chan struct{}, many)
	for i := range many {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must(t, err)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if r.StatusCode != http.StatusOK {
			t.Errorf("connection %d: %s", i, r.Status)
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		}()
	}
	for range many - adminConnectionsPerAddress {
		<-ended
	}
}

// M126: parts of requests keep nobody from asking, and end nothing that somebody with a token asks for.
func TestServe_AdminServesBesideParts(t *testing.T) {
	t.Parallel()
	address := startAdmin(t)
	ask := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer secret")
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		must(t, err)
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, a.Status)
		}
		return a
	}
	follow := ask("/v1/follow?path=/")
	defer follow.Body.Close()
	for range adminConnectionsPerAddress {
		for _, part := range []string{"GET /livez HTTP/1.1\r\nHost:", "PUT /v1/znode?path=/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"} {
			conn, err := net.Dial("tcp", address)
			must(t, err)
			defer conn.Close()
			_, _ = io.WriteString(conn, part)
		}
	}
	must(t, ask("/v1/status").Body.Close())
	for lines, line := bufio.NewReader(follow.Body), "not empty"; line != "\n"; { // an empty one comes every 15 seconds
		var err error
		line, err = lines.ReadString('\n')
		must(t, err)
	}
}

// The admin server has a certificate of its own. It reads it again at SIGHUP, like the others. What
// it cannot use changes nothing.
func TestServe_AdminTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := testkit.NewAuthority(t, "authority")
	write := func(name string, data []byte) { must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600)) }
	issue := func(name string) {
		cert, key := testkit.PEM(t, authority.Issue(t, func(c *x509.Certificate) { c.Subject.CommonName = name }))
		write("crt", cert)
		write("key", key)
	}
	issue("first")
	write("tokens", fmt.Appendf(nil, "ops viewer %x\n", sha256.Sum256([]byte("secret"))))
	write("node.yaml", []byte("dir: data\nshards: 3\ngateway: {listen: 127.0.0.1:0}\n"+
		"admin: {listen: 127.0.0.1:0, tokensFile: tokens, tls: {certFile: crt, keyFile: key}}\n"))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	p.Says("msg=serving")
	m := regexp.MustCompile(`address=(\S+)$`).FindStringSubmatch(p.Line("msg=\"admin serves\""))
	if m == nil {
		t.Fatal("it does not say where the admin handler answers")
	}
	// ask returns whose certificate a new connection gets, and how many shards the status has.
	ask := func() (name string, shards int) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+m[1]+"/v1/status", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer secret")
		a, err := client.Do(r)
		must(t, err)
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK || a.ProtoMajor != 2 {
			t.Errorf("%s with %s", a.Status, a.Proto)
		}
		var status struct{ Shards []any }
		must(t, json.NewDecoder(a.Body).Decode(&status))
		return a.TLS.PeerCertificates[0].Subject.CommonName, len(status.Shards)
	}
	want := func(name string) {
		t.Helper()
		if got, shards := ask(); got != name || shards != 3 {
			t.Errorf("the certificate of %q, and %d shards", got, shards)
		}
	}
	want("first")
	issue("second")
	p.Signal(syscall.SIGHUP)
	p.Says("read again at SIGHUP\" changed=true")
	want("second")
	write("key", []byte("no key"))
	p.Signal(syscall.SIGHUP)
	if line := p.Says("not all read again at SIGHUP"); !strings.Contains(line, "admin: reload TLS") {
		t.Errorf("it does not say whose: %s", line)
	}
	want("second")
	if a, err := http.Get("http://" + m[1] + "/livez"); err == nil { // Go answers plain text with 400
		if a.Body.Close(); a.StatusCode != http.StatusBadRequest {
			t.Errorf("plain text: %s", a.Status)
		}
	}
}
