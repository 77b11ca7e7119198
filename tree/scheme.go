package tree

import (
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/netip"
	"strconv"
	"strings"
)

// A Scheme is what the tree must know of an authentication scheme. Its methods are pure functions that many goroutines
// call at a time, and give the same answers on every member and at every start: they are part of what a transaction does.
// They must not panic: the tree would be left in the midst of a transaction.
type Scheme interface {
	// Valid reports whether an id may stand in an ACL.
	Valid(id string) bool
	// Matches reports whether an identity of this scheme fits an ACL's id.
	Matches(identity, id string) bool
	// Expands reports whether "auth" in an ACL stands for identities of this scheme.
	Expands() bool
}

// Schemes are the schemes that can stand in ACLs, by name. The names "world" and "auth" are the tree's own; what is given
// under these, or nil, is ignored. Identities of the scheme "super" may do everything, whatever is given under it.
type Schemes map[string]Scheme

// BuiltinSchemes returns digest, ip and super, in a map that belongs to the caller. An identity of digest is what Digest
// returns, one of ip is an address. Super is for identities only, no ACL can name it.
func BuiltinSchemes() Schemes {
	return Schemes{digestName: digestScheme{}, "ip": ipScheme{}, superScheme: noScheme{}}
}

// usable returns a copy without what has no meaning.
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

// Digest returns the identity of the scheme "digest" that a credential "user:password" proves, which is also the id that
// an ACL names it by: the user, a colon, and the SHA-1 of the whole credential in base64.
func Digest(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

const digestName = "digest"

// digestScheme knows users by what Digest makes of their passwords.
type digestScheme struct{}

// Valid asks for two parts around one colon, as Java splits: empty parts at the end do not count.
func (digestScheme) Valid(id string) bool {
	return strings.Count(strings.TrimRight(id, ":"), ":") == 1
}

func (digestScheme) Matches(identity, id string) bool { return identity == id }
func (digestScheme) Expands() bool                    { return true }

// mask is what a digest id looks like to those who may not set the ACL.
func mask(id string) string {
	user, _, _ := strings.Cut(id, ":")
	return user + ":x"
}

// ipScheme knows peers by their address. An ACL names one, or a network with the number of bits that count.
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
	return ok && netip.PrefixFrom(network, bits).Contains(addr) // which also asks for the same family
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

// parseAddr reads four numbers of an IPv4 address, which may begin with zeros, or an IPv6 address that has neither a zone
// nor an IPv4 address in it.
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
