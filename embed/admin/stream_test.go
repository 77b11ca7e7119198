package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// pipes is a listener whose connections hold nothing that the other side has not read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A caller who does not read an answer is given up. One who reads slowly is not, and may go on to
// use the connection.
func TestPatience(t *testing.T) {
	const patience = 30 * time.Second
	large := strings.Repeat("x", 900<<10)
	inBubble(t, 1, admin.Options{Page: true, OpenProbes: true, ZooKeeper: true}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(t.Context(), "/large", []byte(large), embed.Persistent)
		must(t, err)
		_, err = s.Create(t.Context(), "/small", nil, embed.Persistent)
		must(t, err)
		ended := make(chan struct{}, 16)
		listener := make(pipes)
		mux := http.NewServeMux()
		mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(2 * patience)
			_, _ = io.WriteString(w, "slow")
		})
		mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { ended <- struct{}{} }()
			h.ServeHTTP(w, r)
		}))
		server := &http.Server{Handler: mux}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		defer func() {
			close(listener)
			_ = server.Close()
			<-served
		}()
		dial := func() net.Conn {
			here, there := net.Pipe()
			listener <- there
			return here
		}
		write := func(c net.Conn, method, path string) {
			t.Helper()
			_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nAs: editor\r\n\r\n", method, path)
			must(t, err)
		}

		for _, q := range [][2]string{
			{"GET", znode("/large")}, {"GET", "/v1/znode?path=/large&view=data"}, {"GET", "/metrics"}, {"GET", "/v1/status"}, {"GET", "/livez"},
			{"HEAD", "/livez"}, {"GET", "/"}, {"GET", "/none"}, {"GET", "/commands/mntr"}, {"DELETE", "/v1/znode?path=/small"},
		} {
			c, begun := dial(), time.Now()
			write(c, q[0], q[1])
			select {
			case <-ended:
			case <-time.After(10 * patience):
				t.Fatalf("%s %s: the caller is not given up", q[0], q[1])
			}
			if took := time.Since(begun); took < patience || took > 2*patience {
				t.Errorf("%s %s is given up after %v", q[0], q[1], took)
			}
			_ = c.Close()
		}

		c := dial()
		defer c.Close()
		in := bufio.NewReader(c)
		read := func(method, path string, pause time.Duration) (status int, body int) {
			t.Helper()
			write(c, method, path)
			a, err := http.ReadResponse(in, &http.Request{Method: method})
			must(t, err)
			if a.Close {
				t.Errorf("%s %s ends the connection", method, path)
			}
			for {
				n, err := io.CopyN(io.Discard, a.Body, 64<<10)
				if body += int(n); err != nil {
					return a.StatusCode, body
				}
				<-time.After(pause)
			}
		}
		for range 2 {
			if status, body := read("GET", "/v1/znode?path=/large&view=data", patience/2); status != 200 || body < len(large) {
				t.Errorf("read slowly: %d, %d bytes", status, body)
			}
			<-time.After(2 * patience)
			if status, body := read("HEAD", "/livez", 0); status != 200 || body != 0 {
				t.Errorf("HEAD: %d, %d bytes", status, body)
			}
			if status, body := read("GET", "/slow", 0); status != 200 || body != 4 {
				t.Errorf("another handler's answer on the connection: %d, %d bytes", status, body)
			}
		}
	})
}

// A stranger is refused before the body comes, and holds no connection of the port meanwhile.
func TestStrangers_AreRefusedBeforeTheirBody(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, _ *embedtest.Ensemble, h http.Handler) {
		listener, server := make(pipes), &http.Server{Handler: h}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		defer func() {
			close(listener)
			_ = server.Close()
			<-served
		}()
		here, there := net.Pipe()
		defer here.Close()
		listener <- there
		begun := time.Now()
		_, err := io.WriteString(here, "POST /v1/multi HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
		must(t, err)
		text, err := io.ReadAll(here)
		if took := time.Since(begun); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 401 ") || took > time.Second {
			t.Errorf("after %v: %q, %v", took, text, err)
		}
	})
}
