package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/census"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/entry"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/identity"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/levels"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/peers"
	"github.com/vivarium-go/vivarium/engine/petition"
	"github.com/vivarium-go/vivarium/engine/presence"
	"github.com/vivarium-go/vivarium/engine/recovery"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/engine/scheme"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/engine/spread"
	"github.com/vivarium-go/vivarium/internal/crowd"
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
	e := newEngine(cfg)
	if err := e.open(); err != nil {
		e.undoOpen()
		return nil, err
	}
	e.meters.endPhase(phaseOpen, time.Since(e.started))
	e.health.WatchSlow() // only now: a start is not slow
	for _, r := range e.shards {
		e.health.WatchInstalls(r)
	}
	close(e.opened)
	e.disk.Patience(cmp.Or(cfg.Seams.Lack, lackPatience)) // only now: a caller of Start wants to know of a full disk
	e.run()
	if e.roster.Self() == 0 {
		e.entering = make(chan struct{})
		e.loops.Go(e.enter)
		return e, nil
	}
	e.runMember()
	e.replay()
	e.meters.endPhase(phaseReplay, time.Since(e.started))
	e.logStart()
	return e, nil
}

// newEngine returns a node that has touched nothing yet.
func newEngine(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, clock: cfg.Seams.Clock,
		opened: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		ended: make(chan struct{}), departed: make(chan struct{}), closed: make(chan struct{}),
		cramped: make(chan struct{}, 1), started: time.Now(), runID: runID(),
	}
	e.above = callbacks{e}
	e.Tables = &census.Tables{Timeout: cfg.RequestTimeout, Over: e.over, Done: e.done}
	e.identity = &datadir.IdentityFile{Dir: cfg.Dir}
	e.roster = roster.New(e.identity, cfg.Members, cfg.Logger)
	e.log = e.roster.Log
	e.health = health.New(health.Options{
		Lacks: health.Lacks{Node: callbacks{e}, Roster: e.roster, Alone: cfg.Alone},
		Host:  e.host.Load, Log: e.log, Limit: cfg.Slow, Started: e.started, Stop: e.stop,
		Shortest: ShortestElection(cfg.Tick), Longest: LongestElection(cfg.Tick),
	})
	e.reach, e.endReach = context.WithCancel(context.Background())
	e.Presence = presence.New(presence.Options{
		Node: callbacks{e}, Roster: e.roster, Recent: &e.health.Recent,
		Name: cfg.Name, Zone: cfg.Zone, Address: cfg.Advertise, Observer: cfg.Observer,
		Election: LongestElection(cfg.Tick), Changed: cfg.MembersChanged, Reach: e.reach, Done: e.done,
	})
	e.cfg.Schemes = scheme.Judges(cfg.Schemes, e.log)
	return e
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
	e.identity.Disk, e.health.Disk = e.disk, e.disk.Meters()
	e.space.ask = func() (Space, error) { return askSpace(e.disk, e.cfg.Dir) }
	e.disk.SetFault(e.cfg.Seams.Fault)
	e.disk.SetReadFault(e.cfg.Seams.Unread)
	e.disk.OnWait(e.diskWaiting)
	check := &identity.Check{File: e.identity, Roster: e.roster, Host: e.hostConfig,
		Member: e.cfg.Member, Alone: e.cfg.Alone, Ensemble: e.cfg.Ensemble, Shards: e.cfg.Shards, Directory: e.cfg.Directory}
	if e.found, err = check.Identity(); err != nil {
		return err
	}
	warnReadable(e.disk, e.cfg.Dir, e.log)
	warnFiles(e.cfg.Shards, e.log)
	joining := e.identity.Now().Member == 0
	if joining { // its directory id is durable before anybody is asked, and there is nothing else
		if err := e.former().SetAside(); err != nil {
			return err
		}
		if err := e.former().LeaveRoom(); err != nil {
			return err
		}
		if err := e.identity.Write(); err != nil {
			return err
		}
	}
	if err := e.loadShards(); err != nil {
		return err
	}
	if joining {
		e.newTransport()
		return e.transport.Open()
	}
	if err := check.Start(e.shards); err != nil {
		return err
	}
	if err := e.identity.Write(); err != nil {
		return err
	}
	e.newTransport()
	if err := e.become(e.identity.Now()); err != nil {
		return err
	}
	return recovery.Complete(recovery.Options{Dir: e.cfg.Dir, Forest: e.shards, Roster: e.roster, Host: e.host.Load(), Disk: e.disk,
		Timeout: e.cfg.RequestTimeout, Wall: e.clock.Wall, Lacking: e.health.Explain})
}

