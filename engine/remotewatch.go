package engine

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// RemoteWatches are the watches of one connection of ZooKeeper's protocol, on all shards. They are nobody's but the connection's: no
// session's end ends them, nor does the node's. Whoever has the connection calls End with its end, and keeps to the order of answers
// and events that watch.Client prescribes.
type RemoteWatches struct {
	*watch.Client

	engine *Engine
	who    atomic.Pointer[[]tree.Identity]
}

// WatchRemotely returns the watches of a connection that has shown to be the identities; there are none yet. limit bounds the events
// that may wait; see watch.NewClient.
func (e *Engine) WatchRemotely(limit int, who ...tree.Identity) *RemoteWatches {
	w := &RemoteWatches{engine: e}
	w.SetIdentities(who...)
	w.Client = watch.NewClient(&e.registries, limit, w.mayRead)
	return w
}

// SetIdentities says what the connection has shown to be from now on. What it is told of is judged by that.
func (w *RemoteWatches) SetIdentities(who ...tree.Identity) { w.who.Store(&who) }

// mayRead asks no shard in particular: all judge ACLs by the same schemes.
func (w *RemoteWatches) mayRead(acl []tree.ACL) bool { return w.view(rootPath).MayRead(acl) }

func (w *RemoteWatches) view(path string) tree.View { return w.reader().view(path) }

func (w *RemoteWatches) reader() reader { return reader{engine: w.engine, who: *w.who.Load()} }

// A Still is all shards as they are at one moment, for somebody, until Release: it can be read at
// leisure, and nobody waits for whoever does.
type Still struct{ reader }

// Still returns all shards as they are now, and the place of what is read there among the events. What
// applies waits only until they are pinned.
func (w *RemoteWatches) Still() (Still, watch.Place, error) {
	s := Still{w.reader()}
	place, err := w.Arm(rootPath, watch.Data, func() bool {
		for _, r := range w.engine.shards {
			s.pins = append(s.pins, r.Tree().Pin())
		}
		return false
	})
	if err = w.over(err); err != nil {
		s.Release()
	}
	return s, place, err
}

// Release ends a Still, which is not to be read any more.
func (s Still) Release() {
	for _, p := range s.pins {
		p.Release()
	}
}

// Here is the place of an answer that was read before the call, on any shard.
func (w *RemoteWatches) Here() watch.Place {
	var z tree.Zxid
	for _, r := range w.engine.shards {
		z = max(z, r.Tree().Visible())
	}
	return w.At(z)
}

// Behind is the place of a write's answer: after the events of what was applied before it and of itself, and before those of what came
// later. With several shards, whose zxids do not compare, and of a write that was never applied, it is Here.
func (w *RemoteWatches) Behind(p keeper.Pending) watch.Place {
	z := p.Zxid()
	if len(w.engine.shards) > 1 || z == 0 {
		return w.Here()
	}
	return w.Until(z)
}

// over is asked after what it is to vouch for was read: a node that ends drops its trees, but no sooner than it is over.
func (w *RemoteWatches) over(err error) error {
	if over := w.engine.over(); over != nil {
		return over
	}
	return err
}

// Get is Session.Get for the connection, and arms a Data watch if it succeeds.
func (w *RemoteWatches) Get(path string) ([]byte, tree.Stat, watch.Place, error) {
	f, place, err := w.find(path, watch.Data)
	if err != nil {
		return nil, tree.Stat{}, place, err
	}
	return f.Data(), f.stat(), place, nil
}

// Children is Session.Children for the connection, and arms a Children watch if it succeeds.
func (w *RemoteWatches) Children(path string) ([]string, tree.Stat, watch.Place, error) {
	f, place, err := w.find(path, watch.Children)
	if err != nil {
		return nil, tree.Stat{}, place, err
	}
	return f.children(), f.stat(), place, nil
}

// named returns the path of the znode that a remote client means. In ZooKeeper the root has a second
// name, which is empty. What is watched by that name is never told of anything.
func named(path string) string {
	if path == "" {
		return rootPath
	}
	return path
}

// find looks for a znode and arms a watch if it is there and may be read. What is copied of it is copied afterwards: apply waits
// while it is looked for.
func (w *RemoteWatches) find(path string, mode watch.Mode) (f finding, place watch.Place, err error) {
	place, ended := w.Arm(path, mode, func() bool {
		f, err = w.reader().find(named(path))
		err = w.over(err)
		return err == nil
	})
	if ended != nil {
		err = ended
	}
	return f, place, err
}

// Exists is Session.Exists for the connection, and arms a Data watch if it succeeds, also of a znode that there is not.
func (w *RemoteWatches) Exists(path string) (stat tree.Stat, ok bool, place watch.Place, err error) {
	place, ended := w.Arm(path, watch.Data, func() bool {
		stat, ok, err = w.reader().Exists(named(path))
		err = w.over(err)
		return err == nil
	})
	if ended != nil {
		err = ended
	}
	return stat, ok, place, err
}

// Reset resumes the watches of an earlier connection. The zxids of several shards do not compare with the one that a client knows, so
// there all that could have changed is told as changed.
func (w *RemoteWatches) Reset(was watch.Reset) (watch.Place, error) {
	was.Unknown = was.Unknown || len(w.engine.shards) > 1
	place, err := w.Client.Reset(&was, func(path string) (tree.Stat, bool) {
		path = named(path)
		stat, ok := w.engine.at(path).Tree().Exists(path)
		return w.reader().whole(path, stat), ok
	})
	return place, w.over(err)
}

// WatchedPaths counts the paths that connections watch, as ZooKeeper counts them: those whose data they watch, on each shard.
func (e *Engine) WatchedPaths() (n int) {
	for _, r := range e.shards {
		n += r.Watches.Watched()
	}
	return n
}
