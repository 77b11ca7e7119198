package transport

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// A connection that is closed no longer looks at the peer's certificate, even if it is closed while
// its handshake ends, or while it looks. It would stay in memory until the certificate's end.
func TestSecureConn_ClosedWhileItLooks(t *testing.T) {
	config := memberTLS(t, testkit.NewAuthority(t, "authority"))
	l, err := TCP("127.0.0.1:0", certs.Fixed(config), false).Listen()
	testkit.Must(t, err)
	defer l.Close()
	served := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.(*secureConn).HandshakeContext(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
		served <- conn
	}()
	dialled, err := TCP("", certs.Fixed(config), false).Dial(t.Context(), Target{Address: l.Addr().String()})
	testkit.Must(t, err)
	for what, conn := range map[string]net.Conn{"dialled": dialled, "served": <-served} {
		c := conn.(*secureConn)
		cut(c)
		c.look() // its timer has run out just before
		if c.ends.Load().Stop() {
			t.Errorf("%s: it looks again after its end", what)
		}
		c.lookOn() // its handshake ends
		if c.ends.Load().Stop() {
			t.Errorf("%s: it begins to look after its end", what)
		}
	}
}

// M168: a function of the service's tls.Config panics, ends its goroutine or hangs, for a stranger and
// for a dial of its own. The process goes on, others are served, and Close does not wait.
func TestTLS_FunctionsThatAreFaulty(t *testing.T) {
	for what, fault := range map[string]func(over chan struct{}){
		"panicked at tls_test.go":          func(chan struct{}) { panic("a defect of the service") },
		"called runtime.Goexit":            func(chan struct{}) { runtime.Goexit() },
		"the handshake of TLS has not ret": func(over chan struct{}) { <-over },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			over, mesh, book := make(chan struct{}), transporttest.NewMesh(), &logbook{}
			a := testkit.NewAuthority(t, "authority")
			on := func(member uint64, c *tls.Config) Network {
				return Over(TCP("", certs.Fixed(c), false), mesh.Network(member))
			}
			config, sound := memberTLS(t, a), memberTLS(t, a)
			config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				if h.ServerName == "stranger.test" {
					fault(over)
				}
				return nil, nil
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				fault(over)
				return nil, nil
			}
			serving := func(member uint64, c *tls.Config) *Transport {
				n := on(member, c)
				l, err := n.Listen()
				testkit.Must(t, err)
				tr := New(Options{Self: nobody(), Network: n, Listener: l, Answer: echo, Logger: slog.New(book)})
				testkit.Must(t, tr.Open())
				return tr
			}
			faulty, other := serving(1, config), serving(2, sound)
			conn, err := mesh.Network(9).Dial(t.Context(), Target{Member: 1})
			testkit.Must(t, err)
			stranger := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "stranger.test"})
			if err := stranger.HandshakeContext(t.Context()); err == nil {
				t.Errorf("%s: a stranger got in", what)
			}
			until(t, what, func() bool { return strings.Contains(book.String(), what) })
			to := func(member int) Target {
				return Target{Address: fmt.Sprintf("member-%d.test:1", member), Host: "127.0.0.1"}
			}
			if _, err := other.Ask(t.Context(), to(1), []byte("?")); err != nil {
				t.Errorf("%s: others are not served: %v", what, err)
			}
			if _, err := faulty.Ask(t.Context(), to(2), []byte("?")); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: its own dial: %v", what, err)
			}
			again, err := mesh.Network(9).Dial(t.Context(), Target{Member: 1})
			testkit.Must(t, err)
			go func() {
				_ = tls.Client(again, &tls.Config{InsecureSkipVerify: true, ServerName: "stranger.test"}).HandshakeContext(t.Context())
			}()
			<-time.After(time.Second) // it is at work
			begun := time.Now()
			faulty.Close()
			if took := time.Since(begun); took >= handshakeTimeout/2 {
				t.Errorf("%s: Close took %v", what, took)
			}
			other.Close()
			close(over)
		})
	}
}
