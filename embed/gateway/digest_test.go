package gateway

import (
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The example of RFC 2831, section 4.
func TestDigest_ExampleOfTheRFC(t *testing.T) {
	d := digest{secret: md5.Sum([]byte("chris:elwood.innosoft.com:secret")), nonce: "OA6MG9tEQGm2hh", cnonce: "OA6MHXh6VqTrRk", uri: "imap/elwood.innosoft.com"}
	if got := d.value("AUTHENTICATE"); got != "d388dad90d4bbd760a152321f2143af7" {
		t.Errorf("response: %s", got)
	}
	if got := d.value(""); got != "ea40f60335c427b5527b84dbabcdfffd" {
		t.Errorf("rspauth: %s", got)
	}
}

// people are the users of the tests.
var people = map[string]string{"alice": "secret of alice", `b"o\b`: "secret of bob"}

func peoplesHA1(user string) ([16]byte, bool) {
	password, ok := people[user]
	return HA1(user, password), ok
}

func challenged(t testing.TB) (x Exchange, nonce string) {
	t.Helper()
	x = DigestMD5(peoplesHA1).Begin(nil)
	reply, name, done, err := x.Next(nil)
	if err != nil || done || name != "" {
		t.Fatalf("%q, %q, %v, %v", reply, name, done, err)
	}
	return x, nonceOf(t, reply)
}

func nonceOf(t testing.TB, challenge []byte) string {
	t.Helper()
	d, err := parseDirectives(string(challenge))
	if err != nil || d["realm"] != digestRealm || d["algorithm"] != "md5-sess" || d["charset"] != "utf-8" || len(d["nonce"]) < 22 || len(d) != 4 {
		t.Fatalf("challenge %q: %v, %v", challenge, d, err)
	}
	return d["nonce"]
}

// A proof is what a client's response says. Its fields are as they are sent.
type proof struct {
	user, password, nonce          string
	realm, cnonce, nc, uri, method string
	more                           string // directives
}

func proofOf(user, nonce string) proof {
	return proof{user: user, password: people[user], nonce: nonce, realm: digestRealm, cnonce: "c", nc: "00000001", uri: digestURI, method: "AUTHENTICATE"}
}

// hash is written apart from what it tests.
func (p proof) hash(method string) string {
	hex := func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
	ha1 := md5.Sum([]byte(p.user + ":" + p.realm + ":" + p.password))
	authzid := ""
	if _, id, ok := strings.Cut(p.more, "authzid="); ok {
		authzid = ":" + strings.Trim(id, `"`)
	}
	return hex(strings.Join([]string{hex(string(ha1[:]) + ":" + p.nonce + ":" + p.cnonce + authzid), p.nonce, p.nc, p.cnonce, "auth", hex(method + ":" + p.uri)}, ":"))
}

func (p proof) String() string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	s := fmt.Sprintf(`username=%s,realm=%s,nonce=%s,cnonce=%s,nc=%s,digest-uri=%s,response=%s`,
		quote(p.user), quote(p.realm), quote(p.nonce), quote(p.cnonce), p.nc, quote(p.uri), p.hash(p.method))
	if p.more != "" {
		s += "," + p.more
	}
	return s
}

// A right response is accepted in every form that RFC 2831 allows, and the answer proves that the
// server knows the password too.
func TestDigest_Accepts(t *testing.T) {
	for name, form := range map[string]func(p *proof) string{
		"plain": func(p *proof) string { return p.String() },
		"of Java": func(p *proof) string {
			p.more = `charset=utf-8,maxbuf=65536,qop=auth,authzid="alice"`
			return p.String()
		},
		"with a qop":        func(p *proof) string { p.more = "qop=auth"; return p.String() },
		"a quoted qop":      func(p *proof) string { p.more = `qop="auth"`; return p.String() },
		"unknown keys":      func(p *proof) string { p.more = `x-y=z,a=",\",="`; return p.String() },
		"another case":      func(p *proof) string { p.uri = "ZooKeeper/ZK-SASL-md5"; return p.String() },
		"spaces and commas": func(p *proof) string { return ", ,\r\n " + strings.ReplaceAll(p.String(), ",", " , ,\t") + " ," },
		"keys in capitals":  func(p *proof) string { return strings.Replace(p.String(), "username", "UserName", 1) },
		"hex in capitals": func(p *proof) string {
			head, hash, _ := strings.Cut(p.String(), "response=")
			return head + "response=" + strings.ToUpper(hash)
		},
		"another user": func(p *proof) string {
			p.user, p.password = `b"o\b`, people[`b"o\b`]
			return p.String()
		},
	} {
		x, nonce := challenged(t)
		p := proofOf("alice", nonce)
		token := form(&p)
		reply, who, done, err := x.Next([]byte(token))
		if err != nil || !done || who != p.user || string(reply) != "rspauth="+p.hash("") {
			t.Errorf("%s: %q, %q, %v, %v\n%s", name, reply, who, done, err, token)
		}
		if _, who, done, err := x.Next([]byte(token)); err == nil || done || who != "" {
			t.Errorf("%s: a second time: %q, %v", name, who, done)
		}
	}
}

