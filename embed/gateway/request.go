package gateway

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// An action is how a request is carried out: one of these functions. An error that codeOf knows
// becomes the client's answer.
type action struct {
	// write returns an operation to submit as a transaction.
	write func(c *conn, o *wire.Operation) (tree.Op, error)
	// read reads after the writes before it.
	read func(c *conn, from source, o *wire.Operation, r *wire.Result) error
	// arm reads and arms after the writes before it, with no event in between.
	arm func(c *conn, o *wire.Operation, r *wire.Reply) (watch.Place, error)
	// reply fills an answer that depends on no other request.
	reply func(c *conn, q *wire.Request, a *answer) error
	// other queues its answer itself.
	other func(c *conn, q *wire.Request, a *answer) error
	// quorum means that the action needs one besides its writes. In read-only mode such an action
	// and every write are refused.
	quorum bool
	// waits means that the action blocks for more than the writes before it. So what is ready is
	// sent first.
	waits bool
	// slow means that the action may take longer than a client waits for an answer to its ping.
	slow bool
}

var actions = map[wire.Op]action{
	wire.OpCreate:          {write: (*conn).create},
	wire.OpCreate2:         {write: (*conn).create},
	wire.OpCreateContainer: {write: (*conn).create},
	wire.OpCreateTTL:       {write: (*conn).create},
	wire.OpDelete:          {write: (*conn).delete},
	wire.OpSetData:         {write: (*conn).setData},
	wire.OpSetACL:          {write: (*conn).setACL},
	wire.OpMulti:           {other: (*conn).multi, quorum: true},

	wire.OpExists:               {read: (*conn).exists, arm: (*conn).existsArm},
	wire.OpGetData:              {read: (*conn).getData, arm: (*conn).getDataArm},
	wire.OpGetChildren:          {read: (*conn).getChildren, arm: (*conn).getChildrenArm},
	wire.OpGetChildren2:         {read: (*conn).getChildren, arm: (*conn).getChildrenArm},
	wire.OpGetACL:               {read: (*conn).getACL},
	wire.OpGetAllChildrenNumber: {read: (*conn).getAllChildrenNumber},
	wire.OpGetEphemerals:        {read: (*conn).getEphemerals, waits: true},
	wire.OpSync:                 {read: (*conn).sync, waits: true, quorum: true, slow: true},
	wire.OpMultiRead:            {other: (*conn).multiRead},

	wire.OpAddWatch:      {arm: (*conn).addWatch},
	wire.OpCheckWatches:  {arm: (*conn).checkWatches},
	wire.OpRemoveWatches: {arm: (*conn).removeWatches},
	wire.OpSetWatches:    {other: (*conn).setWatches},
	wire.OpSetWatches2:   {other: (*conn).setWatches},

	wire.OpPing:         {other: (*conn).ping},
	wire.OpWhoAmI:       {reply: (*conn).whoAmI},
	wire.OpReconfig:     {other: (*conn).reconfig, waits: true, quorum: true, slow: true},
	wire.OpSASL:         {other: (*conn).sasl, waits: true},
	wire.OpAuth:         {other: (*conn).auth, waits: true},
	wire.OpCloseSession: {other: (*conn).closeSession, waits: true},
	wire.OpNative:       {other: (*conn).native},
}

// errLast says that the connection ends behind the answer that was queued last.
var errLast = errors.New("the last answer is queued")

// request reads one request and carries it out.
func (c *conn) request() error {
	if !c.awaitRoom() {
		return errEnded
	}
	c.session.Busy(false)
	frame, err := c.in.next(c.gate.cfg.FrameSize)
	if err != nil {
		return err
	}
	if !c.awaitMemory() {
		return errEnded
	}
	q, a := &c.in.bufs.q, &c.in.bufs.a
	body, err := q.DecodeHeader(frame)
	if err != nil {
		return err
	}
	c.figures.received.Add(1)
	c.gate.figures.received.Add(1)
	*a = answer{arrived: time.Now(), bytes: len(frame)}
	a.reply.Xid, a.reply.Op = q.Xid, q.Op
	if c.lacksSASL(q.Op) {
		a.ownZxid = true
		return c.refuse(a, saslScheme, errSASLRequired)
	}
	if !q.Op.Known() {
		a.reply.Err, a.reply.Zxid, a.ownZxid, a.last = wire.Unimplemented, -1, true, true
		c.push(a)
		return errLast
	}
	if q.Op != wire.OpAuth && q.Op != wire.OpSASL { // these two keep no session alive
		c.session.Heard()
	}
	if c.decode(q, a, body) != nil {
		a.reply.Err = wire.MarshallingError
		c.push(a)
		return nil
	}
	err = c.act(q, a)
	if a.bytes > portionBytes {
		*a = answer{} // or the answer would stay in memory a second time until the next request
	}
	return err
}

