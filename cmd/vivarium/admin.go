package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/crowd"
)

// adminConfig says where the member answers over HTTP, and whom.
type adminConfig struct {
	Listen     string    `yaml:"listen"`
	TLS        *adminTLS `yaml:"tls"` // nil: plain text
	TokensFile string    `yaml:"tokensFile"`
	Hosts      []string  `yaml:"hosts"`
	Page       bool      `yaml:"page"`
	OpenProbes bool      `yaml:"openProbes"`
	ZooKeeper  bool      `yaml:"zooKeeper"`
}

type adminTLS struct {
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
}

// Validate reports every problem at once.
func (c *adminConfig) Validate() error {
	var problems []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		problems = append(problems, fmt.Errorf("%s is %q: want host:port, such as \"127.0.0.1:8080\"", "Listen", c.Listen))
	}
	if c.TLS != nil {
		if _, err := c.TLS.read(); err != nil {
			problems = append(problems, err)
		}
	}
	if c.TokensFile == "" {
		problems = append(problems, fmt.Errorf("%s is empty: it says who may ask; docs/admin.md has its form", "TokensFile"))
	} else if _, err := admin.Tokens(c.TokensFile); err != nil {
		problems = append(problems, fmt.Errorf("TokensFile: %w", err))
	}
	for i, name := range c.Hosts {
		if err := admin.CheckHost(name); err != nil {
			problems = append(problems, fmt.Errorf("%s[%d] %w", "Hosts", i, err))
		}
	}
	return errors.Join(problems...)
}

// read reads the certificate.
func (t *adminTLS) read() (*tls.Config, error) {
	pair, err := certs.Pair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS.CertFile %q, TLS.KeyFile %q: %w", t.CertFile, t.KeyFile, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// Bounds of the server. Requests that take long bound their own reads and writes.
const (
	adminHeader      = 10 * time.Second
	adminIdle        = 2 * time.Minute
	adminHeaderBytes = 256 << 10 // a path of 64 KiB in percent encoding

	// Connections in total and from one address. One that nobody with a token asks on makes room for a
	// newcomer.
	adminConnections           = 128
	adminConnectionsPerAddress = 64
)

// An adminServer answers over HTTP until stop is called.
type adminServer struct {
	certificates *certs.Store // nil: plain text
	stop         func()       // closes the connections too
}

// reloadTLS reads the certificate again.
func (a *adminServer) reloadTLS() (changed bool, err error) {
	if a.certificates == nil {
		return false, nil
	}
	if changed, err = a.certificates.Reload(); err != nil {
		err = fmt.Errorf("admin: reload TLS: %w", err)
	}
	return changed, err
}

// serveAdmin starts an adminServer. If c is nil, that one serves nobody.
func serveAdmin(node *embed.Node, door *gateway.Gateway, c *adminConfig, auditDir string, log *slog.Logger) (*adminServer, error) {
	if c == nil {
		return &adminServer{stop: func() {}}, nil
	}
	tokens, err := admin.Tokens(c.TokensFile)
	if err != nil {
		return nil, err
	}
	var bounded *crowd.Listener
	authorize := func(r *http.Request) (admin.Grant, error) {
		grant, err := tokens(r)
		if err == nil {
			bounded.Keep(r.Context())
		}
		return grant, err
	}
	handler, err := admin.New(node, admin.Options{Authorize: authorize, Hosts: c.Hosts, Gateways: []*gateway.Gateway{door},
		Audit: auditDir, Page: c.Page, OpenProbes: c.OpenProbes, ZooKeeper: c.ZooKeeper})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	bounded = crowd.Listen(listener, adminConnections, adminConnectionsPerAddress, func(from net.Addr) {
		log.Debug("admin connection closed: too many connections", "client", from.String())
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: adminHeader, IdleTimeout: adminIdle, MaxHeaderBytes: adminHeaderBytes, ConnState: bounded.State, ConnContext: bounded.Context,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	var store *certs.Store
	if c.TLS != nil {
		store, err = certs.New(c.TLS.read)
		if err != nil {
			cancel()
			return nil, errors.Join(err, listener.Close())
		}
		go store.Loop(log, ctx.Done())
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return store.Config(), nil }}
	}
	log.Info("admin serves", "address", listener.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		if c.TLS != nil {
			err = server.ServeTLS(bounded, "", "")
		} else {
			err = server.Serve(bounded)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin serves no more", "cause", err)
		}
	}()
	return &adminServer{store, func() {
		cancel()
		_ = server.Close()
		<-ended
	}}, nil
}