func (e *Engine) listen() (net.Listener, error) {
	if e.cfg.Alone {
		return nil, nil
	}
	e.network = transport.TCP(e.cfg.Listen, e.cfg.TLS, e.cfg.PlainToo)
	if instead := e.cfg.Seams.Network; instead != nil {
		e.network = instead(e.network)
	}
	return e.network.Listen()
}

// loadShards reads the images of all shards into memory. It reads them one by one, which bounds the
// memory that loading takes.
func (e *Engine) loadShards() error {
	for i := range e.cfg.Shards {
		if err := e.loadShard(ShardID(i + 1)); err != nil {
			return err
		}
	}
	e.loaded()
	e.purger = replica.NewPurger(e.shards, callbacks{e}, e.log)
	e.backups = backups.New(backups.Options{
		Node: callbacks{e}, Forest: e.shards, Roster: e.roster,
		Ensemble: e.cfg.Ensemble, Behind: e.cfg.backupBehind(), Private: e.cfg.Admit != nil,
		Timeout: e.cfg.RequestTimeout, Wall: e.clock.Wall, Work: &e.health.Slow.Work.Backups, Done: e.done,
	})
	e.seeding = seeding.New(seeding.Options{
		Node: callbacks{e}, Shards: e.shards, Open: e.cfg.Seed, Part: e.cfg.seedPart(),
		Wall: e.clock.Wall, Started: e.started, Log: e.log,
	})
	return nil
}

// loadShard reads a shard's image into memory.
func (e *Engine) loadShard(id ShardID) error {
	image, err := storage.Open(storage.Options{Disk: e.disk, Dir: datadir.ImageDir(e.cfg.Dir, id), Logger: e.log,
		Flushes: &e.health.Slow.Work.Flushes, Compactions: &e.health.Slow.Work.Compactions})
	if err != nil {
		return err
	}
	r := e.newReplica(id, callbacks{e}, callbacks{e}, e.origin(e.identity.Now()))
	return r.Load(image)
}

// origin returns what a member registers with.
func (e *Engine) origin(me replication.Identity) session.Origin {
	return session.Origin{Member: session.MemberID(me.Member), Start: me.Start, Directory: me.Directory, Digest: me.Digest, Level: e.cfg.levelMax()}
}

// newReplica adds a shard: its replica, without the image, and its outbox. The first call also
// makes the keeper.
func (e *Engine) newReplica(id ShardID, raft replica.Raft, node replica.Node, origin session.Origin) *replica.Replica {
	rules := command.Rules{Schemes: slices.Sorted(maps.Keys(e.cfg.Schemes)), TreeMax: e.cfg.MaxTreeSize}
	out := outbox.New(id, raft, e.clock, origin, rules, callbacks{e})
	if id == command.HomeShard {
		e.keeper = keeper.New(keeper.Options{Node: callbacks{e}, Clock: e.clock, RequestTimeout: e.cfg.RequestTimeout,
			RequestBytesMax: e.cfg.requestBytesMax(), LeastTimeout: e.cfg.MinSessionTimeout,
			JumpMin: e.health.Slow.ClockJump(), Jumped: e.health.Jumped, Noted: e.health.NoteSessions})
	}
	e.keeper.AddOutbox(out)
	r := replica.New(replica.Options{Shard: id, Node: node, Raft: raft, Outbox: out, Schemes: e.cfg.Schemes, Founders: roster.SessionIDs(e.roster.Founders()),
		TimeoutMin: SessionTimeoutFloor(e.cfg.Tick), ReapEvery: e.cfg.ContainerCheckInterval, Log: e.log, Audit: e.cfg.Audit})
	r.Portion = cmp.Or(e.cfg.Seams.Portion, r.Portion)
	e.shards = append(e.shards, r)
	e.registries.Of, e.registries.Registries = e.shards.WatchedOn, append(e.registries.Registries, r.Watches)
	return r
}

