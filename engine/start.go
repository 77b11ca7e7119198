package engine

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// Start opens the directory, checks it, and starts the node. It does not wait for a quorum. It
// finds every reason to refuse before anything on disk changes. First it binds the port, then it
// locks the directory. Then it checks everything in it through a view that writes only to memory.
//
// When Start returns, the trees and tables hold what the directory knows to be committed: the
// images, and all entries of the logs that were applied before. So a read that needs no quorum
// shows at least what this member last showed. It may be stale, because other members may have gone
// on. A power failure may also remove from the log that its newest entries were committed, though
// never the entries.
func Start(cfg Config) (*Engine, error) {
	if cfg.Seams.Clock.Boot == nil {
		cfg.Seams.Clock = clock.System()
	}
	cfg.Seams.Files = cmp.Or(cfg.Seams.Files, files.OS)
	schemes, panics := judges(cfg.Schemes)
	cfg.Schemes = schemes
	e := &Engine{
		cfg: cfg, schemePanics: panics, clock: cfg.Seams.Clock, log: cfg.Logger.With("member", cfg.Member),
		stop: make(chan struct{}), done: make(chan struct{}), news: newNews(), started: time.Now(),
	}
	if err := e.open(); err != nil {
		e.undoOpen()
		return nil, err
	}
	e.disk.Patience(cmp.Or(cfg.Seams.Lack, lackPatience)) // only now: a caller of Start wants to know of a full disk
	e.run()
	e.replay()
	e.logStart()
	return e, nil
}

// open acquires what the node needs, in the order in which it can be refused. After an error,
// undoOpen gives back what was acquired.
func (e *Engine) open() error {
	listener, err := e.listen()
	if err != nil {
		return err
	}
	e.listener = listener
	if e.lock, err = replication.LockDir(e.cfg.Seams.Files, e.cfg.Dir); err != nil {
		return err
	}
	if e.disk, err = disk.Open(e.cfg.Seams.Files, e.cfg.Dir); err != nil {
		return err
	}
	e.disk.SetFault(e.cfg.Seams.Fault)
	e.disk.SetReadFault(e.cfg.Seams.Unread)
	e.disk.OnWait(e.diskWaiting)
	if err := e.checkIdentity(); err != nil {
		return err
	}
	if err := e.loadShards(); err != nil {
		return err
	}
	if err := e.checkStart(); err != nil {
		return err
	}
	if err := e.countStart(); err != nil {
		return err
	}
	return e.join()
}

func (e *Engine) listen() (net.Listener, error) {
	if e.cfg.Alone {
		return nil, nil
	}
	addr := func(m uint64) string { return e.cfg.Members[MemberID(m)] }
	e.network = transport.TCP(e.cfg.Listen, addr, e.cfg.TLS)
	if instead := e.cfg.Seams.Network; instead != nil {
		e.network = instead(e.network)
	}
	return e.network.Listen()
}

// checkIdentity checks that the directory belongs to this member, and that images and logs fit.
func (e *Engine) checkIdentity() error {
	id, found, err := replication.ReadIdentity(e.disk, e.cfg.Dir)
	if err != nil {
		return err
	}
	if found {
		if err := e.sameFounding(id); err != nil {
			return err
		}
	} else {
		id = replication.Identity{Digest: e.cfg.founding(), Member: e.cfg.Member, Shards: e.cfg.Shards,
			Ensemble: e.cfg.Ensemble, Peers: make(map[MemberID][16]byte)}
		if _, err := rand.Read(id.Directory[:]); err != nil {
			return err
		}
	}
	for i := range e.cfg.Shards {
		if err := e.checkLog(ShardID(i+1), found, id.Log != ""); err != nil {
			return err
		}
	}
	id.Start++
	e.identity.now = id
	return nil
}

