package tree

import (
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// A Scheme is what the tree must know about an authentication scheme. Its methods are pure
// functions. Any number of goroutines may call them. They must give the same answers on every
// member and after every start, because they are part of what a transaction does. They must not
// panic: that would leave the tree in the middle of a transaction.
type Scheme interface {
	// Valid reports whether an id may stand in an ACL.
	Valid(id string) bool
	// Matches reports whether an identity of this scheme matches an ACL's id.
	Matches(identity, id string) bool
	// Expands reports whether "auth" in an ACL stands for identities of this scheme.
	Expands() bool
}

// Schemes are the schemes that can stand in ACLs, by name. The tree itself defines "world" and
// "auth": schemes given under these names are ignored, and so are nil ones. Identities of the
// scheme "super" may do everything, whatever is given under that name.
type Schemes map[string]Scheme

// BuiltinSchemes returns digest, ip and super, in a map that belongs to the caller. An identity of
// digest is a result of Digest; an identity of ip is an address. Super has identities only: no ACL
// can name it.
func BuiltinSchemes() Schemes {
	return Schemes{digestName: digestScheme{}, "ip": ipScheme{}, superScheme: noScheme{}}
}

// ClientSchemes returns the schemes by which ACLs can name what clients of a gateway prove, "sasl"
// and "x509", in a map that belongs to the caller. Unlike the built-in ones, an ensemble has them only
// if its members are given them.
func ClientSchemes() Schemes {
	return Schemes{
		"sasl": exactScheme(principal.MatchString),
		"x509": exactScheme(func(id string) bool { return strings.Contains(id, "=") }),
	}
}

// principal matches the ids that ZooKeeper's provider of "sasl" allows.
var principal = regexp.MustCompile(`^([^@]*|[^/@]*(/[^/@]*)?@[^/@]*)$`)

// An exactScheme says which ids are valid. An identity matches its own id alone.
type exactScheme func(id string) bool

func (s exactScheme) Valid(id string) bool           { return s(id) }
func (exactScheme) Matches(identity, id string) bool { return identity == id }
func (exactScheme) Expands() bool                    { return true }

// usable returns a copy without the schemes that are ignored.
func (s Schemes) usable() Schemes {
	if s == nil {
		return BuiltinSchemes()
	}
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(name string, scheme Scheme) bool {
		return scheme == nil || name == worldScheme || name == authScheme
	})
	return s
}

// Digest returns the identity of the scheme "digest" that a credential "user:password" proves: the
// user, a colon, and the SHA-1 of the whole credential in base64. It is also the id for an ACL.
func Digest(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

const digestName = "digest"

// digestScheme identifies users by the Digest of their passwords.
type digestScheme struct{}

// Valid requires two parts separated by one colon. It splits as Java does: empty parts at the end
// do not count.
func (digestScheme) Valid(id string) bool {
	return strings.Count(strings.TrimRight(id, ":"), ":") == 1
}

func (digestScheme) Matches(identity, id string) bool { return identity == id }
func (digestScheme) Expands() bool                    { return true }

// mask returns a digest id as shown to requesters who may not set the ACL.
func mask(id string) string {
	user, _, _ := strings.Cut(id, ":")
	return user + ":x"
}

// ipScheme identifies peers by their address. An ACL names an address, or a network with the number
// of bits that count.
type ipScheme struct{}

func (ipScheme) Valid(id string) bool {
	_, _, ok := parseNetwork(id)
	return ok
}

func (ipScheme) Matches(identity, id string) bool {
	network, bits, ok := parseNetwork(id)
	if !ok {
		return false
	}
	addr, ok := parseAddr(identity)
	return ok && netip.PrefixFrom(network, bits).Contains(addr) // Contains also requires the same family
}

func (ipScheme) Expands() bool { return false }

func parseNetwork(id string) (addr netip.Addr, bits int, ok bool) {
	text, length, cut := strings.Cut(id, "/")
	addr, ok = parseAddr(text)
	if !ok || !cut {
		return addr, addr.BitLen(), ok
	}
	bits, err := strconv.Atoi(length)
	return addr, bits, err == nil && bits >= 0 && bits <= addr.BitLen()
}

// parseAddr reads an IPv4 address of four numbers, which may have leading zeros, or an IPv6 address
// with neither a zone nor an embedded IPv4 address.
func parseAddr(text string) (netip.Addr, bool) {
	quad := strings.Split(text, ".")
	if len(quad) != 4 {
		addr, err := netip.ParseAddr(text)
		return addr, err == nil && addr.Zone() == ""
	}
	var b [4]byte
	for i, part := range quad {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 255 {
			return netip.Addr{}, false
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom4(b), true
}

// noScheme has identities that no ACL can name.
type noScheme struct{}

func (noScheme) Valid(string) bool           { return false }
func (noScheme) Matches(string, string) bool { return false }
func (noScheme) Expands() bool               { return false }
