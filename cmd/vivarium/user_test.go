//go:build unix

package main

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The line is what a file of users has, whatever ends the input.
func TestUser(t *testing.T) {
	user := func(name, input string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(t.Context(), []string{"user", name}, strings.NewReader(input), &out, &errs)
		return code, out.String(), errs.String()
	}
	want, err := gateway.UserLine("alice", "open sesame ")
	must(t, err)
	for _, input := range []string{"open sesame ", "open sesame \n", "open sesame \r\n", "open sesame \nmore\n"} {
		if code, stdout, stderr := user("alice", input); code != exitOK || stdout != want+"\n" || stderr != "" {
			t.Errorf("%q: %d, %s%s", input, code, stdout, stderr)
		}
	}
	for name, input := range map[string]string{"alice": "", "a:b": "hunter2\n", "bob": "hünter2\n", "carol": strings.Repeat("x", passwordMax) + "hunter2\n", "": "hunter2\n"} {
		if code, stdout, stderr := user(name, input); code != exitUsage || stdout != "" || stderr == "" || strings.Contains(stderr, "nter2") {
			t.Errorf("%q, %q: %d, %s%s", name, input, code, stdout, stderr)
		}
	}
}

// ACLs can name the clients that prove themselves by a certificate or by SASL, also in a backup of the
// stopped server's directory.
func TestServe_Schemes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		return filepath.Join(dir, name)
	}
	authority := testkit.NewAuthority(t, "authority")
	crt, key := testkit.PEM(t, authority.Issue(t))
	write("crt", crt)
	write("key", key)
	own, ownKey := testkit.PEM(t, authority.Issue(t, func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "web", Organization: []string{"shop"}}
	}))
	ca := write("ca", authority.PEM())
	write("users", nil)
	write("node.yaml", []byte("dir: data\ngateway: {listen: 127.0.0.1:0, tls: {certFile: crt, keyFile: key, clientCAFile: ca}, saslUsers: users}\n"))
	client := write("client", fmt.Appendf(nil, "zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location=%s\nzookeeper.ssl.keyStore.location=%s\n",
		ca, write("own", append(own, ownKey...))))
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	addr := regexp.MustCompile(`clients=(\S+)`).FindStringSubmatch(p.Says("msg=serving"))[1]
	for _, acl := range []string{"auth::cdrwa", "x509:CN=web:cdrwa", "sasl:alice:cdrwa"} {
		path := "/" + acl[:4]
		if code, _, stderr := vivarium("shell", "-client-configuration", client, "-server", addr, "create", path, "data", acl); code != exitOK {
			t.Errorf("%s: %d, %s", acl, code, stderr)
		}
	}
	if _, stdout, stderr := vivarium("shell", "-client-configuration", client, "-server", addr, "getAcl", "/auth"); !strings.Contains(stdout, "'x509,'CN=web,O=shop\n: cdrwa") {
		t.Errorf("%s%s", stdout, stderr)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Fatal(p.Log())
	}
	file := filepath.Join(dir, "file")
	mustRun(t, "", "backup", "-dir", filepath.Join(dir, "data"), file)
	if lines := mustRun(t, "", "export", file); !strings.Contains(lines, `"x509"`) || !strings.Contains(lines, `"sasl"`) {
		t.Error(lines)
	}
}

// serve reads the file of users again at SIGHUP. What it cannot use changes nothing.
func TestServe_SASLUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	line, err := gateway.UserLine("alice", "secret")
	must(t, err)
	write("users", "")
	write("node.yaml", "dir: data\ngateway: {listen: 127.0.0.1:0, saslUsers: users, requireSASL: true}\n")
	p := spawn(t, dir, "serve", "-config", "node.yaml")
	addr := regexp.MustCompile(`clients=(\S+)`).FindStringSubmatch(p.Says("msg=serving"))[1]
	write("users", line+"\n")
	p.Signal(syscall.SIGHUP)
	p.Says("the users were read again at SIGHUP")
	write("users", "alice:hunter2\n")
	p.Signal(syscall.SIGHUP)
	p.Says(`the users were not read again at SIGHUP" cause="gateway: reload users: SASLUsers \"users\": line 1:`)
	if code, _, stderr := vivarium("shell", "-server", addr, "ls", "/"); code != exitFailed {
		t.Errorf("a client without SASL: %d, %s", code, stderr)
	}
	if strings.Contains(p.Log(), "hunter2") {
		t.Error("the log has what the file has")
	}
}
