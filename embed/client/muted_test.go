package client_test

import (
	"errors"
	"net"
	"sync"
)

// A gate holds back what a server answers, and then breaks the connection.
type gate struct {
	mu    sync.Mutex
	open  chan struct{} // nil while nothing is held back
	conns []*muted
}

// shut holds answers back from now on.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// drop breaks the connections. New ones are not held back.
func (g *gate) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = nil
	for _, c := range g.conns {
		_ = c.Conn.Close()
	}
	g.conns = nil
}

type muted struct {
	net.Conn
	gate *gate
	once sync.Once
}

var errDropped = errors.New("dropped")

func (c *muted) Read(p []byte) (int, error) {
	c.once.Do(func() {
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		c.gate.conns = append(c.gate.conns, c)
	})
	n, err := c.Conn.Read(p)
	c.gate.mu.Lock()
	open := c.gate.open
	c.gate.mu.Unlock()
	if open != nil {
		<-open
		return 0, errDropped
	}
	return n, err
}
