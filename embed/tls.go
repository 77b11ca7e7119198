package embed

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
)

// TLS is mutual TLS between members: each presents a certificate that the other verifies. Set
// either Config or the three files.
type TLS struct {
	// Config serves both directions. It needs Certificates, RootCAs and ClientCAs. It is cloned for
	// each connection, so its GetCertificate and GetClientCertificate may return another
	// certificate for each.
	Config *tls.Config `yaml:"-"`
	// CertFile, KeyFile and CAFile are PEM files: this member's certificate chain and key, and the
	// authorities that sign members' certificates. A certificate must be valid for the host in
	// Config.Members and for both client and server authentication. The node reads the files at
	// Start, then once a minute, and for Node.ReloadTLS. New connections use what was read last.
	// Files that Start would refuse change nothing, and the log says so.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	CAFile   string `yaml:"caFile"`
	// Migrate lets this member also talk in plain text, with members that have no TLS. It is for the
	// change from plain text to TLS, or back, by rolling restarts: first all members with Migrate,
	// then all without. While it is set, anybody who reaches the port can speak as a member, and
	// who controls the network can keep members from using TLS. The log warns of each such peer.
	Migrate bool `yaml:"migrate"`
}

// ReloadTLS reads the files of Config.TLS again, as the node does once a minute. It reports whether
// the certificates have changed; connections that begin later use them. After an error the node
// uses what it had. Without files there is nothing to read.
func (n *Node) ReloadTLS() (changed bool, err error) {
	store := n.in().Config.TLS
	if store == nil {
		return false, nil
	}
	changed, err = store.Reload()
	return changed, opError("reload TLS", "", err)
}

// certificates returns what secures the connections between members. address is where the others
// reach this member; empty if it opens no port.
func (t *TLS) certificates(address string, p *problems) *certs.Store {
	if t.Config != nil {
		t.checkConfig(p)
		return certs.Fixed(t.Config)
	}
	files := *t
	store, err := certs.New(func() (*tls.Config, error) {
		p := &problems{}
		c := files.read(p)
		if len(p.list) == 0 && address != "" {
			files.checkCertificate(address, c.Certificates[0].Leaf, p)
		}
		return c, errors.Join(p.list...)
	})
	if err != nil {
		p.list = append(p.list, err)
	}
	return store
}

func (t *TLS) checkConfig(p *problems) {
	if t.CertFile+t.KeyFile+t.CAFile != "" {
		p.add("TLS has both a Config and files: give one of them")
	}
	if len(t.Config.Certificates) == 0 && t.Config.GetCertificate == nil || t.Config.RootCAs == nil || t.Config.ClientCAs == nil {
		p.add("TLS.Config needs Certificates, RootCAs and ClientCAs: members authenticate one another")
	}
	if t.Config.InsecureSkipVerify && t.Config.VerifyConnection == nil && t.Config.VerifyPeerCertificate == nil {
		p.add("TLS.Config has InsecureSkipVerify and verifies nothing itself: everybody would be a member")
	}
}

// read reads the files.
func (t *TLS) read(p *problems) *tls.Config {
	cert, pool := t.readPair(p), t.readAuthorities(p)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool}
}

func (t *TLS) readPair(p *problems) (cert tls.Certificate) {
	if t.CertFile == "" {
		p.add("TLS.CertFile is missing")
	}
	if t.KeyFile == "" {
		p.add("TLS.KeyFile is missing")
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return cert
	}
	cert, err := certs.Pair(t.CertFile, t.KeyFile)
	if err != nil {
		p.add("TLS.CertFile %q, TLS.KeyFile %q: %v", t.CertFile, t.KeyFile, err)
	}
	return cert
}

func (t *TLS) readAuthorities(p *problems) *x509.CertPool {
	if t.CAFile == "" {
		p.add("TLS.CAFile is missing")
		return nil
	}
	pool, err := certs.Pool(t.CAFile)
	if err != nil {
		p.add("TLS.CAFile %q: %v", t.CAFile, err)
	}
	return pool
}

// checkCertificate reports the faults for which every other member would refuse this certificate.
// Otherwise only their logs would say so. It cannot check the signature, because only the other
// members know which authorities they trust.
func (t *TLS) checkCertificate(address string, cert *x509.Certificate, p *problems) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return // another problem says so already
	}
	if cert.VerifyHostname(host) != nil {
		p.add("TLS.CertFile %q is not for %s, the host at which the others reach this member", t.CertFile, host)
	}
	if time.Now().After(cert.NotAfter) {
		p.add("TLS.CertFile %q expired at %v", t.CertFile, cert.NotAfter)
	}
	if !good(cert, x509.ExtKeyUsageClientAuth) || !good(cert, x509.ExtKeyUsageServerAuth) {
		p.add("TLS.CertFile %q is not for both clients and servers: a member is both", t.CertFile)
	}
}

// good reports whether a certificate may be used for a purpose. A certificate without any listed
// purpose may be used for all.
func good(cert *x509.Certificate, purpose x509.ExtKeyUsage) bool {
	return len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 ||
		slices.Contains(cert.ExtKeyUsage, purpose) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}
