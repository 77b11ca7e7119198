package gateway

import (
	"crypto/tls"
	cryptox509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

func (c *client) auth(scheme, proof string) wire.Reply {
	c.t.Helper()
	q := wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: scheme, Proof: []byte(proof)}}
	c.write(raw(q))
	return c.receive(q)
}

// 3.21 and 7: identities belong to the connection, and ACLs are checked against them.
func TestAuth(t *testing.T) {
	n := startNode(t, func(c *embed.Config) { c.SuperDigest = embed.Digest("root:secret") })
	g := startOn(t, n, Config{})
	bob, other := connect(t, g), connect(t, g)
	if r := bob.auth("digest", "bob:pw"); r.Err != wire.OK || r.Zxid != 0 {
		t.Fatalf("auth: %+v", r)
	}
	mine := with(create("/bob", []byte("x"), 0), func(o *wire.Operation) { o.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}} })
	bob.must(mine)
	if r := bob.must(op(wire.OpGetACL, "/bob")); !slices.Equal(r.ACL, []wire.ACL{{Perms: wire.PermAll, Scheme: "digest", ID: "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="}}) {
		t.Errorf("getACL: %+v", r.ACL)
	}
	bob.must(op(wire.OpGetData, "/bob"))
	for _, o := range []wire.Operation{op(wire.OpGetData, "/bob"), op(wire.OpExists, "/bob"), op(wire.OpSetData, "/bob"), create("/bob/x", nil, 0), op(wire.OpGetACL, "/bob")} {
		if r := other.do(o); r.Err != wire.NoAuth {
			t.Errorf("op %d of another: code %d", o.Op, r.Err)
		}
	}
	other.auth("digest", "bob:wrong") // accepted, and another identity
	if r := other.do(op(wire.OpGetData, "/bob")); r.Err != wire.NoAuth {
		t.Errorf("with a wrong password: %d", r.Err)
	}
	other.auth("digest", "bob:pw")
	other.must(op(wire.OpGetData, "/bob"))
	other.auth("ip", "1.2.3.4")
	other.auth("digest", "bob:pw")
	want := []wire.User{{Scheme: "ip", Name: "127.0.0.1"}, {Scheme: "digest", Name: "bob"}, {Scheme: "digest", Name: "bob"}}
	if r := other.must(op(wire.OpWhoAmI, "")); !slices.Equal(r.Users, want) {
		t.Errorf("whoAmI: %+v", r.Users)
	}
	root := connect(t, g)
	root.auth("digest", "root:secret")
	root.must(op(wire.OpSetData, "/bob"))
	if r := root.must(op(wire.OpWhoAmI, "")); !slices.Contains(r.Users, wire.User{Scheme: "super"}) {
		t.Errorf("whoAmI of super: %+v", r.Users)
	}
	// The address is an identity from the start.
	here := connect(t, g)
	here.must(with(create("/here", nil, 0), func(o *wire.Operation) { o.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "ip", ID: "127.0.0.0/8"}} }))
	here.must(op(wire.OpGetData, "/here"))
}

// 3.21: a credential that proves nothing ends the connection. So does one identity too many.
func TestAuthFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		for scheme, proof := range map[string]string{"nonsense": "x", wire.Null: "", "x509": "CN=me", "super": "root:secret", "world": "anyone"} {
			c := connect(t, g)
			if r := c.auth(scheme, proof); r.Err != wire.AuthFailed || r.Zxid != 0 {
				t.Errorf("%q: %+v", scheme, r)
			}
			c.endsSilently()
		}
		c := connect(t, g)
		for i := range identitiesMax {
			if r := c.auth("digest", string(rune('a'+i))); (r.Err == wire.OK) != (i < identitiesMax-1) {
				t.Errorf("identity %d: code %d", i, r.Err)
			}
		}
		c.endsSilently()
	})
}

