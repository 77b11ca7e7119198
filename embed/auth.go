package embed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/tree"
)

// An Auth is a credential under a scheme, as in ZooKeeper's addauth.
type Auth struct {
	Scheme     string // "digest", "ip", or one of Config.Schemes
	Credential []byte // digest: "user:password"; ip: an address
}

// A Scheme is a way to prove an identity and to name it in ACLs. Many goroutines call its methods.
//
// Transactions call all methods except Identify. So these must give the same answers on every
// member and at every start. A new scheme is given to one member after the other, by a rolling
// restart. It is in force once all members have it; until then, ACLs that name it get
// ErrInvalidACL. A scheme in force must stay: a member that lacks it does not start, or fails, and
// says which scheme it lacks.
//
// A panic of Valid, Matches or Expands counts as false. It is logged with its stack, at most once a
// minute. Like every answer, it must be the same on all members. Nothing else is contained: while a
// method does not return, its shard stands still on this member, and after [runtime.Goexit] it
// stands still until the process ends. What Go cannot recover from, such as an endless recursion,
// ends the process.
type Scheme interface {
	// Identify returns the identity that a credential proves, or why it proves none. The goroutine
	// that calls NewSession on the session's node calls Identify. A panic passes to that caller; at
	// a gateway it ends the client's connection.
	Identify(credential []byte) (id string, err error)
	// Valid reports whether an id may stand in an ACL.
	Valid(id string) bool
	// Matches reports whether an identity matches the id of an ACL.
	Matches(identity, id string) bool
	// Expands reports whether "auth" in an ACL stands for identities of this scheme.
	Expands() bool
}

// Digest returns the id that names the user of a credential "user:password" in an ACL: the user, a
// colon, and the SHA-1 of the credential in base64.
func Digest(credential string) string { return tree.Digest(credential) }

// OpenACL allows everyone everything. It is the ACL of a znode that is created without one.
func OpenACL() []ACL { return tree.OpenACL() }

// ReadACL allows everyone to read.
func ReadACL() []ACL { return tree.ReadACL() }

// CreatorACL allows everything to the session that creates the znode, under each of its identities
// except addresses.
func CreatorACL() []ACL { return tree.CreatorACL() }

// The schemes that every node knows.
const (
	digestScheme = "digest"
	ipScheme     = "ip"
	superScheme  = "super"
)

// authenticator turns credentials into identities.
type authenticator struct {
	schemes     map[string]Scheme
	superDigest string
}

// Bounds of a session's identities. Every member stores them, and each "auth" in an ACL becomes as
// many entries.
const (
	authMax       = 16
	identityMax   = 1 << 10  // bytes
	credentialMax = 64 << 10 // bytes
)

// authenticate returns the identities that the credentials prove, in order and each once.
func (a authenticator) authenticate(credentials ...inside.Credential) ([]tree.Identity, error) {
	if len(credentials) > authMax {
		return nil, fmt.Errorf("%w: %d credentials, at most %d are accepted", ErrAuthFailed, len(credentials), authMax)
	}
	var who []tree.Identity
	add := func(i tree.Identity) {
		if !slices.Contains(who, i) {
			who = append(who, i)
		}
	}
	for i, c := range credentials {
		if len(c.Credential) > credentialMax {
			return nil, fmt.Errorf("%w: Auth[%d], scheme %q: a credential of %d bytes, at most %d are accepted", ErrAuthFailed, i, c.Scheme, len(c.Credential), credentialMax)
		}
		id, err := a.prove(c)
		if err != nil {
			return nil, fmt.Errorf("%w: Auth[%d], scheme %q: %w", ErrAuthFailed, i, c.Scheme, err)
		}
		if len(id) > identityMax {
			return nil, fmt.Errorf("%w: Auth[%d], scheme %q: an identity of %d bytes, at most %d are accepted", ErrAuthFailed, i, c.Scheme, len(id), identityMax)
		}
		add(tree.Identity{Scheme: c.Scheme, ID: id})
		if c.Scheme == digestScheme && id == a.superDigest {
			add(tree.Identity{Scheme: superScheme})
		}
	}
	return who, nil
}

// prove returns the identity that a credential proves.
func (a authenticator) prove(c inside.Credential) (string, error) {
	if s := a.schemes[c.Scheme]; s != nil {
		return s.Identify(c.Credential)
	}
	switch c.Scheme {
	case digestScheme:
		return Digest(string(c.Credential)), nil // cannot fail: another password is another identity
	case ipScheme:
		if ip := string(c.Credential); !tree.BuiltinSchemes()[ipScheme].Valid(ip) || strings.Contains(ip, "/") {
			return "", fmt.Errorf("%q is not an address", c.Credential)
		}
		return string(c.Credential), nil
	}
	return "", errors.New("no such scheme")
}

// completeSchemes checks the identities and schemes of the Config, and returns the schemes that the
// tree needs.
func (c Config) completeSchemes(p *problems) tree.Schemes {
	schemes := tree.BuiltinSchemes()
	for _, name := range slices.Sorted(maps.Keys(c.Schemes)) {
		_, builtin := schemes[name]
		switch {
		case name == "" || name == "world" || name == "auth" || builtin:
			p.add("Schemes[%q]: the name is reserved", name)
		case c.Schemes[name] == nil:
			p.add("Schemes[%q] is nil", name)
		default:
			schemes[name] = c.Schemes[name]
		}
	}
	if c.SuperDigest != "" && !schemes[digestScheme].Valid(c.SuperDigest) {
		p.add("SuperDigest is not a digest: want what Digest returns for \"user:password\"")
	}
	return schemes
}
