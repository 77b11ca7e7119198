//go:build unix

package main

import (
	"bytes"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A credential comes from a file or the environment. One among the arguments, which everybody can
// see, is refused, and no error repeats it.
func TestAccess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	must(t, os.WriteFile(file, []byte("digest:alice:a:b\nhunter2\n"), 0o600))
	t.Setenv("CREDENTIAL", "ip:10.0.0.1")
	t.Setenv("HALF", "hunter2")
	t.Setenv("EMPTY", "")
	for _, c := range []struct{ source, scheme, proof, want string }{
		{source: "file:" + file, scheme: "digest", proof: "alice:a:b"},
		{source: "env:CREDENTIAL", scheme: "ip", proof: "10.0.0.1"},
		{source: "env:HALF", want: "want scheme:credential"},
		{source: "env:EMPTY", want: "want scheme:credential"},
		{source: "env:NONE_OF_IT", want: "there is no environment variable NONE_OF_IT"},
		{source: "file:" + dir + "/none", want: "no such file"},
		{source: "file:" + dir, want: "is a directory"},
		{source: "digest:super:hunter2", want: "everybody on the machine can see it there"},
		{source: "hunter2", want: "everybody on the machine can see it there"},
		{source: "ask", want: "no terminal"},
	} {
		var a access
		flags := flag.NewFlagSet("x", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		a.define(flags, "from-auth", "from-client-configuration", "source")
		must(t, flags.Parse([]string{"-from-auth", c.source}))
		err := a.read(strings.NewReader("hunter2"), io.Discard)
		switch {
		case c.want == "":
			if err != nil || len(a.auth) != 1 || a.auth[0].Scheme != c.scheme || string(a.auth[0].Proof) != c.proof {
				t.Errorf("%s: %v, %v", c.source, a.auth, err)
			}
		case err == nil || !strings.HasPrefix(err.Error(), "-from-auth: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: %v", c.source, err)
		}
	}
	for _, args := range [][]string{
		{"import", "-server", "127.0.0.1:1", "-auth", "digest:super:hunter2", "-"},
		{"import", "-server", "127.0.0.1:1", "-client-configuration", dir + "/none", "-"},
		{"copy", "-from", "127.0.0.1:1", "-server", "127.0.0.1:2", "-from-auth", "digest:super:hunter2"},
		{"copy", "-from", "127.0.0.1:1", "-server", "127.0.0.1:2", "-from-client-configuration", dir + "/none"},
	} {
		code, stdout, stderr := fed("", args...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "vivarium "+args[0]+": -") || strings.Contains(stderr, "hunter2") {
			t.Errorf("%v: %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// import and copy talk TLS with a server, with a certificate of their own where it wants one.
func TestAccess_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, data, 0o600))
		return name
	}
	authority := testkit.NewAuthority(t, "authority")
	cert, key := testkit.PEM(t, authority.Issue(t, func(c *x509.Certificate) { c.Subject.CommonName = "server" }))
	write("crt", cert)
	write("key", key)
	own := write("own", bytes.Join([][]byte{key, cert}, nil))
	trust := write("ca", authority.PEM())
	write("node.yaml", []byte("dir: data\ngateway: {listen: 127.0.0.1:0, tls: {certFile: crt, keyFile: key, clientCAFile: ca, clientCertRequired: true}}\n"))
	client := write("client", fmt.Appendf(nil, "zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location=%s\nzookeeper.ssl.keyStore.location=%s\n", trust, own))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	addr := regexp.MustCompile(`clients=(\S+)`).FindStringSubmatch(p.Says("msg=serving"))[1]
	mustRun(t, `{"path":"/a","text":"1"}`+"\n", "import", "-server", addr, "-client-configuration", client, "-")
	out := mustRun(t, "", "copy", "-from", addr, "-from-client-configuration", client, "-path", "/a",
		"-server", addr, "-client-configuration", client, "-as", "/b")
	if !strings.HasSuffix(out, "equal\n") {
		t.Error(out)
	}
}