// runID returns a random name for this run of a node. Two nodes that were started on copies of one
// directory differ only in this.
func runID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// newTransport makes the transport of a node that may not be a member yet.
func (e *Engine) newTransport() {
	id, highest := e.identity.Now(), uint16(0)
	if e.cfg.Seams.Next {
		highest = transport.VersionNext
	}
	door := &peers.Doorkeeper{Node: callbacks{e}, Forest: e.shards, Roster: e.roster, Host: e.host.Load, Opened: e.opened}
	e.transport = transport.New(transport.Options{
		Self:    e.peerIdentity(replication.Identity{Directory: id.Directory, Start: id.Start}),
		Highest: highest, Shards: uint64(e.cfg.Shards), Network: e.network, Listener: e.listener,
		Held: door.Held, Accept: door.Accept, Refused: door.Refused, Answer: e.answer,
		Level:    func() uint32 { return replica.HighestLevel(e.shards) },
		Lineage:  func() [16]byte { return e.roster.Lineage() },
		Ancestor: func(l [16]byte) bool { return slices.Contains(e.roster.Ancestors(), l) },
		Members:  e.roster.PeerIDs, Knows: e.roster.Knows, Learner: e.roster.IsLearner,
		Address: func(m uint64) string { return e.roster.NextAddress(MemberID(m)) },
		Met:     func(m uint64, address string) { e.roster.Met(MemberID(m), address) },
		Target:  func(uuid string) (uint64, bool) { m, ok := e.names.Member(uuid); return uint64(m), ok },
		Counted: e.health.WatchPeer, Noted: e.health.NotePeer, Logger: e.log,
	})
	e.listener = nil // the transport has it now
	e.health.Transport = e.transport
	e.Petitioner = &petition.Petitioner{
		Node: callbacks{e}, Roster: e.roster, Transport: e.transport,
		Shards: len(e.shards), Timeout: e.cfg.RequestTimeout, Done: e.done,
	}
	e.Levels = &levels.Raiser{
		Node: callbacks{e}, Forest: e.shards, Roster: e.roster, Transport: e.transport, Network: e.network,
		Host: e.host.Load, GaveUp: e.Petitioner.GaveUp, Read: e.cfg.levelRead(), Agreed: e.cfg.levelMax(),
		Timeout: e.cfg.RequestTimeout, Reach: e.reach, Done: e.done,
	}
	e.entry = entry.New(entry.Options{
		Roster: e.roster, Transport: e.transport, Network: e.network,
		Member: e.cfg.Member, Members: e.cfg.Members, Alone: e.cfg.Alone, Join: e.cfg.Join, Found: e.cfg.Found,
		Ensemble: e.cfg.Ensemble, Shards: e.cfg.Shards, Tick: e.cfg.Tick, Levels: e.cfg.levels(),
		Schemes: slices.Sorted(maps.Keys(e.cfg.Schemes)), Observer: e.cfg.Observer,
		Name: e.cfg.Name, Zone: e.cfg.Zone, Advertise: e.cfg.Advertise,
	})
	e.Presence.Entry, e.Presence.Transport, e.Presence.Outbox = e.entry, e.transport, e.home().Outbox
}

// peerIdentity returns what a node says to its peers about itself.
func (e *Engine) peerIdentity(me replication.Identity) transport.Identity {
	return transport.Identity{Digest: me.Digest, Member: uint64(me.Member), Directory: me.Directory, Start: me.Start, Run: e.runID,
		Tick: e.cfg.Tick, Levels: e.cfg.levels(), Shards: e.found, Address: e.cfg.Advertise}
}

