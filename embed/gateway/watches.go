package gateway

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway/internal/wire"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A place is a moment among a connection's events: those before it are told before the answer that it is of, and the answer shows no
// transaction later than Zxid.
type place struct{ Zxid tree.Zxid }

// watches are those of one connection. The reads of it arm a watch if they succeed; Exists also if there is no znode.
type watches interface {
	Get(path string) ([]byte, tree.Stat, place, error)
	Exists(path string) (tree.Stat, bool, place, error)
	Children(path string) ([]string, tree.Stat, place, error)
	Add(path string, mode wire.WatchMode) (place, error)
	Has(path string, kind wire.WatchKind) bool
	Remove(path string, kind wire.WatchKind) bool
	Reset(was *wire.Watches) (place, error) // setWatches

	Identify(who ...tree.Identity)
	Here() place                            // of an answer that was found before the call
	Take(upTo place) ([]embed.Event, error) // an error ends the connection
	Wake() <-chan struct{}                  // receives when there is something to take
	Counts() (data, children int)
	Paths() []string // whose data is watched
	End()
}

// newWatches returns the watches of a connection. Until the engine has them for clients there are none, and what asks for one is
// answered Unimplemented.
func (g *Gateway) newWatches([]tree.Identity) watches { return noWatches{g.node.Engine} }

var errNoWatches = errors.New("no watches yet")

type noWatches struct{ engine *engine.Engine }

func (w noWatches) Get(string) ([]byte, tree.Stat, place, error) {
	return nil, tree.Stat{}, w.Here(), errNoWatches
}

func (w noWatches) Exists(string) (tree.Stat, bool, place, error) {
	return tree.Stat{}, false, w.Here(), errNoWatches
}

func (w noWatches) Children(string) ([]string, tree.Stat, place, error) {
	return nil, tree.Stat{}, w.Here(), errNoWatches
}

func (w noWatches) Add(string, wire.WatchMode) (place, error) { return w.Here(), errNoWatches }
func (w noWatches) Has(string, wire.WatchKind) bool           { return false }
func (w noWatches) Remove(string, wire.WatchKind) bool        { return false }
func (w noWatches) Reset(*wire.Watches) (place, error)        { return w.Here(), errNoWatches }
func (w noWatches) Identify(...tree.Identity)                 {}
func (w noWatches) Here() place                               { return place{w.engine.Visible()} }
func (w noWatches) Take(place) ([]embed.Event, error)         { return nil, nil }
func (w noWatches) Wake() <-chan struct{}                     { return nil }
func (w noWatches) Counts() (data, children int)              { return 0, 0 }
func (w noWatches) Paths() []string                           { return nil }
func (w noWatches) End()                                      {}