// checkStart compares this start with the starts in the images, and the lineages. The identity file
// may be older than the rest.
func (e *Engine) checkStart() error {
	id := e.identity.now
	if l := e.home().Lineage(); id.Lineage != (session.Lineage{}) && l != (session.Lineage{}) && l != id.Lineage {
		return fmt.Errorf("%s: the identity file is of the lineage %v, the image of %v: part of the directory is from another ensemble; %s", e.cfg.Dir, id.Lineage, l, replication.WayOut)
	}
	for _, r := range e.shards {
		o, _ := r.Origin(session.MemberID(id.Member))
		if err := checkOrigin(e.cfg.Dir, o, id.Start); err != nil {
			return err
		}
	}
	return nil
}

// checkOrigin compares the next start with the newest start that a shard knows of. newest.Start is
// zero if the shard knows of none.
func checkOrigin(dir string, newest session.Origin, start uint64) error {
	if newest.Start >= start {
		return fmt.Errorf("%s: the identity file counts start %d, start %d has registered: part of the directory is from another time; %s", dir, start, newest.Start, replication.WayOut)
	}
	return nil
}

// countStart makes the start durable. By now, everything for which the directory can be refused has
// been checked.
func (e *Engine) countStart() error {
	return replication.WriteIdentity(e.disk, e.cfg.Dir, e.identity.now)
}

func (e *Engine) sameFounding(id replication.Identity) error {
	switch {
	case id.Member != e.cfg.Member:
		return fmt.Errorf("%s belongs to member %d, the config says %d", e.cfg.Dir, id.Member, e.cfg.Member)
	case id.Ensemble != e.cfg.Ensemble:
		return fmt.Errorf("%s belongs to the ensemble %q, the config says %q", e.cfg.Dir, id.Ensemble, e.cfg.Ensemble)
	case id.Shards != e.cfg.Shards:
		return fmt.Errorf("%s was founded with Shards %d, the config says %d: the number is fixed at founding, so set it to %d, or found another ensemble in empty directories", e.cfg.Dir, id.Shards, e.cfg.Shards, id.Shards)
	case id.Log != "" && id.Log != replication.LogTan:
		return fmt.Errorf("%s has a raft log of the type %q, this version reads %q", e.cfg.Dir, id.Log, replication.LogTan)
	case id.Digest != e.cfg.founding():
		return e.otherMembers(id)
	}
	return nil
}

// otherMembers returns the error for a directory with other members. It names those that the
// directory has met, because the digest does not.
func (e *Engine) otherMembers(id replication.Identity) error {
	wanted, met := "none", ""
	if !e.cfg.Alone {
		wanted = listed(e.cfg.memberIDs())
	}
	if len(id.Peers) > 0 {
		met = "; it has met members " + listed(slices.Sorted(maps.Keys(id.Peers)))
	}
	return fmt.Errorf("%s was founded with other members than the config names (%s): ids of Members are fixed at founding, addresses are not%s",
		e.cfg.Dir, wanted, met)
}

// listed formats ids for a text: 1, 2, 3.
func listed(ids []MemberID) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ", ")
}

// checkLog compares the image with the log, through a view of the directory that changes nothing.
// If founded, the directory has an identity file. If logged, it had a log.
func (e *Engine) checkLog(id ShardID, founded, logged bool) error {
	view := e.disk.View()
	var x extent
	var err error
	if x.applied, _, err = storage.Peek(storage.Options{Disk: view, Dir: e.imageDir(id), Logger: e.log}); err != nil {
		return err
	}
	cfg := e.hostConfig()
	cfg.Disk = view
	if x.log, err = replication.CheckLog(cfg, id, x.applied, new(command.Reader).Check); err != nil {
		return err
	}
	e.found = append(e.found, transport.ShardState{Term: x.log.Term, Vote: uint64(x.log.Vote), Last: x.log.Last})
	return x.check(e.cfg.Dir, founded, logged)
}

// extent says how far the image and the log of a shard reach.
type extent struct {
	applied uint64 // the newest entry in the image; zero if it has none
	log     replication.Log
}

