package gateway

import (
	"errors"
	"fmt"
	"net"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

const saslScheme = "sasl"

// nameMax bounds the name that an exchange proves, because every member keeps it.
const nameMax = 1 << 10

// A Mechanism is a way of SASL by which clients prove who they are. Many goroutines call Begin.
type Mechanism interface {
	// Begin begins the exchange of a connection. The connection is there to be asked for its
	// address, or for the state of TLS. Begin neither reads from it nor writes to it.
	Begin(client net.Conn) Exchange
}

// An Exchange is the attempt of one connection to prove who its client is. One goroutine at a time
// calls it. A panic ends the connection.
type Exchange interface {
	// Next takes the client's next token and returns the reply to it. A nil reply is sent as null.
	// The token is at most Config.FrameSize long, may be empty, and is valid during the call only.
	//
	// If done is true, the client is name, of 1 to 1,024 bytes. An error refuses the client: it gets
	// AuthFailed, and its connection ends. The gateway logs the error, so the error has nothing of a
	// credential. Next is not called again after either.
	Next(token []byte) (reply []byte, name string, done bool, err error)
}

// SASL returns ZooKeeper's scheme "sasl", whose identity is the name that a client has proved by
// Config.SASL. To name the identity in ACLs, set embed.Config.Schemes["sasl"] to SASL() on every
// member. As in ZooKeeper, an ACL may have any id that reads as a principal of Kerberos: "alice",
// "alice@REALM" or "alice/host@REALM". Unlike in ZooKeeper, no name matches the ids of others.
func SASL() embed.Scheme { return sasl{tree.ClientSchemes()[saslScheme]} }

type sasl struct{ tree.Scheme }

// Identify always returns an error: an exchange proves the name, not a text.
func (sasl) Identify([]byte) (string, error) {
	return "", errors.New("a sasl identity comes from the exchange of a connection, never from text")
}

var (
	errSASLRequired = errors.New("the client has not authenticated by SASL")
	errSASLOver     = errors.New("a token after the end of the exchange")
)

// sasl hands a token to the exchange of the connection. Without a mechanism it answers like a
// server that has no SASL.
func (c *conn) sasl(q *wire.Request, a *answer) error {
	a.ownZxid = true
	if c.gate.cfg.SASL == nil {
		c.push(a)
		return nil
	}
	reply, who, err := c.exchangeToken(q.Data)
	if err != nil {
		return c.refuse(a, saslScheme, err)
	}
	if who != nil {
		if err := c.setIdentities(who); err != nil {
			return err
		}
		c.proved = true
		if c.gate.cfg.RequireSASL {
			if err := c.gate.known(c); err != nil {
				return err
			}
		}
	}
	a.reply.Data = reply
	a.bytes = sizeOf(&a.reply.Result)
	c.push(a)
	return nil
}

// exchangeToken returns the reply to a token. If the exchange is done, it also returns the
// connection's identities together with the one that was proved.
func (c *conn) exchangeToken(token []byte) (reply []byte, who []tree.Identity, err error) {
	if c.proved {
		return nil, nil, errSASLOver
	}
	if c.exchange == nil {
		c.exchange = c.gate.cfg.SASL.Begin(c.sock)
	}
	reply, name, done, err := c.exchange.Next(token)
	if err != nil || !done {
		return reply, nil, err
	}
	if name == "" || len(name) > nameMax {
		return nil, nil, fmt.Errorf("a name of %d bytes, want 1 to %d", len(name), nameMax)
	}
	who, err = c.withIdentities(tree.Identity{Scheme: saslScheme, ID: name})
	return reply, who, err
}

// lacksSASL reports whether a request has to wait until the client has authenticated.
func (c *conn) lacksSASL(op wire.Op) bool {
	return c.gate.cfg.RequireSASL && !c.proved && op != wire.OpAuth && op != wire.OpSASL
}

// refusal returns the code for a client that has proved nothing by a scheme.
func (c *conn) refusal(scheme string) wire.Code {
	if scheme == saslScheme && c.gate.cfg.RequireSASL {
		return wire.SessionClosedRequireSASLAuth
	}
	return wire.AuthFailed
}

// completeSASL checks the fields about SASL and reads the file of users.
func (c *Config) completeSASL() error {
	switch {
	case c.SASL != nil && c.SASLUsers != "":
		return errors.New("SASL and SASLUsers are both set: give one of them")
	case c.RequireSASL && c.SASL == nil && c.SASLUsers == "":
		return errors.New("RequireSASL needs SASLUsers, or SASL")
	}
	if ha1, ok := c.SASL.(digestMD5); ok && ha1 == nil {
		return errors.New("SASL is DigestMD5 without a function")
	}
	if c.SASLUsers == "" {
		return nil
	}
	u, err := openUsers(c.SASLUsers)
	c.SASL = u
	return err
}

// ReloadUsers reads the file of Config.SASLUsers again, and reports whether the users have changed.
// After an error the old ones stay. Without such a file it does nothing.
func (g *Gateway) ReloadUsers() (changed bool, err error) {
	u, ok := g.cfg.SASL.(*users)
	if !ok {
		return false, nil
	}
	if changed, err = u.reload(); err != nil {
		err = fmt.Errorf("gateway: reload users: %w", err)
	}
	return changed, err
}
