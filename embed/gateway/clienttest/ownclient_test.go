package clienttest

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
	vivarium "github.com/vivarium-go/vivarium/embed/client"
)

// ownClients returns n contenders that are sessions of package embed/client, as in processes that are
// no members.
func (e *ensemble) ownClients(n int, contends func(*embed.Session, string) contender, path string) (list []contender) {
	e.t.Helper()
	c, err := vivarium.New(vivarium.Config{Servers: slices.Collect(maps.Values(e.addrs)), SessionTimeout: sessionTimeout, Logger: slog.New(slog.DiscardHandler)})
	must(e.t, err)
	e.t.Cleanup(func() { _ = c.Close() })
	for range n {
		s, err := c.NewSession(e.t.Context(), embed.SessionOptions{})
		must(e.t, err)
		contender := contends(s, path)
		contender.who = "a client of this library"
		list = append(list, contender)
	}
	return list
}