// check returns why image and log do not fit together, or nil. If the log is missing or ends before
// the image, Raft would treat entries as applied that this replica never saw. And a member without
// its log would vote against what it has acknowledged. If founded, the directory has an identity
// file. If logged, it had a log.
func (x extent) check(dir string, founded, logged bool) error {
	switch {
	case (x.applied > 0 || x.log.Exists) && !founded:
		return errNoIdentity(dir)
	case logged && !x.log.Exists:
		return fmt.Errorf("%s: the raft log is missing: part of the directory is lost; %s", dir, replication.WayOut)
	case x.applied > 0 && (!x.log.Exists || x.log.Last < x.applied):
		return fmt.Errorf("%s: the image holds entries up to %d, the raft log ends at %d: part of the directory is lost or from another time; %s", dir, x.applied, x.log.Last, replication.WayOut)
	case x.log.Exists && x.log.First > x.applied+1:
		return fmt.Errorf("%s: the raft log begins at %d, the image holds entries up to %d only: part of the directory is lost or from another time; %s", dir, x.log.First, x.applied, replication.WayOut)
	}
	return nil
}

func errNoIdentity(dir string) error {
	return fmt.Errorf("%s holds data but its identity file is missing; %s", dir, replication.WayOut)
}

// imagesName is the name of the directory that has the images.
const imagesName = "image"

func (e *Engine) imageDir(id ShardID) string { return imageDir(e.cfg.Dir, id) }

func imageDir(dir string, id ShardID) string {
	return filepath.Join(dir, imagesName, fmt.Sprintf("shard-%d", id))
}

func (e *Engine) hostConfig() replication.Config {
	return replication.Config{
		Dir: e.cfg.Dir, Disk: e.disk, Member: e.cfg.Member, Members: e.cfg.memberIDs(), Shards: e.cfg.Shards,
		Digest: e.cfg.founding(), Tick: e.cfg.Tick, Logger: e.log, LeaderChanged: e.leaderChanged,
		KeepEntries: e.cfg.Seams.Keep,
	}
}

// loadShards reads the images of all shards into memory. It reads them one by one, which bounds the
// memory that loading takes.
func (e *Engine) loadShards() error {
	for i := range e.cfg.Shards {
		if err := e.loadShard(ShardID(i + 1)); err != nil {
			return err
		}
	}
	e.purger = replica.NewPurger(e.shards, callbacks{e}, e.cfg.Member, e.log)
	return nil
}

// loadShard reads a shard's image into memory.
func (e *Engine) loadShard(id ShardID) error {
	image, err := storage.Open(storage.Options{Disk: e.disk, Dir: e.imageDir(id), Logger: e.log})
	if err != nil {
		return err
	}
	me := e.identity.now
	r := e.newReplica(id, callbacks{e}, callbacks{e}, session.Origin{Member: session.MemberID(me.Member), Start: me.Start, Directory: me.Directory, Digest: me.Digest, Level: e.cfg.levelMax()})
	return r.Load(image)
}

// newReplica adds a shard: its replica, without the image, and its outbox. The first call also
// makes the keeper.
func (e *Engine) newReplica(id ShardID, raft replica.Raft, node replica.Node, origin session.Origin) *replica.Replica {
	rules := command.Rules{Schemes: slices.Sorted(maps.Keys(e.cfg.Schemes)), TreeMax: e.cfg.MaxTreeSize}
	out := outbox.New(id, raft, e.clock, origin, rules, callbacks{e})
	if id == command.HomeShard {
		e.keeper = keeper.New(keeper.Options{Node: callbacks{e}, Clock: e.clock, RequestTimeout: e.cfg.RequestTimeout,
			RequestBytesMax: e.cfg.requestBytesMax(), LeastTimeout: e.cfg.MinSessionTimeout})
	}
	e.keeper.AddOutbox(out)
	var members []session.MemberID
	for _, m := range e.cfg.memberIDs() {
		members = append(members, session.MemberID(m))
	}
	r := replica.New(replica.Options{Shard: id, Node: node, Raft: raft, Outbox: out, Schemes: e.cfg.Schemes, Member: e.cfg.Member, Members: members,
		TimeoutMin: SessionTimeoutFloor(e.cfg.Tick), ReapEvery: e.cfg.ContainerCheckInterval, Log: e.log})
	r.Portion = cmp.Or(e.cfg.Seams.Portion, r.Portion)
	e.shards = append(e.shards, r)
	e.registries.Of, e.registries.Registries = e.watchedOn, append(e.registries.Registries, r.Watches)
	return r
}