// decode decodes a request's body, and counts what that takes: until the next frame is awaited, and
// while the request is in flight. Nobody knows before how much it is. So of long ones only one is
// decoded at a time.
func (c *conn) decode(q *wire.Request, a *answer, body []byte) error {
	if len(body) > frameKept {
		c.gate.decoding <- struct{}{}
		defer func() { <-c.gate.decoding }()
	}
	err := q.DecodeBody(body)
	weight := q.Weight()
	a.bytes += weight
	c.in.keep(cap(c.in.bufs.frame) + 2*weight) // what it asks for is made from it
	return err
}

func (c *conn) act(q *wire.Request, a *answer) error {
	do := actions[q.Op]
	if c.writes == nil && (do.quorum || do.write != nil) {
		return c.finish(a, errReadOnly)
	}
	a.readOnly = do.read != nil && !do.waits || q.Op == wire.OpMultiRead
	if do.waits {
		if err := c.sendHere(); err != nil {
			return err
		}
	}
	c.session.Busy(true) // until the next request is read
	defer c.unreserve()
	if do.slow {
		defer c.answerPings()()
	}
	if do.read != nil {
		if err := c.reserveFor(&q.Operation); err != nil {
			return err
		}
	}
	switch {
	case do.write != nil:
		op, err := do.write(c, &q.Operation)
		if err != nil {
			return c.finish(a, err)
		}
		one := &c.in.bufs.one
		one[0] = op
		return c.submit(a, one[:])
	case do.arm != nil && (q.Watch || do.read == nil):
		return c.answerArmed(a, func() (watch.Place, error) { return do.arm(c, &q.Operation, &a.reply) })
	case do.read != nil:
		if !c.awaitPlaced() {
			return errEnded
		}
		if do.waits { // such a read shows nothing that is watched
			return c.finish(a, do.read(c, c.session, &q.Operation, &a.reply.Result))
		}
		return c.answerRead(a, func(from source) error { return do.read(c, from, &q.Operation, &a.reply.Result) })
	case do.reply != nil:
		return c.finish(a, do.reply(c, q, a))
	}
	return do.other(c, q, a)
}

// finish queues an answer with the error's code, which may be OK. It returns an error that the
// client cannot be told.
func (c *conn) finish(a *answer, err error) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Err = code
	a.bytes = sizeOf(&a.reply.Result)
	c.push(a)
	return nil
}

// A source is what requests read from: the session, or all shards at one moment.
type source interface {
	Get(path string) ([]byte, tree.Stat, error)
	Exists(path string) (tree.Stat, bool, error)
	Children(path string) ([]string, tree.Stat, error)
	ACL(path string) ([]tree.ACL, tree.Stat, error)
	Descendants(path string) (int, error)
}

// answerRead is finish for a read. If an event comes during the read, that event would be sent
// before an answer that may not show its change yet. Then answerRead reads once more, at the moment
// of the answer's place among the events. Later events wait until the answer is queued. Nobody else
// waits, however long the read takes.
func (c *conn) answerRead(a *answer, read func(from source) error) error {
	before := c.watches.Here()
	if err := a.complete(read(c.session)); err != nil {
		return err
	}
	if c.pushUnless(a, before) {
		return nil
	}
	c.startDeferring()
	still, place, err := c.watches.Still()
	if err != nil {
		return err
	}
	defer still.Close()
	if err := a.complete(read(still)); err != nil {
		return err
	}
	a.placeAt(place)
	c.push(a)
	return nil
}

// pushUnless queues an answer, unless events have come since a place.
func (c *conn) pushUnless(a *answer, since watch.Place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.watches.Here()
	if !at.Same(since) {
		return false
	}
	a.placeAt(at)
	c.pushLocked(a)
	return true
}

// answerArmed is finish for a request that arms watches. No event is sent between do's look at the
// tree and the queueing of the answer.
func (c *conn) answerArmed(a *answer, do func() (watch.Place, error)) error {
	if !c.awaitPlaced() {
		return errEnded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := do()
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Err = code
	a.placeAt(at)
	// The request's bytes still count, because a setWatches makes events in proportion.
	a.bytes += sizeOf(&a.reply.Result)
	c.pushLocked(a)
	return nil
}

// startDeferring makes events that belong to no answer wait until the reader has queued its answer.
func (c *conn) startDeferring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deferEvents = true
}

// submit submits a transaction. If the transaction is refused at once, the connection ends.
// Otherwise later requests might be applied, and a client relies on that not happening.
func (c *conn) submit(a *answer, ops []tree.Op) error {
	c.startDeferring()
	a.goTo(answerPending)
	a.pending = c.writes.SubmitThen(c.gate.ctx, ops, c.nudgeFunc)
	if a.pending.Known() {
		if _, err := a.pending.Result(); err != nil {
			if _, ok := codeOf(err); !ok {
				return err
			}
		}
	}
	c.push(a)
	return nil
}