// Responses that real clients gave to the challenge with one nonce. Each time the user was alice.
func TestDigest_OfClients(t *testing.T) {
	const nonce = "OA6MG9tEQGm2hh"
	for client, token := range map[string]string{
		"Java 17":           `charset=utf-8,username="alice",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",nc=00000001,cnonce="GG35wOMzzDJohYM+I1T/l+UGsnBDTAE836Xw7Z75",digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=cbeed27b297d18223b086358d831fcdf,qop=auth,authzid="alice"`,
		"pure-sasl 0.5.1":   `qop=auth,realm="zk-sasl-md5",username="alice",nonce="OA6MG9tEQGm2hh",cnonce="1842318091683549",nc=00000001,digest-uri="zookeeper/zk-sasl-md5",response=2759e0247e700677662fc928775bd8b4`,
		"Cyrus SASL 2.1.28": `username="alice",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",cnonce="bfUZ0lZM3f+jH1gJlx2RyxHQcZZVxvXZpgqlqdskjvU=",nc=00000001,qop=auth,digest-uri="zookeeper/zk-sasl-md5",response=c20a31755bc6a448af8c56df7c4214a3`,
	} {
		x := &digestExchange{ha1: peoplesHA1, nonce: nonce, step: 1}
		if _, who, done, err := x.Next([]byte(token)); err != nil || !done || who != "alice" {
			t.Errorf("%s: %q, %v, %v", client, who, done, err)
		}
	}
}