// runID returns a random name for this run of a node. Two nodes that were started on copies of one
// directory differ only in this.
func runID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// join starts the transport and the Raft groups.
func (e *Engine) join() error {
	id := e.identity.now
	targets := make(map[string]uint64)
	var members []uint64
	for _, m := range e.cfg.memberIDs() {
		targets[replication.UUID(id.Digest, m)] = uint64(m)
		members = append(members, uint64(m))
	}
	e.transport = transport.New(transport.Options{
		Self: transport.Identity{Digest: id.Digest, Member: uint64(id.Member), Directory: id.Directory, Start: id.Start,
			Run: runID(), Tick: e.cfg.Tick, Levels: transport.Levels{Min: LevelMin, Max: e.cfg.levelMax()}, Shards: e.found},
		Founding: fmt.Sprintf("Ensemble %q, Members %s and Shards %d", e.cfg.Ensemble, listed(e.cfg.memberIDs()), e.cfg.Shards),
		Held:     e.held, Level: e.highestLevel, Lineage: e.lineage,
		Members: members, Shards: uint64(e.cfg.Shards), Network: e.network, Listener: e.listener,
		Accept: e.accept, Refused: e.refused, Logger: e.log,
		Target: func(uuid string) (uint64, bool) { m, ok := targets[uuid]; return m, ok },
	})
	e.listener = nil // the transport has it now
	cfg := e.hostConfig()
	cfg.Transport = e.transport
	host, err := replication.Open(cfg)
	if err != nil {
		return err
	}
	e.host.Store(host)
	for _, r := range e.shards {
		if err := host.StartShard(r.Shard, r); err != nil {
			return err
		}
	}
	return nil
}

// logStart logs that the node has started. At the first start it also logs what was founded.
func (e *Engine) logStart() {
	e.identity.Lock()
	id := e.identity.now
	e.identity.Unlock()
	directory := fmt.Sprintf("%x", id.Directory)
	if id.Start == 1 {
		e.news.tell(slog.LevelInfo, "founded", "ensemble", id.Ensemble, "members", e.cfg.memberIDs(), "shards", id.Shards, "directory", directory)
	}
	e.news.tell(slog.LevelInfo, "started", "dir", e.cfg.Dir, "directory", directory, "start", id.Start, "took", time.Since(e.started))
}

// replay waits until this node has applied what its logs know to be committed. That is at most what
// a log may hold after its newest snapshot; see snapshotEntries in package replication. It ends
// early if the node fails.
func (e *Engine) replay() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for _, r := range e.shards {
		for known := e.host.Load().CommittedAtStart(r.Shard); r.Index() < known; {
			select {
			case <-look.C:
			case <-e.done:
				return
			}
		}
	}
}

// accept decides whether a peer with the right founding digest may talk to this node.
func (e *Engine) accept(peer transport.Identity) error {
	if err := e.recognise(peer); err != nil {
		return err
	}
	return e.compareHistory(peer)
}

// recognise compares the random id of a peer's directory. A member that returns with another id has
// lost its log, and its vote could undo what it has acknowledged. The table knows the id from the
// member's Register. Before that, the first handshake decides, and is remembered.
func (e *Engine) recognise(peer transport.Identity) error {
	m := MemberID(peer.Member)
	o, registered := e.home().Origin(session.MemberID(m))
	known := o.Directory
	e.identity.Lock()
	defer e.identity.Unlock()
	if !registered {
		known, registered = e.identity.now.Peers[m]
		if !registered {
			return e.rememberLocked(m, peer.Directory)
		}
	}
	if known != peer.Directory {
		return fmt.Errorf("the directory of member %d is new, the ensemble knows member %d by another (%x, not %x): it must not vote as its old self; %s", m, m, known, peer.Directory, replication.WayOut)
	}
	if peer.Start < o.Start {
		return fmt.Errorf("start %d of member %d is over, start %d has registered: another process runs on this directory or a copy of it", peer.Start, m, o.Start)
	}
	return nil
}

