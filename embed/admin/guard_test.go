package admin_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// A page whose name was rebound to this address sends GETs without Origin: only the Host tells.
func TestHost_IsComparedExactly(t *testing.T) {
	inBubble(t, 1, admin.Options{Hosts: []string{"Shop.example"}}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		for host, status := range map[string]int{
			"localhost": 200, "localhost:8080": 200, "LOCALHOST:1": 200,
			"shop.example": 200, "shop.example:443": 200, "SHOP.EXAMPLE": 200,
			"127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]": 200, "[::1]:8080": 200, "10.1.2.3:80": 200, "[::ffff:10.0.0.1]:1": 200,

			"": 421, "evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "shop.example.evil.example": 421,
			"evil.example:8080": 421, "xshop.example": 421, "shop.example.": 421, "localhost.": 421,
			"127.1": 421, "2130706433": 421, "0x7f000001": 421, "127.0.0.1x": 421, "127.0.0.1:": 421, "127.0.0.1:x": 421, "127.0.0.1:1:2": 421,
			"::1": 421, "[::1": 421, "::1]": 421, "[127.0.0.1]": 421, "[evil.example]": 421, "[::1]evil.example": 421,
			"user@localhost": 421, "localhost/evil": 421, "shop.example,evil.example": 421, " localhost": 421, "localhost:80:": 421, ":80": 421,
		} {
			for _, path := range []string{"/v1/status", "/nothing"} {
				want := status
				if path == "/nothing" && status == 200 {
					want = 404
				}
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Host = host
				r.Header.Set("As", "viewer")
				r.Header.Set("X-Forwarded-Host", "localhost")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != want {
					t.Errorf("%q %s: %d, want %d", host, path, w.Code, want)
				}
			}
		}
	})
}

// No other page can make a browser change something, even if the browser authorises it by itself.
func TestOrigin_MustBeTheHost(t *testing.T) {
	trusting := http.NewCrossOriginProtection()
	must(t, trusting.AddTrustedOrigin("https://ops.example"))
	inBubble(t, 1, admin.Options{Origin: trusting}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		for _, c := range []struct {
			origin, site string
			status       int
		}{
			{"", "", 404}, {"http://localhost", "", 404}, {"http://localhost", "same-origin", 404}, {"", "none", 404},
			{"https://ops.example", "cross-site", 404},
			{"http://evil.example", "", 403}, {"http://localhost.evil.example", "", 403}, {"null", "", 403},
			{"http://localhost:8081", "", 403}, {"http://localhost", "cross-site", 403}, {"", "cross-site", 403}, {"", "same-site", 403},
			{"http://ops.example", "cross-site", 403},
		} {
			header := map[string]string{"If-Match": "*"}
			if c.origin != "" {
				header["Origin"] = c.origin
			}
			if c.site != "" {
				header["Sec-Fetch-Site"] = c.site
			}
			a := request{method: http.MethodPut, path: znode("/missing"), header: header}.send(h)
			if a.status != c.status || a.outcome() != "refused" {
				t.Errorf("origin %q, site %q: %d %s, want %d", c.origin, c.site, a.status, a.outcome(), c.status)
			}
			for name := range a.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("origin %q: the answer has %s", c.origin, name)
				}
			}
		}
	})
}

