package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/certs"
)

// A Role says what the owner of a Grant may ask for. The zero Role allows nothing.
type Role string

// The roles. Each of the first three may do what those before it may. Backup stands apart: it reads
// backups and exports, which have everything whatever ACLs say, and nothing else.
const (
	Viewer   Role = "viewer"   // sees everything that ACLs let its identities see
	Operator Role = "operator" // also ends sessions, evicts from locks, transfers leaderships
	Editor   Role = "editor"   // also writes znodes
	Backup   Role = "backup"
)

// may reports whether a role includes another one.
func (r Role) may(least Role) bool {
	rank := map[Role]int{Viewer: 1, Operator: 2, Editor: 3}
	if r == Backup || least == Backup {
		return r == least
	}
	return rank[r] > 0 && rank[r] >= rank[least]
}

func (r Role) valid() bool { return r == Viewer || r == Operator || r == Editor || r == Backup }

// A Grant says who has sent a request, and what that one may do.
type Grant struct {
	Name string // for the log: a person, or a program
	Role Role
	// Identities are what ACLs are asked as. None means what ACLs allow to world:anyone. The number
	// and the schemes are those of embed.SessionOptions.Auth.
	Identities []embed.Auth
}

// ErrUnauthorized says that a request does not prove who sends it.
var ErrUnauthorized = errors.New("not authorised")

// Open lets everybody who reaches the Handler see everything that ACLs allow to anyone, and change
// nothing. It is an Options.Authorize for a development machine, or behind something that lets
// nobody else through.
func Open(*http.Request) (Grant, error) { return Grant{Name: "anybody", Role: Viewer}, nil }

// Certificates returns an Options.Authorize that knows senders by their certificates. The key of a
// Grant is the subject of the certificate in the text of RFC 2253 that Java writes, with the last
// part of the subject first, such as "CN=ops,O=shop": that of gateway.X509. The server must have
// verified the certificate: its TLS config needs ClientCAs, and a ClientAuth of
// [crypto/tls.VerifyClientCertIfGiven] or [crypto/tls.RequireAndVerifyClientCert].
//
// A browser sends a certificate by itself. What keeps other pages from using it is that they can
// neither read answers nor pass [http.CrossOriginProtection].
func Certificates(grants map[string]Grant) func(*http.Request) (Grant, error) {
	return func(r *http.Request) (Grant, error) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			return Grant{}, fmt.Errorf("%w: a verified certificate is needed", ErrUnauthorized)
		}
		subject, err := certs.Subject(r.TLS.PeerCertificates[0].RawSubject)
		g, ok := grants[subject]
		if err != nil || !ok {
			return Grant{}, fmt.Errorf("%w: nothing is granted to %s", ErrUnauthorized, subject)
		}
		return g, nil
	}
}
