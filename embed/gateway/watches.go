package gateway

import (
	"fmt"
	"math/bits"

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

// mayArm returns why a read may not arm a watch, or nil.
func (c *conn) mayArm(path string, mode watch.Mode) error {
	if _, err := readPath(path); err != nil {
		return err
	}
	return c.roomFor(path, mode)
}

// roomFor returns an error if a watch would be one too many. Only the reader adds watches, so there
// is room until it has added this one.
func (c *conn) roomFor(path string, mode watch.Mode) error {
	more, same := 1, []watch.Mode{mode}
	switch mode {
	case watch.Persistent:
		more = 2
	case watch.Data, watch.Children:
		same = append(same, watch.Persistent)
	}
	if most := c.gate.cfg.Watches; most == 0 || c.watches.Len()+more <= most || c.watches.Has(path, same...) {
		return nil
	}
	c.gate.meters.watchesRefused.Inc()
	return errWatches
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
	if err := c.roomFor(o.Path, mode); err != nil {
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

// marksOf returns how many watches a setWatches asks for, counted as Config.Watches counts them. A
// client lists a path more than once that it watches in several ways.
func marksOf(w *wire.Watches) int {
	const data, children, below = 1, 2, 4
	marks := make(map[string]uint8)
	for _, list := range []struct {
		paths []string
		marks uint8
	}{{w.Data, data}, {w.Exist, data}, {w.Child, children}, {w.Persistent, data | children}, {w.Recursive, below}} {
		for _, path := range list.paths {
			marks[path] |= list.marks
		}
	}
	n := 0
	for _, m := range marks {
		n += bits.OnesCount8(m)
	}
	return n
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
	if most := c.gate.cfg.Watches; most > 0 && c.watches.Len()+marksOf(w) > most {
		// Java's client and C's do not look at the answer. They would wait for events for ever.
		c.gate.meters.watchesRefused.Inc()
		return fmt.Errorf("a setWatches: %v", errWatches)
	}
	was := watch.Reset{Data: q.Watches.Data, Exist: q.Watches.Exist, Children: q.Watches.Child, Persistent: q.Watches.Persistent,
		Recursive: q.Watches.Recursive, Since: tree.Zxid(max(q.Watches.Zxid, 0))}
	return c.answerArmed(a, func() (watch.Place, error) { return c.watches.Reset(was) })
}
