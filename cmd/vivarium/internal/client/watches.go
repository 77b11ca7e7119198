package client

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// watches holds the client's watches by their paths, as the server knows the paths. A server
// forgets them with the connection, so the client sets them again on the next one. A server sends
// one event for a change, even if it concerns several watches.
type watches struct {
	data, exist, child, persistent, recursive map[string]bool
}

func newWatches() watches {
	m := func() map[string]bool { return make(map[string]bool) }
	return watches{data: m(), exist: m(), child: m(), persistent: m(), recursive: m()}
}

// add records the watch that a reply armed.
func (w *watches) add(o *wire.Operation, code wire.Code) {
	switch {
	case o.Op == wire.OpAddWatch && code == wire.OK && o.Mode == wire.WatchPersistent:
		w.persistent[o.Path] = true
	case o.Op == wire.OpAddWatch && code == wire.OK:
		w.recursive[o.Path] = true
	case !o.Watch:
	case o.Op == wire.OpExists && code == wire.NoNode:
		w.exist[o.Path] = true
	case code != wire.OK:
	case o.Op == wire.OpExists, o.Op == wire.OpGetData:
		w.data[o.Path] = true
	case o.Op == wire.OpGetChildren, o.Op == wire.OpGetChildren2:
		w.child[o.Path] = true
	}
}

// fire reports whether a watch matches an event, and removes the watches that it uses up.
func (w *watches) fire(t wire.EventType, path string) bool {
	asked := w.persistent[path]
	if t != wire.NodeChildrenChanged {
		asked = asked || w.data[path] || w.exist[path] || w.above(path)
		delete(w.data, path)
		delete(w.exist, path)
	}
	if t == wire.NodeChildrenChanged || t == wire.NodeDeleted {
		asked = asked || w.child[path]
		delete(w.child, path)
	}
	return asked
}

// above reports whether a recursive watch covers a path.
func (w *watches) above(path string) bool {
	for at := path; ; {
		if w.recursive[at] {
			return true
		}
		if at == "/" {
			return false
		}
		if at = at[:max(strings.LastIndexByte(at, '/'), 0)]; at == "" {
			at = "/"
		}
	}
}

// remove removes the watches of a kind, and returns the types of the events about it.
func (w *watches) remove(kind wire.WatchKind, path string) []wire.EventType {
	var told []wire.EventType
	for _, of := range []struct {
		kind  wire.WatchKind
		from  map[string]bool
		event wire.EventType
	}{
		{wire.KindChildren, w.child, wire.ChildWatchRemoved},
		{wire.KindData, w.data, wire.DataWatchRemoved},
		{wire.KindData, w.exist, wire.DataWatchRemoved},
		{wire.KindPersistent, w.persistent, wire.PersistentWatchRemoved},
		{wire.KindRecursive, w.recursive, wire.PersistentWatchRemoved},
	} {
		if (kind == of.kind || kind == wire.KindAny) && of.from[path] {
			delete(of.from, path)
			if !slices.Contains(told, of.event) {
				told = append(told, of.event)
			}
		}
	}
	return told
}

// batchMax limits the bytes of paths in one request to set watches. It is far below the longest
// frame that a server reads.
const batchMax = 128 << 10

// again returns requests that set all watches on a new connection.
func (w *watches) again(zxid int64) []*wire.Request {
	var list []*wire.Request
	var now wire.Watches
	size := 0
	flush := func() {
		if size == 0 {
			return
		}
		q := &wire.Request{Xid: wire.XidSetWatches, Watches: now}
		q.Op = wire.OpSetWatches // known to every server
		if len(now.Persistent)+len(now.Recursive) > 0 {
			q.Op = wire.OpSetWatches2
		}
		q.Watches.Zxid = zxid
		list = append(list, q)
		now, size = wire.Watches{}, 0
	}
	for _, kind := range []struct {
		paths map[string]bool
		to    *[]string
	}{{w.data, &now.Data}, {w.exist, &now.Exist}, {w.child, &now.Child}, {w.persistent, &now.Persistent}, {w.recursive, &now.Recursive}} {
		for _, path := range slices.Sorted(maps.Keys(kind.paths)) {
			*kind.to = append(*kind.to, path)
			if size += len(path) + 4; size > batchMax {
				flush()
			}
		}
	}
	flush()
	return list
}

// forget removes watches and sends events about it. The path is as the server knows it.
func (c *Client) forget(kind wire.WatchKind, path string) bool {
	state := wire.StateSyncConnected
	c.mu.Lock()
	told := c.mu.watches.remove(kind, path)
	if c.mu.link == nil {
		state = wire.StateDisconnected
	}
	c.mu.Unlock()
	for _, t := range told {
		c.tell(Event{Type: t, State: state, Path: c.fromServer(path)})
	}
	return len(told) > 0
}

// On a server, the client's paths begin with the chroot. As in ZooKeeper's client, there are two
// exceptions: the paths of getEphemerals and, without Config.WithoutConfig, configPath.

const configPath = "/zookeeper/config"

func (c *Client) toServer(q *wire.Request) {
	if c.cfg.Chroot == "" {
		return
	}
	add := func(o *wire.Operation) {
		switch {
		case !hasPath(o.Op), o.Path == wire.Null, o.Op == wire.OpGetEphemerals, o.Path == configPath && !c.cfg.WithoutConfig:
		case o.Path == "/":
			o.Path = c.cfg.Chroot
		default:
			o.Path = c.cfg.Chroot + o.Path
		}
	}
	if q.Op != wire.OpDelete || q.Path != "/" { // the chroot must not be deleted, except in a multi, as in ZooKeeper's client
		add(&q.Operation)
	}
	q.Ops = slices.Clone(q.Ops)
	for i := range q.Ops {
		add(&q.Ops[i])
	}
}

// Root returns the path in the whole tree of what the client sees as the root.
func (c *Client) Root() string { return cmp.Or(c.cfg.Chroot, "/") }

func (c *Client) fromServer(path string) string {
	rest, ok := strings.CutPrefix(path, c.cfg.Chroot)
	switch {
	case !ok, path == "", rest != "" && rest[0] != '/':
		return path
	case rest == "":
		return "/"
	}
	return rest
}
