package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// An Authority signs certificates for tests.
type Authority struct {
	Cert *x509.Certificate // its own
	Pool *x509.CertPool    // holds Cert alone
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a certificate that it signed itself, after the changes.
func NewAuthority(t testing.TB, name string, changes ...func(*x509.Certificate)) *Authority {
	t.Helper()
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	for _, change := range changes {
		change(template)
	}
	key := newKey(t)
	a := &Authority{Cert: sign(t, template, template, key, key), Pool: x509.NewCertPool(), key: key}
	a.Pool.AddCert(a.Cert)
	return a
}

// Issue signs a certificate for both ends of a connection on 127.0.0.1, with the common name
// "member". The changes apply before the authority signs it.
func (a *Authority) Issue(t testing.TB, changes ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := certificate("member")
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, change := range changes {
		change(template)
	}
	key := newKey(t)
	leaf := sign(t, template, a.Cert, key, a.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return certPEM(a.Cert.Raw) }

// PEM returns a certificate and its key, as [Authority.Issue] returned them.
func PEM(t testing.TB, c tls.Certificate) (cert, key []byte) {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	Must(t, err)
	return certPEM(c.Certificate[0]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	return key
}

// certificate returns a template that is valid now.
func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// sign signs a template with the key of its parent.
func sign(t testing.TB, template, parent *x509.Certificate, own, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), by)
	Must(t, err)
	cert, err := x509.ParseCertificate(der)
	Must(t, err)
	return cert
}
