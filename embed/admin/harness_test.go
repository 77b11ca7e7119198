package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// as authorises a request by its header As: a role, or a role and a user of the scheme digest.
func as(r *http.Request) (admin.Grant, error) {
	role, user, _ := strings.Cut(r.Header.Get("As"), "/")
	if role == "" {
		return admin.Grant{}, admin.ErrUnauthorized
	}
	g := admin.Grant{Name: "test", Role: admin.Role(role)}
	if user != "" {
		g.Identities = []embed.Auth{{Scheme: "digest", Credential: []byte(user + ":secret")}}
	}
	return g, nil
}

// a request of a test. Its zero fields mean GET, the role editor and the host localhost.
type request struct {
	method, path, role, body string
	header                   map[string]string
	gone                     time.Duration // after which the caller goes away; zero: never
}

// an answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) outcome() string { return a.header.Get("Vivarium-Outcome") }

// json reads the body into v.
func (a answer) json(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

func (r request) send(h http.Handler) answer {
	if r.method == "" {
		r.method = http.MethodGet
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	q := httptest.NewRequest(r.method, "http://localhost"+r.path, body)
	q.Header.Set("As", "editor")
	if r.role != "" {
		q.Header.Set("As", r.role)
	}
	for name, value := range r.header {
		if name == "Host" {
			q.Host = value
		}
		q.Header.Set(name, value)
	}
	if r.gone > 0 {
		ctx, cancel := context.WithTimeout(q.Context(), r.gone)
		defer cancel()
		q = q.WithContext(ctx)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return answer{w.Code, w.Result().Header, w.Body.String()}
}

// query writes parameters: names and values in turn.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}

func znode(path string, more ...string) string {
	return "/v1/znode" + query(append([]string{"path", path}, more...)...)
}

// want fails the test if a status differs.
func (a answer) want(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("the status is %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// inBubble runs fn with an ensemble and a handler of its member 1, in virtual time.
func inBubble(t *testing.T, members int, o admin.Options, fn func(t *testing.T, ens *embedtest.Ensemble, h http.Handler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, members, embedtest.Options{})
		ens.Until("health to say so", func() bool { return ens.Node(1).Health().Ready })
		if o.Authorize == nil {
			o.Authorize = as
		}
		h, err := admin.New(ens.Node(1), o)
		must(t, err)
		fn(t, ens, h)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hexOf(id embed.SessionID) string { return fmt.Sprintf("%#x", uint64(id)) }
