package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// bufferDefault is how many events may wait for a slow consumer, as in package watch.
const bufferDefault = 64

// A place is one watch of the connection at the server. Several streams and claims may share it.
type place struct {
	path string
	mode watch.Mode // Persistent or Recursive
}

// watches are the streams of a session, and what the server watches for them. They are guarded by
// the session's mu.
type watches struct {
	streams map[place]map[*stream]struct{} // in sets, because one place may have very many
	wanted  map[place]*wanted
}

// wanted says that the server is to watch a place.
type wanted struct {
	users  int  // streams and claims, also of calls on their way
	values int  // of them, streams with values
	sent   bool // the server of this connection was asked to
}

func (w *watches) init() {
	w.streams, w.wanted = make(map[place]map[*stream]struct{}), make(map[place]*wanted)
}

func (w *watches) want(at place, values bool) {
	if w.wanted[at] == nil {
		w.wanted[at] = new(wanted)
	}
	w.wanted[at].users++
	if values {
		w.wanted[at].values++
	}
}

// forget says that the connection is over, and that its server watches nothing more.
func (w *watches) forget() {
	for _, at := range w.wanted {
		at.sent = false
	}
}

// A stream is one watch of the session's owner.
type stream struct {
	s      *session
	at     place
	once   bool
	values bool
	root   inside.Root
	events chan watch.Event

	// Guarded by the session's mu.
	backlog watch.Backlog // of events
	zxid    tree.Zxid
	there   bool // what the znode was when the watch was armed
	stat    tree.Stat
	added   bool
	ended   bool
	err     error
}

var _ inside.Watch = (*stream)(nil)

// Watch arms a watch.
func (s *session) Watch(ctx context.Context, path string, mode watch.Mode, o watch.Options, root string) (inside.Watch, error) {
	w, c, err := s.arming(path, mode, o, root)
	if err != nil {
		return nil, err
	}
	s.enqueue(ctx, c)
	if err := w.await(ctx, c); err != nil {
		return nil, err
	}
	return w, nil
}

// Follow makes its requests without waiting for the answer of the one before.
func (s *session) Follow(ctx context.Context, path string, o watch.Options, root string) (inside.Followed, error) {
	w, arm, err := s.arming(path, watch.Persistent, o, root)
	if err != nil {
		return inside.Followed{}, err
	}
	read, sync := pathCall(wire.OpGetData, path), nativeCall(wire.Native{Kind: wire.NativeSync, Path: path})
	read.patient, sync.patient = true, true
	for _, c := range []*call{arm, read, sync} {
		s.enqueue(ctx, c)
	}
	err = w.await(ctx, arm)
	shown, errRead := s.answer(ctx, read)
	synced, errSync := s.answer(ctx, sync)
	if err != nil {
		return inside.Followed{}, err
	}
	f := inside.Followed{Watch: w, Err: errRead}
	if errRead == nil {
		f.Data, f.Stat = shown.Data, native.FromStat(&shown.Stat)
	}
	if errSync == nil {
		f.Since = tree.Zxid(synced.Native.Zxid)
	}
	return f.Checked(errSync)
}

// arming returns a watch that somebody wants, and the call that arms it.
func (s *session) arming(path string, mode watch.Mode, o watch.Options, root string) (*stream, *call, error) {
	if len(path) > engine.PathMax {
		return nil, nil, fmt.Errorf("%w: a path of %d bytes, at most %d are allowed", engine.ErrTooLarge, len(path), engine.PathMax)
	}
	w := &stream{s: s, at: place{path, watch.Persistent}, once: mode == watch.Once, values: o.Values, root: inside.Root(root)}
	if root == "/" {
		w.root = ""
	}
	if mode == watch.Recursive {
		w.at.mode = watch.Recursive
	}
	room := bufferDefault
	switch {
	case w.once:
		room = 1
	case o.Buffer > 0:
		room = o.Buffer
	}
	w.events = make(chan watch.Event, room)
	c := armCall(w.at)
	c.then, c.patient = w.armed, true
	s.mu.Lock()
	s.mu.watches.want(w.at, w.values)
	s.mu.Unlock()
	return w, c, nil
}

// await waits until the watch is armed.
func (w *stream) await(ctx context.Context, c *call) error {
	err := w.s.wait(ctx, c)
	if err == nil {
		err = engine.Single(answered(&c.reply))
	}
	if err != nil {
		w.Close() // also if it is armed later
	}
	return err
}

