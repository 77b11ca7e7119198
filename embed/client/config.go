package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/clock"
)

// Defaults of Config.
const (
	DefaultSessionTimeout = 10 * time.Second
	DefaultRequestTimeout = 10 * time.Second
)

// Config says where the ensemble is. Only Servers is needed.
type Config struct {
	// Servers are the addresses of gateways, as host:port. One that answers is enough to begin
	// with. If the gateways have a Config.Advertise, the client learns the others from the
	// ensemble's list of members. It follows that list from then on.
	Servers []string
	// TLS encrypts and authenticates the connections. Nil means plain text, which anyone on the way
	// can read and change. An empty ServerName stands for the host of each address. The client clones
	// the Config.
	TLS *tls.Config
	// SessionTimeout is the timeout of sessions that ask for none. Zero means
	// DefaultSessionTimeout. The member bounds it: see embed.SessionOptions.
	SessionTimeout time.Duration
	// RequestTimeout bounds calls whose ctx has no deadline. Reads and Watch are not bounded by it:
	// without a deadline they wait as long as the session lasts. Zero means DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Logger gets a line when a session's connection is lost and found again. Only Close waits for it,
	// for a second. Nil means slog.Default.
	Logger *slog.Logger
	// Dial replaces the network, such as for a proxy or a test. It gets the addresses of Servers.
	// If it panics, hangs or calls [runtime.Goexit], the session tries another server, and Close
	// does not wait for it. Nil means TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Inside replaces parts of the machine that the client stands on. It is for tests of this
	// module, which alone can name its type.
	Inside *inside.ClientSeams
}

// Validate reports every problem of the Config at once.
func (c Config) Validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(c.Servers) == 0 {
		add("%s is empty: want the address of at least one gateway", "Servers")
	}
	for i, server := range c.Servers {
		if _, port, err := net.SplitHostPort(server); err != nil || port == "" {
			add("%s[%d] is %q: want host:port", "Servers", i, server)
		}
	}
	if c.SessionTimeout < 0 {
		add("%s is %v: want a positive duration", "SessionTimeout", c.SessionTimeout)
	}
	if c.RequestTimeout < 0 {
		add("%s is %v: want a positive duration", "RequestTimeout", c.RequestTimeout)
	}
	return errors.Join(problems...)
}

func (c Config) complete() Config {
	if c.SessionTimeout == 0 {
		c.SessionTimeout = DefaultSessionTimeout
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
	}
	if c.Inside == nil {
		c.Inside = &inside.ClientSeams{Clock: clock.System()}
	}
	return c
}