// Writes.

func (c *conn) create(o *wire.Operation) (tree.Op, error) {
	mode := tree.CreateMode(o.Flags)
	switch { // in ZooKeeper's order, as far as the tree does not check it
	case o.Flags < wire.FlagsPersistent || o.Flags > wire.FlagsSequentialTTL:
		return tree.Op{}, tree.ErrInvalidMode
	case o.Op == wire.OpCreateTTL != mode.IsTTL(), o.Op == wire.OpCreateContainer && mode != tree.Container,
		o.Op == wire.OpCreateTTL && mode == tree.Container:
		// A client could stop a ZooKeeper server with such a request.
		return tree.Op{}, tree.ErrInvalidMode
	case mode.IsTTL() && (o.TTL < 1 || o.TTL > tree.MaxTTL):
		return tree.Op{}, tree.ErrInvalidTTL
	case o.Path == wire.Null:
		return tree.Op{}, errMarshalling
	case len(o.Data) > c.gate.node.Config.MaxDataSize:
		return tree.Op{}, engine.ErrTooLarge
	}
	op := tree.Op{Kind: tree.KindCreate, Path: o.Path, Data: o.Data, Mode: mode, ACL: aclOf(o.ACL)}
	if mode.IsTTL() {
		op.TTL = o.TTL
	}
	return op, nil
}

func (c *conn) delete(o *wire.Operation) (tree.Op, error) {
	if o.Path == wire.Null {
		return tree.Op{}, errMarshalling
	}
	return tree.Op{Kind: tree.KindDelete, Path: o.Path, Version: o.Version}, nil
}

func (c *conn) setData(o *wire.Operation) (tree.Op, error) {
	if len(o.Data) > c.gate.node.Config.MaxDataSize {
		return tree.Op{}, engine.ErrTooLarge
	}
	return tree.Op{Kind: tree.KindSet, Path: o.Path, Data: o.Data, Version: o.Version}, nil
}

func (c *conn) setACL(o *wire.Operation) (tree.Op, error) {
	return tree.Op{Kind: tree.KindSetACL, Path: o.Path, ACL: aclOf(o.ACL), Version: o.Version}, nil
}

// aclOf never returns nil. To the tree, nil is a list that allows everything to everybody.
func aclOf(acl []wire.ACL) []tree.ACL {
	list := make([]tree.ACL, len(acl))
	for i, a := range acl {
		list[i] = tree.ACL{Perms: tree.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID}
	}
	return list
}

// Reads. For all of them the empty path is the root, although the tree does not know that path. A
// watch of the empty path keeps that name.

func readPath(path string) (string, error) {
	switch path {
	case wire.Null:
		return "", errMarshalling
	case "":
		return "/", nil
	}
	return path, checkPathLength(path)
}

// checkPathLength refuses a path that is longer than any znode's. Otherwise a watch of it would be
// kept.
func checkPathLength(path string) error {
	if n := len(path); n > engine.PathMax {
		return fmt.Errorf("%w: a path of %d bytes, the limit is %d", engine.ErrTooLarge, n, engine.PathMax)
	}
	return nil
}

func (c *conn) exists(from source, o *wire.Operation, r *wire.Result) error {
	path, err := readPath(o.Path)
	if err != nil {
		return err
	}
	stat, ok, err := from.Exists(path)
	return existing(r, &stat, ok, err)
}

func (c *conn) existsArm(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	if err := c.mayArm(o.Path, watch.Data); err != nil {
		return c.watches.Here(), err
	}
	stat, ok, at, err := c.watches.Exists(o.Path)
	return at, existing(&r.Result, &stat, ok, err)
}

func existing(r *wire.Result, stat *tree.Stat, ok bool, err error) error {
	if err == nil && !ok {
		err = tree.ErrNoNode
	}
	r.Stat = statOf(stat)
	return err
}

func (c *conn) getData(from source, o *wire.Operation, r *wire.Result) error {
	path, err := readPath(o.Path)
	if err != nil {
		return err
	}
	data, stat, err := from.Get(path)
	r.Data, r.Stat = data, statOf(&stat)
	return err
}

func (c *conn) getDataArm(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	if err := c.mayArm(o.Path, watch.Data); err != nil {
		return c.watches.Here(), err
	}
	data, stat, at, err := c.watches.Get(o.Path)
	r.Data, r.Stat = data, statOf(&stat)
	return at, err
}

func (c *conn) getChildren(from source, o *wire.Operation, r *wire.Result) error {
	path, err := readPath(o.Path)
	if err != nil {
		return err
	}
	names, stat, err := from.Children(path)
	r.Names, r.Stat = list(names), statOf(&stat)
	return c.fits(r, err)
}