func armCall(at place) *call {
	return nativeCall(wire.Native{Kind: wire.NativeArm, Path: at.path, Mode: int32(at.mode)})
}

// armLocked has the server watch a znode for one more user, and then runs with the znode's Stat.
func (s *session) armLocked(path string, mode watch.Mode, then func(*call)) {
	s.mu.watches.want(place{path, mode}, false)
	s.armAgainLocked(place{path, mode}, then)
}

// armAgainLocked arms a watch that somebody wants. On the next connection that is done anew.
func (s *session) armAgainLocked(at place, then func(*call)) {
	c := armCall(at)
	c.then, c.dropped = then, true
	s.queueLocked(c)
}

var errUnwanted = fmt.Errorf("%w: nobody wants this watch any more", engine.ErrUnavailable)

// armsLocked records that a call is sent which may arm a watch. The watch has values if one of those
// who want it now wants them. It returns an error if nobody wants it any more.
func (s *session) armsLocked(c *call) error {
	n := &c.request.Native
	if n.Kind != wire.NativeArm {
		return nil
	}
	at := s.mu.watches.wanted[place{n.Path, watch.Mode(n.Mode)}]
	if at == nil {
		return errUnwanted
	}
	at.sent, n.Flag = true, at.values > 0
	return nil
}

// disarmLocked says that a user is gone. The last one has the server's watch removed, and the last
// one with values has it armed again without.
func (s *session) disarmLocked(path string, mode watch.Mode, values bool) {
	at := s.mu.watches.wanted[place{path, mode}]
	if values {
		at.values--
	}
	if at.users--; at.users == 0 {
		delete(s.mu.watches.wanted, place{path, mode})
	}
	switch {
	case s.mu.end != nil || !at.sent:
		return
	case at.users > 0:
		if values && at.values == 0 {
			s.armAgainLocked(place{path, mode}, nil)
		}
		return
	}
	c := pathCall(wire.OpRemoveWatches, path)
	if c.request.Kind = wire.KindPersistent; mode == watch.Recursive {
		c.request.Kind = wire.KindRecursive
	}
	c.dropped = true // a server forgets it with the connection
	s.queueLocked(c)
}

// armed runs when the server has armed the watch, before anything that it then sends is read.
func (w *stream) armed(c *call) {
	switch {
	case w.ended:
		return
	case w.s.mu.end != nil:
		w.endLocked(w.s.mu.end)
		return
	case c.err != nil || c.reply.Native.Failure != 0:
		w.endLocked(c.err)
		return
	}
	r := &c.reply.Native
	w.zxid, w.there, w.stat, w.added = tree.Zxid(r.Zxid), r.Flag, native.FromStat(&r.Stat), true
	all := &w.s.mu.watches
	if all.streams[w.at] == nil {
		all.streams[w.at] = make(map[*stream]struct{})
	}
	all.streams[w.at][w] = struct{}{}
	if w.once && w.isHidden(r) {
		w.endLocked(tree.ErrNoAuth)
	}
}

// isHidden reports whether the answer to an arm says that the znode may not be read. Some of
// ZooKeeper's own znodes have such a Stat from the beginning.
func (w *stream) isHidden(r *wire.NativeReply) bool {
	return r.Flag && r.Stat == (wire.Stat{}) && !strings.HasPrefix(w.at.path, "/zookeeper/")
}

// Events returns the stream of events.
func (w *stream) Events() <-chan watch.Event { return w.events }

// Zxid returns where the watch was armed.
func (w *stream) Zxid() tree.Zxid {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.zxid
}

// Err returns why the watch ended without being closed.
func (w *stream) Err() error {
	w.s.lookAndLock()
	defer w.s.mu.Unlock()
	return w.err
}

// Close ends the watch.
func (w *stream) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.endLocked(nil)
}

func (w *stream) endLocked(err error) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	close(w.events)
	if w.added {
		all := w.s.mu.watches.streams
		delete(all[w.at], w)
		if len(all[w.at]) == 0 {
			delete(all, w.at)
		}
	}
	w.s.disarmLocked(w.at.path, w.at.mode, w.values)
}

// endAll ends all watches with the session.
func (all *watches) endAll(why error) {
	for _, set := range all.streams {
		for w := range set {
			w.endLocked(why)
		}
	}
}

