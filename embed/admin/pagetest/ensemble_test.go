package pagetest

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

// An ensemble is three members. The page of one of them is served.
type ensemble struct {
	*embedtest.Ensemble
	url  string
	door *gateway.Gateway // of that member
	// before is called before the handler answers a request, if it is set.
	before atomic.Pointer[func(*http.Request)]
}

// startEnsemble starts an ensemble and serves the page of member 1. The tick is longer than that of
// other tests, because a browser keeps the machine busy.
func startEnsemble(t *testing.T) *ensemble {
	t.Helper()
	e := &ensemble{Ensemble: embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.Tick = 50 * time.Millisecond
		c.Ensemble = "shop"
	}})}
	e.TransferLeadership(1)
	var err error
	e.door, err = gateway.Start(e.Node(1), gateway.Config{Listen: "127.0.0.1:0"})
	must(t, err)
	h, err := admin.New(e.Node(1), admin.Options{Authorize: tokens(t), Page: true, Gateways: []*gateway.Gateway{e.door}})
	must(t, err)
	mounted := http.StripPrefix("/vivarium", h) // as services do it
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fn := e.before.Load(); fn != nil {
			(*fn)(r)
		}
		mounted.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections() // a follow lasts as long as its connection
		server.Close()
	})
	e.url = server.URL + "/vivarium/"
	return e
}

// tokens returns an Authorize that knows a token for each role: its name.
func tokens(t *testing.T) func(*http.Request) (admin.Grant, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	var text string
	for _, role := range []string{"viewer", "operator", "editor", "backup"} {
		text += fmt.Sprintf("%s-name %s %x\n", role, role, sha256.Sum256([]byte(role)))
	}
	must(t, os.WriteFile(file, []byte(text), 0o600))
	authorize, err := admin.Tokens(file)
	must(t, err)
	return authorize
}

// open opens a view of the page in a new tab, and signs in with the token of a role.
func (e *ensemble) open(t *testing.T, role, view string) *tab {
	t.Helper()
	p := openTab(t)
	p.visit(e.url + "#" + view)
	p.signIn(role)
	return p
}

// signIn signs in. The first button is the one that the page's notice has beside the one above.
func (p *tab) signIn(role string) {
	p.t.Helper()
	p.click("button", "Sign in")
	p.find("dialog", "Sign in")
	p.fill("Token", role)
	p.press("Enter")
	p.gone("dialog", "Sign in")
	p.find("button", "Sign out "+role+"-name")
}

// session opens a session for what a test does beside the page.
func (e *ensemble) session(member embed.MemberID) *embed.Session {
	return e.Session(member, embed.SessionOptions{Timeout: time.Minute})
}

// client opens a session over a connection to the gateway.
func (e *ensemble) client(t *testing.T) *embed.Session {
	t.Helper()
	k, err := client.New(client.Config{Servers: []string{e.door.Addr().String()}})
	must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	s, err := k.NewSession(t.Context(), embed.SessionOptions{Timeout: time.Minute})
	must(t, err)
	return s
}

// children creates a znode with so many children.
func (e *ensemble) children(t *testing.T, s *embed.Session, path string, n int) {
	t.Helper()
	_, err := s.Create(t.Context(), path, nil, embed.Persistent)
	must(t, err)
	const portion = 5000
	for at := 0; at < n; at += portion {
		var ops []embed.Op
		for i := at; i < min(n, at+portion); i++ {
			ops = append(ops, embed.OpCreate(fmt.Sprintf("%s/n-%06d", path, i), nil, embed.Persistent))
		}
		_, err = s.Multi(t.Context(), ops...)
		must(t, err)
	}
}

// hex writes the id of a session as the page does.
func hex(id embed.SessionID) string { return fmt.Sprintf("%#x", uint64(id)) }