// 7.5: over TLS a client's certificate is an identity.
func TestX509(t *testing.T) {
	ca := testkit.NewAuthority(t, "authority")
	server := ca.Issue(t)
	web := ca.Issue(t, func(c *cryptox509.Certificate) {
		c.Subject = pkix.Name{CommonName: "web", OrganizationalUnit: []string{"shop"}}
	})
	n := startNode(t, func(c *embed.Config) { c.Schemes = map[string]embed.Scheme{"x509": X509()} })
	cfg := Config{TLS: &TLS{Config: &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: ca.Pool, ClientAuth: tls.VerifyClientCertIfGiven}}}
	g := startOn(t, n, cfg)
	c := connectTLS(t, g, &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{web}})
	if r := c.must(op(wire.OpWhoAmI, "")); !slices.Contains(r.Users, wire.User{Scheme: "x509", Name: "CN=web,OU=shop"}) {
		t.Errorf("whoAmI: %+v", r.Users)
	}
	if r := c.auth("x509", ""); r.Err != wire.OK {
		t.Errorf("auth: %d", r.Err)
	}
	c.must(with(create("/web", nil, 0), func(o *wire.Operation) { o.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}} }))
	if r := c.must(op(wire.OpGetACL, "/web")); len(r.ACL) != 1 || r.ACL[0].ID != "CN=web,OU=shop" {
		t.Errorf("getACL: %+v", r.ACL)
	}
	nobody := connectTLS(t, g, &tls.Config{RootCAs: ca.Pool})
	if r := nobody.do(op(wire.OpGetData, "/web")); r.Err != wire.NoAuth {
		t.Errorf("getData without a certificate: %d", r.Err)
	}
	nobody.must(op(wire.OpCloseSession, ""))
	nobody.endsSilently()
	// A client without TLS gets no session, and a silent one is dropped.
	plain := dial(t, g)
	q := hello()
	plain.write(q.AppendFrame(nil))
	plain.ends()
	cfg.FirstFrame = 300 * time.Millisecond
	dial(t, startOn(t, n, cfg)).endsSilently()
}

// Subjects that differ, in the order of their parts or by one part more, are different identities, in
// the text that Java gives to ZooKeeper. A certificate without a subject proves nothing.
func TestX509_DistinctSubjects(t *testing.T) {
	ca := testkit.NewAuthority(t, "authority")
	n := startNode(t, func(c *embed.Config) { c.Schemes = map[string]embed.Scheme{"x509": X509()} })
	g := startOn(t, n, Config{TLS: &TLS{Config: &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t)}, ClientCAs: ca.Pool, ClientAuth: tls.VerifyClientCertIfGiven}}})
	cn, ou, dc := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 11}, asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
	for want, name := range map[string]pkix.RDNSequence{
		"CN=admin":          {{{Type: cn, Value: "admin"}}},
		"CN=admin,CN=evil":  {{{Type: cn, Value: "evil"}}, {{Type: cn, Value: "admin"}}},
		"CN=admin,OU=a":     {{{Type: ou, Value: "a"}}, {{Type: cn, Value: "admin"}}},
		"OU=a,CN=admin":     {{{Type: cn, Value: "admin"}}, {{Type: ou, Value: "a"}}},
		"DC=shop,CN=admin":  {{{Type: cn, Value: "admin"}}, {{Type: dc, Value: "shop"}}},
		"CN=admin\\,OU\\=a": {{{Type: cn, Value: "admin,OU=a"}}},
		"":                  {},
	} {
		raw, err := asn1.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		own := ca.Issue(t, func(c *cryptox509.Certificate) { c.RawSubject = raw })
		c := connectTLS(t, g, &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{own}})
		got := ""
		for _, u := range c.must(op(wire.OpWhoAmI, "")).Users {
			if u.Scheme == "x509" {
				got = u.Name
			}
		}
		if got != want {
			t.Errorf("%v is %q, want %q", name, got, want)
		}
	}
}

// The records of an audit have the address and the user of a gateway's client.
func TestAudit_OfAClient(t *testing.T) {
	records := make(chan embed.AuditRecord, 1000)
	n := startNode(t, func(c *embed.Config) { c.Audit = func(r embed.AuditRecord) { records <- r } })
	c := connect(t, startOn(t, n, Config{}))
	c.auth("digest", "bob:secret")
	c.must(create("/a", []byte("x"), 0))
	if err := n.Close(); err != nil { // waits for the records
		t.Fatal(err)
	}
	close(records)
	var ops []string
	for r := range records {
		if r.Session == 0 {
			continue
		}
		ops = append(ops, r.Op)
		if r.Client != "127.0.0.1" || r.Member != 1 || int64(r.Session) != c.SessionID {
			t.Errorf("%+v", r)
		}
		if r.Op == "create" && !slices.Equal(r.Identities, []string{"ip:127.0.0.1", "digest:bob"}) {
			t.Errorf("who: %q", r.Identities)
		}
	}
	if !slices.Equal(ops, []string{"open", "create"}) {
		t.Errorf("recorded: %q", ops)
	}
}
