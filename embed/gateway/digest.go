package gateway

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode/utf8"
)

// ZooKeeper's clients have these built in, whichever server they dial.
const (
	digestRealm = "zk-sasl-md5"
	digestURI   = "zookeeper/zk-sasl-md5"
)

// digestTokenMax bounds a client's token, as in Java.
const digestTokenMax = 4096

// HA1 returns all that a server has to know of a user's password for DigestMD5: the MD5 of
// "user:zk-sasl-md5:password". It is worth as much as the password to anyone who wants to log in
// here, so keep it as secret.
//
// Use characters of ASCII only. Clients differ in how they encode others before they hash them.
func HA1(user, password string) [16]byte {
	return md5.Sum([]byte(user + ":" + digestRealm + ":" + password))
}

// DigestMD5 returns the mechanism DIGEST-MD5 of RFC 2831, as ZooKeeper's clients for Java, Python
// and C speak it. Its realm is "zk-sasl-md5". It authenticates, and protects nothing that follows.
//
// ha1 returns the HA1 of a user, or false if there is no such user. Many goroutines call ha1. While
// it waits, its client waits, and so does Gateway.Close. A panic ends the client's connection.
//
// The password does not travel. But anyone who listens can try out passwords offline, so use TLS.
// RFC 6331 calls DIGEST-MD5 historic. A user may act under the own name only.
func DigestMD5(ha1 func(user string) ([16]byte, bool)) Mechanism { return digestMD5(ha1) }

type digestMD5 func(user string) ([16]byte, bool)

func (ha1 digestMD5) Begin(net.Conn) Exchange {
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails
	return &digestExchange{ha1: ha1, nonce: base64.StdEncoding.EncodeToString(random[:])}
}

// A digestExchange sends a challenge, and judges one response to it. Its nonce counts once.
type digestExchange struct {
	ha1   digestMD5
	nonce string
	step  int // tokens that came
}

var (
	errDigestUser  = errors.New("no such user")
	errDigestProof = errors.New("wrong password")
)

// Next answers the first token with the challenge, whatever the token is. Most clients send an
// empty one. A client may also try to use an old nonce again, which no server has to accept.
func (x *digestExchange) Next(token []byte) (reply []byte, name string, done bool, err error) {
	x.step++
	if len(token) > digestTokenMax {
		return nil, "", false, fmt.Errorf("a token of %d bytes, the limit is %d", len(token), digestTokenMax)
	}
	switch x.step {
	case 1:
		return x.challenge(), "", false, nil
	case 2:
		reply, name, err = x.judge(string(token))
		return reply, name, err == nil, err
	}
	return nil, "", false, errSASLOver
}

// challenge has its directives in Java's order. It names no qop, which stands for "auth".
func (x *digestExchange) challenge() []byte {
	const form = `realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess`
	return fmt.Appendf(nil, form, digestRealm, x.nonce)
}

// judge returns the answer to a response that proves who the client is.
func (x *digestExchange) judge(response string) (reply []byte, user string, err error) {
	d, err := parseDirectives(response)
	if err != nil {
		return nil, "", err
	}
	if err := x.check(d); err != nil {
		return nil, "", err
	}
	user = d["username"]
	secret, known := x.ha1(user)
	sum := digest{secret, x.nonce, d["cnonce"], d["authzid"], d["digest-uri"]}
	want, got := sum.value("AUTHENTICATE"), strings.ToLower(d["response"])
	// Also for a user who does not exist, so that the time it takes tells nothing.
	right := subtle.ConstantTimeCompare([]byte(want), []byte(got)) == 1
	switch {
	case !known:
		return nil, "", errDigestUser // without the name, which may be a password in the wrong place
	case !right:
		return nil, "", fmt.Errorf("user %.100q: %w", user, errDigestProof)
	}
	return []byte("rspauth=" + sum.value("")), user, nil
}

// digestKeys are the directives that a response must have.
var digestKeys = []string{"username", "realm", "nonce", "cnonce", "nc", "digest-uri", "response"}

// check refuses a response that does not fit the challenge, whatever its proof.
func (x *digestExchange) check(d map[string]string) error {
	for _, key := range digestKeys {
		if d[key] == "" {
			return fmt.Errorf("the response has no %s", key)
		}
	}
	authzid, delegates := d["authzid"]
	_, hasQop := d["qop"]
	_, hasCharset := d["charset"]
	switch {
	case d["nonce"] != x.nonce:
		return errors.New("the nonce is not that of the challenge")
	case d["realm"] != digestRealm:
		return errors.New("the realm is not that of the challenge")
	case d["nc"] != "00000001":
		return errors.New("the nonce was used before")
	case hasQop && d["qop"] != "auth":
		return errors.New("the qop is not auth")
	case hasCharset && !strings.EqualFold(d["charset"], "utf-8"):
		return errors.New("the charset is not utf-8")
	case !strings.EqualFold(d["digest-uri"], digestURI):
		return fmt.Errorf("the digest-uri is not %s", digestURI)
	case delegates && authzid != d["username"]:
		return errors.New("the client wants to act for another user")
	case !utf8.ValidString(d["username"]):
		return errors.New("the username is not in UTF-8")
	}
	return nil
}

// A digest is what RFC 2831, section 2.1.2.1, computes with.
type digest struct {
	secret                      [16]byte // HA1
	nonce, cnonce, authzid, uri string
}

// value returns the response of a client, whose method is AUTHENTICATE, or of a server, which has
// none.
func (d *digest) value(method string) string {
	a1 := string(d.secret[:]) + ":" + d.nonce + ":" + d.cnonce
	if d.authzid != "" {
		a1 += ":" + d.authzid
	}
	a2 := method + ":" + d.uri
	return md5Hex(md5Hex(a1) + ":" + d.nonce + ":00000001:" + d.cnonce + ":auth:" + md5Hex(a2))
}

func md5Hex(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

var errDirectives = errors.New("the response is malformed")

// parseDirectives reads a list of key=value and key="value". Keys are returned in lower case; those
// that nobody knows are allowed. A key may come once.
func parseDirectives(s string) (map[string]string, error) {
	list := make(map[string]string)
	for {
		s = strings.TrimLeft(s, ", \t\r\n") // RFC 2831 allows empty elements
		if s == "" {
			return list, nil
		}
		key, rest, ok := strings.Cut(s, "=")
		key = strings.ToLower(strings.TrimRight(key, " \t\r\n"))
		value, rest, whole := cutValue(strings.TrimLeft(rest, " \t\r\n"))
		if _, twice := list[key]; !ok || !whole || twice || !isToken(key) {
			return nil, errDirectives
		}
		list[key] = value
		s = rest
	}
}

// cutValue returns the value at the beginning of s, and what follows: nothing, or a comma.
func cutValue(s string) (value, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		value, rest, ok = unquote(s[1:])
	} else {
		n := strings.IndexAny(s, ", \t\r\n")
		if n < 0 {
			n = len(s)
		}
		value, rest, ok = s[:n], s[n:], isToken(s[:n])
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	return value, rest, ok && (rest == "" || rest[0] == ',')
}

// unquote reads up to the quote that ends a string. A backslash stands before what it protects.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// isToken reports whether s is a token of RFC 2831.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