// become makes the node a member: it starts the Raft groups. It is called once.
func (e *Engine) become(me replication.Identity) error {
	founders := me.Founders
	for _, r := range e.shards {
		r.Become(e.origin(me), roster.SessionIDs(founders))
	}
	e.roster.Become(me)
	e.names = replication.NewNames(me.Digest)
	e.governor = governor.New(governor.Options{
		Node: callbacks{e}, Roster: e.roster, Shards: e.shards, Transport: e.transport, Host: e.host.Load,
		Ensemble: e.cfg.Ensemble, Tick: e.cfg.Tick, Election: LongestElection(e.cfg.Tick),
		RequestTimeout: e.cfg.RequestTimeout, Voters: e.cfg.Voters, DeadAfter: e.cfg.DeadAfter, Admit: e.cfg.Admit,
		Reach: e.reach, Done: e.done,
	})
	e.Petitioner.Governor = e.governor
	e.roster.NoteOwnPart()
	e.transport.Become(e.peerIdentity(me), entry.Settings(e.cfg.Ensemble, founders, e.cfg.Shards))
	cfg := e.hostConfig(me)
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

// loaded tells all who look at the replicas that they are loaded.
func (e *Engine) loaded() {
	e.roster.Load(e.shards)
	e.health.Forest, e.Tables.Forest = e.shards, e.shards
}

// enter finds out who this node is, and makes it that member.
func (e *Engine) enter() {
	defer close(e.entering)
	me, ok := e.entry.Find(e.reach)
	if !ok {
		return
	}
	if err := e.become(me); err != nil {
		e.fail(err)
		return
	}
	e.runMember()
	e.logStart()
}

// logStart logs that the node has started. At the first start it also logs what was founded.
func (e *Engine) logStart() {
	id := e.identity.Now()
	directory := fmt.Sprintf("%x", id.Directory)
	switch {
	case id.Log == "" && id.Joined:
		e.log.Info("joined", "ensemble", id.Ensemble, "shards", id.Shards, "directory", directory, "lineage", session.Lineage(id.Lineage).String())
	case id.Log == "" && id.Start == 1:
		e.log.Info("founded", "ensemble", id.Ensemble, "members", id.Founders, "shards", id.Shards, "directory", directory)
	}
	e.log.Info("started", "dir", e.cfg.Dir, "directory", directory, "start", id.Start, "version", e.cfg.Version, "took", time.Since(e.started))
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

// run starts the loops of every node. Close stops them.
func (e *Engine) run() {
	e.loops.Go(e.failureLoop)
	if e.cfg.TLS != nil && !e.cfg.Alone {
		e.cfg.TLS.OnChange(func() { e.health.Recent.Note(health.Occurrence{Kind: health.TLSReloaded}) })
		e.loops.Go(func() { e.cfg.TLS.Loop(e.log, e.stop) })
		if e.cfg.PlainToo {
			e.log.Warn("plain text is allowed between members")
		}
	}
	e.loops.Go(func() { e.keeper.Loop(e.stop) })
	e.loops.Go(e.health.Loop)
	e.loops.Go(e.crampedLoop)
}

// runMember starts the loops of a member. Close stops them.
func (e *Engine) runMember() {
	for _, r := range e.shards {
		e.loops.Go(r.Outbox.Loop)
		e.loops.Go(func() { r.ExpireLoop(e.stop, e.done) })
		e.loops.Go(func() { r.ReapLoop(e.stop, e.done) })
		e.loops.Go(func() { r.SaveLoop(e.stop, e.done) })
	}
	e.loops.Go(func() { e.purger.Loop(e.stop, e.done) })
	e.loops.Go(e.whenReady)
	if !e.cfg.Alone && len(e.shards) > 1 { // else there is nothing to spread
		shares := &spread.Spreader{
			Node: callbacks{e}, Forest: e.shards, Roster: e.roster, Host: e.host.Load(),
			Election: LongestElection(e.cfg.Tick), Reach: e.reach, Done: e.done,
		}
		e.loops.Go(shares.Loop)
	}
	e.loops.Go(e.Levels.Loop)
	e.loops.Go(e.Presence.Loop)
	if e.cfg.Seed != nil {
		e.loops.Go(func() { e.seeding.Run(e.whole()) })
	}
	e.governor.Run()
	for _, r := range e.shards {
		r.Outbox.Signal()
	}
}

// whole returns a context that lasts as long as the node.
func (e *Engine) whole() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-e.stop:
		case <-e.done:
		}
		cancel()
	}()
	return ctx
}

// lackPatience is how long a running node waits for disk space or a file descriptor before it
// fails. Meanwhile it is silent, as on a disk that hangs: the others elect another leader, and its
// sessions end by their own clocks. A minute outlasts the usual peaks: a log rotation, a build, a
// burst of connections.
const lackPatience = time.Minute

// diskWaiting is called when the node waits for what its disk lacks, and with nil when it no longer does.
func (e *Engine) diskWaiting(lacking error) {
	e.health.DiskWaits(lacking)
	if errors.Is(lacking, syscall.ENOSPC) || errors.Is(lacking, syscall.EDQUOT) {
		ring(e.cramped)
	}
}

// warnReadable warns if others on the machine may read what the directory has. What the node makes is
// for its owner alone, but the directory may be a copy.
func warnReadable(d *disk.Disk, dir string, log *slog.Logger) {
	const enter, read = 0o001, 0o004
	names, err := d.List(dir)
	if info, failed := d.Stat(dir); err != nil || failed != nil || info.Mode().Perm()&enter == 0 {
		return
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := d.Stat(path); err == nil && info.Mode().Perm()&read != 0 {
			log.Warn("everybody on the machine may read the node's data", "file", path, "mode", info.Mode().String())
			return
		}
	}
}

// warnFiles logs if the process may open fewer files than the node may need.
func warnFiles(shards int, log *slog.Logger) {
	if files, want, lacks := crowd.Lacks(shards); lacks {
		log.Warn("this process may open fewer files than the node may need", "files", files, "want", want)
	}
}
