package gateway

import (
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// watches are the watches of one connection, with the numbers of the wire. See watch.Client for the
// order of answers and events.
type watches struct{ *engine.RemoteWatches }

// newWatches returns the watches of a connection. Their events nudge it.
func (c *conn) newWatches() watches {
	w := watches{c.gate.node.Engine.WatchRemotely(0, c.identities...)}
	w.OnWake(c.nudgeFunc)
	w.OnHold(c.gate.cfg.WatchBytes, c.hold)
	return w
}

var modesOfKinds = map[wire.WatchKind][]watch.Mode{
	wire.KindChildren:   {watch.Children},
	wire.KindData:       {watch.Data},
	wire.KindAny:        {watch.Data, watch.Children, watch.Persistent, watch.Recursive},
	wire.KindPersistent: {watch.Persistent},
	wire.KindRecursive:  {watch.Recursive},
}

func (c *conn) addWatch(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	mode := watch.Persistent
	switch o.Mode {
	case wire.WatchPersistent:
	case wire.WatchRecursive:
		mode = watch.Recursive
	default:
		return c.watches.Here(), errMarshalling
	}
	if err := checkPathLength(o.Path); err != nil {
		return c.watches.Here(), err
	}
	return c.watches.Arm(o.Path, mode, nil)
}

func (c *conn) checkWatches(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	return c.ofKind(o, c.watches.Has)
}

func (c *conn) removeWatches(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	return c.ofKind(o, c.watches.Remove)
}

func (c *conn) ofKind(o *wire.Operation, find func(path string, modes ...watch.Mode) bool) (watch.Place, error) {
	modes := modesOfKinds[o.Kind]
	switch {
	case modes == nil:
		return c.watches.Here(), errMarshalling
	case !find(o.Path, modes...):
		return c.watches.Here(), errNoWatcher
	}
	return c.watches.Here(), nil
}

func (c *conn) setWatches(q *wire.Request, a *answer) error {
	w := &q.Watches
	for _, list := range [][]string{w.Data, w.Exist, w.Child, w.Persistent, w.Recursive} {
		for _, path := range list {
			if err := checkPathLength(path); err != nil {
				return c.finish(a, err)
			}
		}
	}
	was := watch.Reset{Data: q.Watches.Data, Exist: q.Watches.Exist, Children: q.Watches.Child, Persistent: q.Watches.Persistent,
		Recursive: q.Watches.Recursive, Since: tree.Zxid(max(q.Watches.Zxid, 0))}
	return c.answerArmed(a, func() (watch.Place, error) { return c.watches.Reset(was) })
}
