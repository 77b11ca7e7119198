package shell

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	zk "github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// write writes three files: a certificate, its key, and both together.
func write(t *testing.T, dir, name string, c tls.Certificate) (certFile, keyFile, both string) {
	t.Helper()
	cert, key := testkit.PEM(t, c)
	return put(t, dir, name+".crt", string(cert)), put(t, dir, name+".key", string(key)), put(t, dir, name+".pem", string(key)+string(cert))
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	authority, stranger := testkit.NewAuthority(t, "authority"), testkit.NewAuthority(t, "stranger")
	trust, other := put(t, dir, "authority.crt", string(authority.PEM())), put(t, dir, "stranger.crt", string(stranger.PEM()))
	_, _, client := write(t, dir, "client", authority.Issue(t, func(c *x509.Certificate) { c.Subject.CommonName = "web" }))
	for _, named := range []bool{true, false} {
		cert, key, _ := write(t, dir, "server", authority.Issue(t, func(c *x509.Certificate) {
			if !named {
				c.IPAddresses = nil
			}
		}))
		g, err := gateway.Start(node(t), gateway.Config{Listen: "127.0.0.1:0", FirstFrame: patience, WriteTimeout: patience,
			TLS: &gateway.TLS{CertFile: cert, KeyFile: key, ClientCAFile: trust, ClientCertRequired: true}})
		testkit.Must(t, err)
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
			code, out := sh(t, "", "-server", g.Addr().String(), "-timeout", "60000", "-client-configuration", file, "whoami")
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

// A file that asks for TLS, in any form that Java reads, must not lead to a connection in plain
// text.
func TestTLS_IsNeverLeftOutInSilence(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"zookeeper.client.secure=true", "zookeeper.client.secure=TRUE", "zookeeper.client.secure: true", "zookeeper.client.secure true",
		" zookeeper.client.secure\t:\ttrue\r\n"} {
		if cfg, err := zk.ReadTLS(put(t, dir, "client.properties", text)); err != nil || cfg == nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
	for _, text := range []string{"", "zookeeper.client.secure=false", "#zookeeper.client.secure=true", "! zookeeper.client.secure=true", "zookeeper.client.secure=\n"} {
		if cfg, err := zk.ReadTLS(put(t, dir, "client.properties", text)); err != nil || cfg != nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
	for _, text := range []string{"zookeeper.client.secure=yes", "zookeeper.client.secure=1"} {
		if cfg, err := zk.ReadTLS(put(t, dir, "client.properties", text)); err == nil {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
	}
}
