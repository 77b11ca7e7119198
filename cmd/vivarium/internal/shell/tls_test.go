package shell

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// An issuer is an authority, or whom it has certified.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate; without a parent it is an authority's own.
func issue(t *testing.T, name string, parent *issuer, ips ...net.IP) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	by := &issuer{c, key}
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		by = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, &key.PublicKey, by.key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &issuer{cert, key}
}

func (i *issuer) write(t *testing.T, dir, name string) (certFile, keyFile, both string) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(i.key)
	check(t, err)
	var b [2]bytes.Buffer
	check(t, pem.Encode(&b[0], &pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
	check(t, pem.Encode(&b[1], &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	return put(t, dir, name+".crt", b[0].String()), put(t, dir, name+".key", b[1].String()), put(t, dir, name+".pem", b[1].String()+b[0].String())
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	check(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

var check = testkit.Must

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	authority, stranger := issue(t, "authority", nil), issue(t, "stranger", nil)
	trust, _, _ := authority.write(t, dir, "authority")
	other, _, _ := stranger.write(t, dir, "stranger")
	_, _, client := issue(t, "web", authority).write(t, dir, "client")
	for _, named := range []bool{true, false} {
		var ips []net.IP
		if named {
			ips = []net.IP{net.IPv4(127, 0, 0, 1)}
		}
		cert, key, _ := issue(t, "server", authority, ips...).write(t, dir, "server")
		g, err := gateway.Start(node(t), gateway.Config{Listen: "127.0.0.1:0",
			TLS: &gateway.TLS{CertFile: cert, KeyFile: key, ClientCAFile: trust, ClientCertRequired: true}})
		check(t, err)
		t.Cleanup(func() { _ = g.Close() })
		for _, c := range []struct {
			what, file string
			ok         bool
		}{
			{"all it needs", "zookeeper.ssl.trustStore.location=" + trust + "\nzookeeper.ssl.keyStore.location=" + client, named},
			{"no look at the name", "zookeeper.ssl.trustStore.location=" + trust + "\n zookeeper.ssl.keyStore.location = " + client +
				"\n# a comment\nzookeeper.ssl.hostnameVerification=false", true},
			{"another authority", "zookeeper.ssl.trustStore.location=" + other + "\nzookeeper.ssl.keyStore.location=" + client, false},
			{"another authority and no look at the name", "zookeeper.ssl.trustStore.location=" + other + "\nzookeeper.ssl.keyStore.location=" + client +
				"\nzookeeper.ssl.hostnameVerification=false", false},
			{"no certificate of its own", "zookeeper.ssl.trustStore.location=" + trust, false},
			{"no TLS", "zookeeper.client.secure=false", false},
		} {
			file := put(t, dir, "client.properties", "zookeeper.client.secure=true\n"+c.file+"\n")
			code, out := sh(t, "", "-server", g.Addr().String(), "-timeout", "2000", "-client-configuration", file, "whoami")
			if ok := code == 0 && strings.Contains(out, "x509: CN=web\n"); ok != c.ok || code > 1 {
				t.Errorf("%s, named %v: exit code %d\n%s", c.what, named, code, out)
			}
		}
	}
	for _, text := range []string{"zookeeper.ssl.trustStore.location=/nope", "zookeeper.ssl.keyStore.location=/nope",
		"zookeeper.ssl.keyStore.location=" + trust, "zookeeper.ssl.trustStore.location=" + put(t, dir, "store.jks", "\xfe\xed")} {
		file := put(t, dir, "bad.properties", "zookeeper.client.secure=true\n"+text+"\n")
		if code, out := sh(t, "", "-client-configuration", file, "whoami"); code != 2 || !strings.HasPrefix(out, "-client-configuration: zookeeper.ssl.") {
			t.Errorf("%s: exit code %d\n%s", text, code, out)
		}
	}
	if code, _ := sh(t, "", "-client-configuration", filepath.Join(dir, "none"), "whoami"); code != 2 {
		t.Errorf("no file: exit code %d", code)
	}
}

// Whoever asks for TLS in any way that Java reads must not be connected in plain text.
func TestTLS_IsNeverLeftOutInSilence(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"zookeeper.client.secure=true", "zookeeper.client.secure=TRUE", "zookeeper.client.secure: true", "zookeeper.client.secure true",
		" zookeeper.client.secure\t:\ttrue\r\n"} {
		if cfg, err := clientTLS(put(t, dir, "client.properties", text)); err != nil || cfg == nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
	for _, text := range []string{"", "zookeeper.client.secure=false", "#zookeeper.client.secure=true", "! zookeeper.client.secure=true", "zookeeper.client.secure=\n"} {
		if cfg, err := clientTLS(put(t, dir, "client.properties", text)); err != nil || cfg != nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
	for _, text := range []string{"zookeeper.client.secure=yes", "zookeeper.client.secure=1"} {
		if cfg, err := clientTLS(put(t, dir, "client.properties", text)); err == nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
}