// Each path and method takes its role, and nothing less.
func TestRoles(t *testing.T) {
	roles := []string{"viewer", "operator", "editor", "backup"}
	inBubble(t, 1, admin.Options{ZooKeeper: true}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		routes := admin.Routes(h)
		for _, rt := range routes {
			for _, role := range append(roles, "", "nobody", "Viewer", "root") {
				allowed := map[string][]string{
					"viewer": {"viewer", "operator", "editor"}, "operator": {"operator", "editor"}, "editor": {"editor"}, "backup": {"backup"},
				}[rt.Role]
				may := false
				for _, a := range allowed {
					may = may || a == role
				}
				// An unknown parameter: who may ask gets 400, and nothing runs.
				r := httptest.NewRequest(rt.Method, "http://localhost"+rt.Path+"?no-such-parameter", nil)
				if r.Header.Set("As", role); role == "" {
					r.Header.Del("As")
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				want := 403
				switch {
				case may:
					want = 400
				case role == "":
					want = 401
				}
				if w.Code != want {
					t.Errorf("%s %s as %q: %d, want %d", rt.Method, rt.Path, role, w.Code, want)
				}
				if changes := rt.Method != "GET"; changes != (w.Header().Get("Vivarium-Outcome") == "refused") {
					t.Errorf("%s %s as %q: the outcome is %q", rt.Method, rt.Path, role, w.Header().Get("Vivarium-Outcome"))
				}
			}
		}
		if len(routes) < 20 {
			t.Errorf("there are %d routes", len(routes))
		}
	})
}

// What nobody asked for is refused in the same way for every path, and says nothing of the path to
// those who are not authorised.
func TestUnknownPathsAndMethods(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		for _, c := range []struct {
			method, path, role string
			status             int
		}{
			{"GET", "/v1/nothing", "", 401}, {"GET", "/v1/nothing", "viewer", 404}, {"GET", "/v1/status/", "viewer", 404},
			{"GET", "//v1/status", "viewer", 404}, {"GET", "/v1/../v1/status", "viewer", 404}, {"GET", "/commands/ruok", "viewer", 404},
			{"POST", "/v1/status", "editor", 405}, {"OPTIONS", "/v1/znode", "editor", 405}, {"GET", "/v1/multi", "editor", 405},
			{"HEAD", "/v1/status", "viewer", 200}, {"TRACE", "/v1/status", "editor", 405}, {"PATCH", "/v1/znode", "editor", 405},
			{"GET", "/v1/znode?path=%zz", "viewer", 400}, {"GET", "/v1/znode?path=/a;b", "viewer", 400}, {"GET", "/v1/znode?path=/&path=/a", "viewer", 400},
			{"GET", "/v1/znode", "viewer", 400}, {"GET", "/v1/znode?path=a", "viewer", 400}, {"GET", "/v1/znode?path=/a/", "viewer", 400},
			{"GET", "/v1/znode?path=/&view=all", "viewer", 400}, {"GET", "/v1/znode?path=/&sync=yes", "viewer", 400},
			{"GET", "/v1/znode?path=/&view=children&limit=0", "viewer", 400}, {"GET", "/v1/znode?path=/&view=children&limit=1001", "viewer", 400},
			{"GET", "/v1/session?id=7", "viewer", 400}, {"GET", "/v1/session?id=0x0", "viewer", 400}, {"GET", "/v1/session?id=0x7", "viewer", 404},
			{"GET", "/v1/sessions?after=zz", "viewer", 400}, {"GET", "/v1/recent?limit=many", "viewer", 400},
		} {
			role := c.role
			r := httptest.NewRequest(c.method, "http://localhost"+c.path, nil)
			if role != "" {
				r.Header.Set("As", role)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%s %s as %q: %d, want %d: %s", c.method, c.path, role, w.Code, c.status, w.Body)
			}
			if w.Code == 405 && w.Header().Get("Allow") == "" {
				t.Errorf("%s %s: 405 without Allow", c.method, c.path)
			}
			if w.Code == 401 && w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s: 401 without WWW-Authenticate", c.method, c.path)
			}
		}
	})
}

// Every answer tells browsers to show nothing of it as a page.
func TestHeaders(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(t.Context(), "/page", []byte("<script>alert(1)</script>"), embed.Persistent)
		must(t, err)
		for _, r := range []request{
			{path: znode("/page")}, {path: znode("/page"), header: map[string]string{"Accept": "application/octet-stream"}},
			{path: "/v1/status"}, {path: "/nothing"}, {path: "/v1/status", header: map[string]string{"Host": "evil.example"}},
		} {
			a := r.send(h)
			policy := a.header.Get("Content-Security-Policy")
			if a.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(policy, "sandbox") || !strings.Contains(policy, "default-src 'none'") ||
				a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v", r.path, a.header)
			}
			if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || strings.Contains(a.header.Get("Content-Type"), "json") && strings.Contains(a.body, "<") {
				t.Errorf("%s: a browser might show %s", r.path, a.body)
			}
		}
		a := request{path: znode("/page"), header: map[string]string{"Accept": "application/octet-stream"}}.send(h).want(t, 200)
		if a.body != "<script>alert(1)</script>" || !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("octets: %v %s", a.header, a.body)
		}
	})
}