// tellLocked queues an event. The watch ends if there is no room.
func (w *stream) tellLocked(e watch.Event) {
	if !w.values {
		e = e.With(tree.Found{})
	}
	e.Path = w.root.Out(e.Path)
	if len(w.events) == cap(w.events) || !w.backlog.Add(e, len(w.events)) {
		w.endLocked(watch.ErrOverflow)
		return
	}
	w.events <- e // which nobody else sends to
	if w.once {
		w.endLocked(nil)
	}
}

// turnLocked ends the watch as one in a member's process ends, when its session may not read a znode
// any more, or may read it again, or when one that it may not read was created.
func (w *stream) turnLocked(e watch.Event) {
	switch {
	case !w.once:
		w.endLocked(&watch.GapError{Zxid: e.Zxid})
	case e.Type != watch.ReadGained:
		w.endLocked(tree.ErrNoAuth)
	}
}

// eventLocked takes in an event of the server.
func (s *session) eventLocked(r *wire.Reply) {
	e := watch.Event{Type: watch.EventType(r.Event.Type), Path: r.Event.Path, Zxid: tree.Zxid(r.Zxid)}
	if r.Event.Znode.Stat.Mzxid != 0 { // its transaction has left a znode there
		e = e.With(tree.Detached(r.Event.Znode.Data, native.FromStat(&r.Event.Znode.Stat)))
	}
	if c := s.mu.claims[e.Path]; c != nil && e.Type == watch.NodeDeleted {
		if _, czxid := c.ZnodesLocked(); e.Zxid > czxid {
			c.goneLocked(e.Path)
		}
	}
	if e.Path == tree.ConfigPath {
		s.learnLocked()
	}
	tell := func(at place) {
		for w := range s.mu.watches.streams[at] {
			switch e.Type {
			case watch.ReadLost, watch.ReadGained, watch.CreatedHidden:
				w.turnLocked(e)
			default:
				w.tellLocked(e)
			}
		}
	}
	tell(place{e.Path, watch.Persistent})
	if e.Type == watch.NodeChildrenChanged {
		return // a recursive watch sees the children themselves
	}
	for path := e.Path; ; path = tree.Parent(path) {
		tell(place{path, watch.Recursive})
		if path == "/" || e.Type == watch.CreatedHidden {
			return
		}
	}
}

// resumeLocked arms the watches on a new connection, whose server shows a transaction. What was to
// be seen meanwhile is lost, so only a watch of one event can go on: it compares the znode with what
// it was.
func (all *watches) resumeLocked(s *session, at tree.Zxid) {
	for _, set := range all.streams {
		for w := range set {
			if w.once {
				s.armAgainLocked(w.at, w.compare)
			} else {
				w.endLocked(&watch.GapError{Zxid: at})
			}
		}
	}
}

// compare tells what somebody who looks again would see first. A znode that was missing and is
// missing may have existed in between, so it counts as created.
func (w *stream) compare(c *call) {
	switch {
	case w.ended || c.err != nil:
		return
	case c.reply.Native.Failure != 0:
		w.endLocked(engine.Single(answered(&c.reply)))
		return
	}
	r := &c.reply.Native
	now := native.FromStat(&r.Stat)
	e := watch.Event{Path: w.at.path, Zxid: tree.Zxid(r.Zxid)}
	switch {
	case !w.there:
		e.Type = watch.NodeCreated
	case !r.Flag:
		e.Type = watch.NodeDeleted
	case w.isHidden(r):
		w.endLocked(tree.ErrNoAuth)
		return
	case now.Mzxid != w.stat.Mzxid || now.Czxid != w.stat.Czxid:
		e.Type = watch.NodeDataChanged
	// The Pzxid of a znode on several shards is the largest. It does not tell of a child on a shard
	// that is behind, and the sum in Cversion does.
	case now.Pzxid != w.stat.Pzxid || now.Cversion != w.stat.Cversion:
		e.Type = watch.NodeChildrenChanged
	default:
		return
	}
	w.tellLocked(e)
}

// followLocked follows the ensemble's list of members, which may say where else to connect.
func (s *session) followLocked(isNew bool) {
	at := place{tree.ConfigPath, watch.Persistent}
	if isNew {
		s.mu.watches.want(at, false)
	}
	s.armAgainLocked(at, nil)
	s.learnLocked()
}

func (s *session) learnLocked() {
	c := pathCall(wire.OpGetData, tree.ConfigPath)
	c.then = func(c *call) {
		if c.err == nil && c.reply.Err == wire.OK {
			s.client.learn(c.reply.Data)
		}
	}
	c.dropped = true // the next connection asks again
	s.queueLocked(c)
}