// badProofs are responses that prove nothing.
var badProofs = map[string]func(p *proof) string{
	"wrong password":          func(p *proof) string { p.password = "guess"; return p.String() },
	"no password":             func(p *proof) string { p.password = ""; return p.String() },
	"unknown user":            func(p *proof) string { p.user = "mallory"; return p.String() },
	"a user of another case":  func(p *proof) string { p.user = "Alice"; return p.String() },
	"no user":                 func(p *proof) string { p.user = ""; return p.String() },
	"a username not in UTF-8": func(p *proof) string { p.user = "al\xffice"; return p.String() },
	"a nonce of its own":      func(p *proof) string { p.nonce = "mine"; return p.String() },
	"a later nonce count":     func(p *proof) string { p.nc = "00000002"; return p.String() },
	"another realm":           func(p *proof) string { p.realm = "zookeeper"; return p.String() },
	"no realm":                func(p *proof) string { p.realm = ""; return p.String() },
	"a digest-uri of another": func(p *proof) string { p.uri = "zookeeper/localhost"; return p.String() },
	"a service of another":    func(p *proof) string { p.uri = "imap/zk-sasl-md5"; return p.String() },
	"no cnonce":               func(p *proof) string { p.cnonce = ""; return p.String() },
	"another method":          func(p *proof) string { p.method = ""; return p.String() },
	"for another":             func(p *proof) string { p.more = `authzid="root"`; return p.String() },
	"for nobody":              func(p *proof) string { p.more = `authzid=""`; return p.String() },
	"integrity":               func(p *proof) string { p.more = "qop=auth-int"; return p.String() },
	"another charset":         func(p *proof) string { p.more = "charset=latin-1"; return p.String() },
	"a directive twice":       func(p *proof) string { p.more = `username="alice"`; return p.String() },
	"a quote that is open":    func(p *proof) string { p.more = `x="`; return p.String() },
	"a backslash at the end":  func(p *proof) string { p.more = `x="\`; return p.String() },
	"a key without a value":   func(p *proof) string { p.more = "x"; return p.String() },
	"an empty value":          func(p *proof) string { p.more = "x="; return p.String() },
	"an empty key":            func(p *proof) string { p.more = "=x"; return p.String() },
	"no comma":                func(p *proof) string { p.more = `x="y"z=1`; return p.String() },
	"a NUL behind it":         func(p *proof) string { return p.String() + "\x00" },
	"nothing":                 func(p *proof) string { return "" },
	"a cut hash":              func(p *proof) string { s := p.String(); return s[:len(s)-1] },
	"5 KB":                    func(p *proof) string { p.more = `x="` + strings.Repeat("x", 5000) + `"`; return p.String() },
	"not a response":          func(p *proof) string { return "rspauth=" + p.hash("") },
}

// A bad response is refused, and the right one after it, too: a nonce counts once.
func TestDigest_Refuses(t *testing.T) {
	for name, form := range badProofs {
		x, nonce := challenged(t)
		p := proofOf("alice", nonce)
		right := p.String()
		reply, who, done, err := x.Next([]byte(form(&p)))
		if err == nil || done || who != "" || reply != nil {
			t.Errorf("%s: %q, %q, %v", name, reply, who, done)
			continue
		}
		if strings.Contains(err.Error(), p.hash(p.method)) || strings.Contains(err.Error(), "guess") || strings.Contains(err.Error(), "mallory") {
			t.Errorf("%s: the log gets %q", name, err)
		}
		if _, _, done, err := x.Next([]byte(right)); err == nil || done {
			t.Errorf("%s: accepted afterwards", name)
		}
	}
	for n, bad := range map[int]bool{digestTokenMax: false, digestTokenMax + 1: true} {
		if _, _, _, err := DigestMD5(peoplesHA1).Begin(nil).Next(make([]byte, n)); (err != nil) != bad {
			t.Errorf("a first token of %d bytes: %v", n, err)
		}
	}
	x, nonce := challenged(t)
	token := proofOf("alice", nonce).String()
	if pad := digestTokenMax - len(token) - len(",x="); pad > 0 {
		token += ",x=" + strings.Repeat("x", pad)
	}
	if _, _, done, err := x.Next([]byte(token)); err != nil || !done {
		t.Errorf("a response of %d bytes: %v", len(token), err)
	}
}

// What one exchange accepts, no other does.
func TestDigest_Replay(t *testing.T) {
	x, nonce := challenged(t)
	token := []byte(proofOf("alice", nonce).String())
	if _, _, done, err := x.Next(token); err != nil || !done {
		t.Fatal(err)
	}
	seen := map[string]bool{nonce: true}
	for range 1000 {
		y, nonce := challenged(t)
		if seen[nonce] {
			t.Fatalf("nonce %s comes again", nonce)
		}
		seen[nonce] = true
		if _, _, done, err := y.Next(token); err == nil || done {
			t.Fatal("a replay is accepted")
		}
	}
}

// An unknown user and a wrong password cannot be told apart by what is computed.
func TestDigest_UnknownUserIsComputed(t *testing.T) {
	x, nonce := challenged(t)
	p := proofOf("nobody", nonce)
	hex := func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
	// The proof that fits the zero HA1, which stands in for that of an unknown user.
	zero := hex(strings.Join([]string{hex(string(make([]byte, 16)) + ":" + nonce + ":c"), nonce, p.nc, "c", "auth", hex("AUTHENTICATE:" + digestURI)}, ":"))
	token := strings.Replace(p.String(), p.hash(p.method), zero, 1)
	if _, _, done, err := DigestMD5(func(string) (h [16]byte, ok bool) { return h, false }).Begin(nil).Next(nil); done || err != nil {
		t.Fatal(err)
	}
	if _, _, done, err := x.Next([]byte(token)); !errors.Is(err, errDigestUser) || done {
		t.Errorf("%v, %v", done, err)
	}
}

func FuzzDigest(f *testing.F) {
	const nonce = "n"
	for _, form := range badProofs {
		p := proofOf("alice", nonce)
		f.Add([]byte(form(&p)))
	}
	p := proofOf("alice", nonce)
	f.Add([]byte(p.String()))
	f.Fuzz(func(t *testing.T, token []byte) {
		x := &digestExchange{ha1: peoplesHA1, nonce: nonce, step: 1}
		reply, who, done, err := x.Next(token)
		if done != (err == nil) || done != (who != "") || done != (reply != nil) {
			t.Fatalf("%q, %q, %v, %v", reply, who, done, err)
		}
		list, malformed := parseDirectives(string(token))
		if malformed != nil {
			if done {
				t.Fatal("accepted what is malformed")
			}
			return
		}
		if done {
			p := proofOf(who, nonce)
			p.cnonce, p.uri = list["cnonce"], list["digest-uri"]
			if id, ok := list["authzid"]; ok {
				p.more = "authzid=" + id
			}
			if !strings.EqualFold(p.hash(p.method), list["response"]) && !strings.ContainsAny(who, `"`) {
				t.Fatalf("accepted %q", token)
			}
		}
		var again strings.Builder
		for _, key := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintf(&again, `%s="%s",`, key, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(list[key]))
		}
		if same, err := parseDirectives(again.String()); err != nil || !maps.Equal(list, same) {
			t.Fatalf("%q reads as %q, written again as %q: %v", list, same, again.String(), err)
		}
	})
}
