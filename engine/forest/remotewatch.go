package forest

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// RemoteWatches are the watches of one connection of ZooKeeper's protocol, on all shards. They
// belong to the connection alone: neither the end of a session nor the end of the node ends them.
// The owner of the connection must call End when the connection ends. It must send answers and
// events in the order that watch.Client prescribes.
type RemoteWatches struct {
	*watch.Client

	forest     Forest
	registries *watch.Shards
	gone       func() error
	who        atomic.Pointer[[]tree.Identity]
}

// NewRemoteWatches returns the watches of a connection with these identities. There are none yet.
// limit bounds the events that may wait; see watch.NewClient. over returns why the node is over, or nil.
func NewRemoteWatches(f Forest, registries *watch.Shards, limit int, over func() error, who []tree.Identity) *RemoteWatches {
	w := &RemoteWatches{forest: f, registries: registries, gone: over}
	w.SetIdentities(who...)
	w.Client = watch.NewClient(registries, limit, w.mayRead)
	return w
}

// SetIdentities replaces the identities of the connection. They decide which events it gets.
func (w *RemoteWatches) SetIdentities(who ...tree.Identity) { w.who.Store(&who) }

// mayRead runs under the lock of a registry.
func (w *RemoteWatches) mayRead(acl []tree.ACL) bool {
	return w.forest.Home().MayRead(*w.who.Load(), acl)
}

func (w *RemoteWatches) reader() Reader { return Reader{Forest: w.forest, Who: *w.who.Load()} }

// A Still shows all shards as they are at one moment, with some identities, until Close. It can
// be read at leisure, and nothing waits for its reader.
type Still struct{ Reader }

// Still returns all shards as they are now, and the place of this moment among the events. Apply
// waits only while the trees are pinned.
func (w *RemoteWatches) Still() (Still, watch.Place, error) {
	s := Still{w.reader()}
	place, err := w.Arm(command.RootPath, watch.Data, func() bool {
		for _, r := range w.forest {
			s.pins = append(s.pins, r.Tree().Pin())
		}
		return false
	})
	if err = w.over(err); err != nil {
		s.Close()
	}
	return s, place, err
}

// Close ends a Still. It must not be read any more.
func (s Still) Close() {
	for _, p := range s.pins {
		p.Release()
	}
}

// Here returns the place of an answer that was read on any shard before the call.
func (w *RemoteWatches) Here() watch.Place {
	var z tree.Zxid
	for _, r := range w.forest {
		z = max(z, r.Visible())
	}
	return w.At(z)
}

// Behind returns the place of a write's answer. It comes after the events of earlier transactions
// and of the write itself, and before those of later ones. If there are several shards, whose zxids
// do not compare, or the write was never applied, it is Here.
func (w *RemoteWatches) Behind(p keeper.Pending) watch.Place {
	z := p.Zxid()
	if len(w.forest) > 1 || z == 0 {
		return w.Here()
	}
	return w.Until(z)
}

// over must be called after the read that it vouches for. A node that ends drops its trees only
// when it is over.
func (w *RemoteWatches) over(err error) error {
	if over := w.gone(); over != nil {
		return over
	}
	return err
}

// Get is Session.Get for the connection. If it succeeds, it arms a Data watch.
func (w *RemoteWatches) Get(path string) ([]byte, tree.Stat, watch.Place, error) {
	f, place, err := w.find(path, watch.Data)
	if err != nil {
		return nil, tree.Stat{}, place, err
	}
	return f.Data(), f.stat(), place, nil
}

// Children is Session.Children for the connection. If it succeeds, it arms a Children watch.
func (w *RemoteWatches) Children(path string) ([]string, tree.Stat, watch.Place, error) {
	f, place, err := w.find(path, watch.Children)
	if err != nil {
		return nil, tree.Stat{}, place, err
	}
	return f.children(), f.stat(), place, nil
}

// named returns the path of the znode that a remote client means. In ZooKeeper the root has a
// second name, which is empty. A watch on that name never gets an event.
func named(path string) string {
	if path == "" {
		return command.RootPath
	}
	return path
}

// find looks for a znode, and arms a watch if the znode exists and may be read. Apply waits while
// it looks, so the caller copies the data afterwards.
func (w *RemoteWatches) find(path string, mode watch.Mode) (f Finding, place watch.Place, err error) {
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

// Exists is Session.Exists for the connection. If it succeeds, it arms a Data watch, even if the
// znode does not exist.
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

// ArmAt arms a Persistent or Recursive watch, and returns the znode's Stat as of that moment. The
// Stat is zero if the connection may not read the znode, unless it is an ephemeral of its session.
// That it exists, everybody may know. The zxid is that moment's, or zero if the watch is on several
// shards.
func (w *RemoteWatches) ArmAt(path string, mode watch.Mode, o watch.Options) (stat tree.Stat, ok bool, z tree.Zxid, place watch.Place, err error) {
	place, err = w.ArmWith(path, mode, o, func() bool {
		stat, ok = w.forest.At(path).Tree().Exists(path)
		if !w.Owns(stat.EphemeralOwner) {
			stat, _, _ = w.reader().Exists(path)
		}
		return true
	})
	if len(w.forest) == 1 || w.registries.Of(path, mode) != watch.Everywhere {
		z = place.Zxid
	}
	return stat, ok, z, place, w.over(err)
}

// Reset resumes the watches of an earlier connection. The zxids of several shards do not compare
// with the zxid that a client knows. Then it reports everything as changed that could have changed.
func (w *RemoteWatches) Reset(was watch.Reset) (watch.Place, error) {
	was.Unknown = was.Unknown || len(w.forest) > 1
	place, err := w.Client.Reset(&was, func(path string) (stat tree.Stat, exists, hidden bool) {
		stat, exists, err := w.reader().Exists(named(path))
		hidden = err == tree.ErrNoAuth
		return stat, exists || hidden, hidden
	})
	return place, w.over(err)
}
