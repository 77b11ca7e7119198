package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

const (
	ipScheme     = "ip"
	digestScheme = "digest"
	x509Scheme   = "x509"
)

// identitiesMax bounds the identities of a connection, because every member keeps them. A client
// that asks for more gets AuthFailed. The bound allows for the address, the certificate, and the 16
// identities that package embed allows a session.
const identitiesMax = 18

// X509 returns ZooKeeper's scheme "x509". Its identity is the subject of a client's certificate in the
// text of RFC 2253 that Java writes, such as "CN=web,OU=shop,DC=example": the last part of the subject
// comes first. So ACLs of ZooKeeper name the same clients here. Two subjects that differ in anything
// are two identities. A connection with such a certificate has that identity from the start, unless
// the subject is empty or has more than 1,024 bytes. To name the identity in ACLs, set
// embed.Config.Schemes["x509"] to X509() on every member.
func X509() embed.Scheme { return x509{tree.ClientSchemes()[x509Scheme]} }

type x509 struct{ tree.Scheme }

// Identify always returns an error: text proves no certificate.
func (x509) Identify([]byte) (string, error) {
	return "", errors.New("an x509 identity comes from the certificate of a connection, never from text")
}

// ownIdentities returns the identities that come with a connection: its address and, if it was
// verified, the subject of its certificate.
func ownIdentities(sock net.Conn) []tree.Identity {
	who := []tree.Identity{{Scheme: ipScheme, ID: hostOf(sock.RemoteAddr())}}
	if t, ok := sock.(*tls.Conn); ok {
		if s := t.ConnectionState(); len(s.VerifiedChains) > 0 {
			if id, err := certs.Subject(s.PeerCertificates[0].RawSubject); err == nil && id != "" && len(id) <= nameMax {
				who = append(who, tree.Identity{Scheme: x509Scheme, ID: id})
			}
		}
	}
	return who
}

func hostOf(addr net.Addr) string {
	if a, ok := addr.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("").String()
	}
	return addr.String()
}

// authenticate returns the connection's identities together with those that an auth request proves.
func (c *conn) authenticate(auth *wire.Auth) ([]tree.Identity, error) {
	var proved []tree.Identity
	switch auth.Scheme {
	case ipScheme, x509Scheme: // the request adds nothing to the connection's own identities
		for _, i := range ownIdentities(c.sock) {
			if i.Scheme == auth.Scheme {
				proved = append(proved, i)
			}
		}
		if proved == nil {
			return nil, fmt.Errorf("the connection has no identity of scheme %q", auth.Scheme)
		}
	default:
		var err error
		if proved, err = c.gate.node.Authenticate(inside.Credential{Scheme: auth.Scheme, Credential: auth.Proof}); err != nil {
			return nil, err
		}
	}
	return c.withIdentities(proved...)
}

// withIdentities returns the connection's identities together with others that the client has
// proved.
func (c *conn) withIdentities(proved ...tree.Identity) ([]tree.Identity, error) {
	who := slices.Clone(c.identities)
	for _, i := range proved {
		if !slices.Contains(who, i) {
			who = append(who, i)
		}
	}
	if len(who) > identitiesMax {
		return nil, fmt.Errorf("more than %d identities", identitiesMax)
	}
	return who, nil
}

// setIdentities gives the session more identities. After an error the connection ends.
func (c *conn) setIdentities(who []tree.Identity) error {
	if len(who) == len(c.identities) {
		return nil
	}
	if err := c.session.SetIdentities(c.gate.ctx, who...); err != nil {
		return err
	}
	c.watches.SetIdentities(who...)
	c.identities = who
	return nil
}

// refuse queues the answer to a client that has proved nothing, and ends the connection behind it.
func (c *conn) refuse(a *answer, scheme string, cause error) error {
	if held, ok := c.gate.refusals.due(errCredential, time.Now()); ok {
		c.gate.log.Info("a client's credential was refused",
			"client", c.sock.RemoteAddr().String(), "scheme", scheme, "cause", cause, "repeated", held)
	}
	c.gate.authFailed.Add(1)
	a.reply.Err, a.last = c.refusal(scheme), true
	c.push(a)
	return errLast
}

// shownUsers returns the identities as whoAmI shows them. Of a digest it shows the user alone.
func shownUsers(who []tree.Identity) []wire.User {
	list := make([]wire.User, len(who))
	for i, id := range who {
		list[i] = wire.User{Scheme: id.Scheme, Name: id.ID}
		if id.Scheme == digestScheme {
			list[i].Name, _, _ = strings.Cut(id.ID, ":")
		}
	}
	return list
}