// fits refuses an answer that a connection of package embed/client would not read. Other clients
// have limits of their own.
func (c *conn) fits(r *wire.Result, err error) error {
	if err == nil && c.isNative.Load() && sizeOf(r) > readBytesMax {
		r.Names = nil
		return errNames
	}
	return err
}

func (c *conn) getChildrenArm(o *wire.Operation, r *wire.Reply) (watch.Place, error) {
	if err := c.mayArm(o.Path, watch.Children); err != nil {
		return c.watches.Here(), err
	}
	names, stat, at, err := c.watches.Children(o.Path)
	r.Names, r.Stat = list(names), statOf(&stat)
	return at, err
}

// list returns names, or an empty list that is not null on the wire.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

func (c *conn) getACL(from source, o *wire.Operation, r *wire.Result) error {
	path, err := readPath(o.Path)
	if err != nil {
		return err
	}
	acl, stat, err := from.ACL(path)
	r.ACL = make([]wire.ACL, len(acl))
	for i, a := range acl {
		r.ACL[i] = wire.ACL{Perms: wire.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID}
	}
	r.Stat = statOf(&stat)
	return err
}

func (c *conn) getAllChildrenNumber(from source, o *wire.Operation, r *wire.Result) error {
	path, err := readPath(o.Path)
	if err != nil {
		return err
	}
	n, err := from.Descendants(path)
	r.Count = int32(n)
	return err
}

func (c *conn) getEphemerals(_ source, o *wire.Operation, r *wire.Result) error {
	prefix := o.Path
	if prefix == wire.Null || strings.TrimSpace(prefix) == "" {
		prefix = ""
	}
	paths, err := c.session.Ephemerals(c.gate.ctx, prefix)
	r.Names = list(paths)
	return c.fits(r, err)
}

// sync is a real barrier, unlike ZooKeeper's.
func (c *conn) sync(_ source, o *wire.Operation, r *wire.Result) error {
	r.Path = o.Path
	path := o.Path
	if path == wire.Null {
		path = "/"
	}
	_, err := c.writes.Sync(c.gate.ctx, path)
	return err
}

func statOf(s *tree.Stat) wire.Stat {
	return wire.Stat{
		Czxid: int64(s.Czxid), Mzxid: int64(s.Mzxid), Pzxid: int64(s.Pzxid), Ctime: s.Ctime.UnixMilli(), Mtime: s.Mtime.UnixMilli(),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: int64(s.EphemeralOwner), DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}

// Other requests.

// ping is answered only while the session is safe. Otherwise a client would believe that a node
// which is cut off keeps its session alive.
func (c *conn) ping(q *wire.Request, a *answer) error {
	if now := c.session.CurrentState(); now != embed.Connected {
		return sessionError(now)
	}
	c.push(a)
	return nil
}

// pingParts is how often pings are answered ahead of time, in parts of the session's timeout. Clients
// give a connection up that is silent for two thirds of it.
const pingParts = 6

// answerPings answers pings before they are read, while the reader is busy with a slow request. All
// clients take such an answer out of turn, and only as a sign of life. The function that it returns
// ends that.
func (c *conn) answerPings() (stop func()) {
	every, over := c.session.Timeout()/pingParts, false
	c.mu.Lock()
	defer c.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(every, func() {
		isSafe := c.session.CurrentState() == embed.Connected // as in ping
		c.mu.Lock()
		defer c.mu.Unlock()
		if over || c.stage == stageEnded {
			return
		}
		if isSafe && !c.deferEvents { // else the answer to the request is about to come
			c.pushLocked(&answer{arrived: time.Now(), reply: wire.Reply{Xid: wire.XidPing, Result: wire.Result{Op: wire.OpPing}}})
			c.nudge()
		}
		timer.Reset(every)
	})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over = true
		timer.Stop()
	}
}

func (c *conn) whoAmI(q *wire.Request, a *answer) error {
	a.reply.Users = shownUsers(c.identities)
	return nil
}

func (c *conn) auth(q *wire.Request, a *answer) error {
	a.ownZxid = true
	who, err := c.authenticate(&q.Auth)
	if err != nil {
		return c.refuse(a, q.Auth.Scheme, err)
	}
	if err := c.setIdentities(who); err != nil {
		return err
	}
	c.push(a)
	return nil
}

// startClosing records that the client closes its session.
func (c *conn) startClosing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goToLocked(stageClosing)
}

func (c *conn) closeSession(q *wire.Request, a *answer) error {
	if !c.awaitPlaced() {
		return errEnded
	}
	c.startClosing()
	if err := c.session.Close(); err != nil {
		return err
	}
	// It moved before it was closed, and goes on elsewhere.
	if err := c.session.Err(); err == engine.ErrSessionMoved {
		return err
	}
	a.last = true
	c.push(a)
	return errLast
}