// compareHistory refuses a peer that knows an entry to be committed where this node has another
// entry. Some member was restored to an earlier state and let the others elect a leader without the
// entry. No one can tell now which member it was. The peer must stop, because the newer leader has
// this node's log.
func (e *Engine) compareHistory(peer transport.Identity) error {
	host := e.host.Load()
	if host == nil {
		return nil
	}
	for i, s := range peer.Shards[:min(len(peer.Shards), e.cfg.Shards)] {
		if index, term, yes := host.Contradicts(ShardID(i+1), replication.Held(s.Held)); yes {
			return &transport.Refusal{Kind: transport.ErrOtherHistory, Text: fmt.Sprintf(
				"shard %d: member %d knows entry %d to be committed, of term %d; on member %d entry %d is of term %d: acknowledged writes are lost there, because the directory of some member was put back to an earlier state (docs/runbook.md: Two histories)",
				i+1, peer.Member, s.Held.Commit, s.Held.CommitTerm, e.cfg.Member, index, term)}
		}
	}
	return nil
}

// held returns what this node tells peers about a shard's log. Here shards count from 0.
func (e *Engine) held(shard int) transport.Held {
	if host := e.host.Load(); host != nil {
		return transport.Held(host.Held(ShardID(shard + 1)))
	}
	return transport.Held{}
}

func (e *Engine) rememberLocked(m MemberID, directory [16]byte) error {
	next := e.identity.now
	next.Peers = make(map[MemberID][16]byte, len(e.identity.now.Peers)+1)
	for k, v := range e.identity.now.Peers {
		next.Peers[k] = v
	}
	next.Peers[m] = directory
	if err := replication.WriteIdentity(e.disk, e.cfg.Dir, next); err != nil {
		e.fail(fmt.Errorf("remembering the directory of member %d: %w", m, err)) // cuts the connection, so the peer gets no verdict
		return err
	}
	e.identity.now = next
	return nil
}

// refused handles the refusal of this node by a peer. A refusal of its directory is final. Another
// founding digest or tick may be the peer's mistake, so Ready reports that.
func (e *Engine) refused(peer uint64, reason error) {
	if no := (*transport.Refusal)(nil); errors.As(reason, &no) && no.Final() {
		e.fail(fmt.Errorf("refused by member %d: %w", peer, reason))
	}
}

// run starts the node's loops. Close stops them.
func (e *Engine) run() {
	e.loops.Go(e.failureLoop)
	e.loops.Go(func() { e.keeper.Loop(e.stop) })
	for _, r := range e.shards {
		e.loops.Go(r.Outbox.Loop)
		e.loops.Go(func() { r.ExpireLoop(e.stop, e.done) })
		e.loops.Go(func() { r.ReapLoop(e.stop, e.done) })
	}
	e.loops.Go(func() { e.purger.Loop(e.stop, e.done) })
	e.loops.Go(e.reportLoop)
	e.loops.Go(e.whenReady)
	e.loops.Go(func() { schemesLoop(e.log, e.schemePanics, e.stop) })
	e.loops.Go(e.spreadLoop)
	e.loops.Go(e.raiseLoop)
	e.loops.Go(e.lineageLoop)
	for _, r := range e.shards {
		r.Outbox.Signal()
	}
}

// lackPatience is how long a running node waits for disk space or a file descriptor before it
// fails. Meanwhile it is silent, as on a disk that hangs: the others elect another leader, and its
// sessions end by their own clocks. A minute outlasts the usual peaks: a log rotation, a build, a
// burst of connections.
const lackPatience = time.Minute

// diskWaiting logs that the node waits for what it lacks. With nil it logs that the wait is over.
func (e *Engine) diskWaiting(lacking error) {
	if lacking != nil {
		e.log.Warn("no disk space or no file descriptors: the node waits", "cause", lacking)
		return
	}
	e.log.Info("the node no longer waits for disk space or file descriptors")
}