func TestProbes(t *testing.T) {
	inBubble(t, 1, admin.Options{OpenProbes: true}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ask := func(path, role string) answer {
			r := httptest.NewRequest(http.MethodGet, "http://10.0.0.1:8080"+path, nil)
			if role != "" {
				r.Header.Set("As", role)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return answer{w.Code, w.Result().Header, w.Body.String()}
		}
		for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/v1/status": 401, "/readyz?verbose": 401} {
			if a := ask(path, ""); a.status != want {
				t.Errorf("%s: %d, want %d: %s", path, a.status, want, a.body)
			}
		}
		if a := ask("/metrics", ""); !strings.Contains(a.body, "vivarium_") {
			t.Errorf("metrics: %s", a.body)
		}
		ens.Kill(1)
		for path, want := range map[string]int{"/livez": 503, "/readyz": 503, "/metrics": 200} {
			if a := ask(path, ""); a.status != want {
				t.Errorf("after the end, %s: %d, want %d: %s", path, a.status, want, a.body)
			}
		}
		if a := ask("/readyz?verbose", "viewer"); a.status != 503 || !strings.Contains(a.body, "killed") {
			t.Errorf("after the end: %d %s", a.status, a.body)
		}
		if a := ask("/v1/status", "viewer"); a.status != 200 || !strings.Contains(a.body, "\"over\"") {
			t.Errorf("after the end: %d %s", a.status, a.body)
		}
	})
}

// An error that is no fault of the sender is no 401: a browser would ask for another password.
func TestAuthorize_Errors(t *testing.T) {
	broken := func(*http.Request) (admin.Grant, error) { return admin.Grant{}, errors.New("the directory is down") }
	inBubble(t, 1, admin.Options{Authorize: broken}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		for range 3 {
			if a := (request{path: "/v1/status"}).send(h); a.status != 503 || strings.Contains(a.body, "directory") {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
}

func TestNew_Refuses(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, _ http.Handler) {
		if _, err := admin.New(ens.Node(1), admin.Options{}); err == nil || !strings.Contains(err.Error(), "Authorize") {
			t.Error(err)
		}
		for _, host := range []string{"", "a:80", "http://a", "*.example", "a b"} {
			if _, err := admin.New(ens.Node(1), admin.Options{Authorize: as, Hosts: []string{host}}); err == nil {
				t.Errorf("%q is taken", host)
			}
		}
	})
}

func TestCertificates(t *testing.T) {
	authorize := admin.Certificates(map[string]admin.Grant{"CN=ops,O=shop": {Name: "ops", Role: admin.Operator}})
	with := func(verified bool, name string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		subject := pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "shop"}}, {{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}}}
		raw, err := asn1.Marshal(subject)
		must(t, err)
		cert := &x509.Certificate{RawSubject: raw}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if verified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
		}
		return r
	}
	if g, err := authorize(with(true, "ops")); err != nil || g.Name != "ops" {
		t.Errorf("%v %v", g, err)
	}
	for _, r := range []*http.Request{with(false, "ops"), with(true, "other"), httptest.NewRequest(http.MethodGet, "/", nil)} {
		if g, err := authorize(r); !errors.Is(err, admin.ErrUnauthorized) || g.Role != "" {
			t.Errorf("%v %v", g, err)
		}
	}
	if g, err := admin.Open(nil); err != nil || g.Role != admin.Viewer {
		t.Errorf("%v %v", g, err)
	}
}
