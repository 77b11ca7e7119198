package engine

import (
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/watch"
)

// Figures are what a node knows of itself, for its metrics. They are a moment's view: parts of them
// may be newer than others. A pointer is nil if the node does not know what it points to, or could
// not look within lookPatience. Counters and histograms go on counting.
type Figures struct {
	Over     bool // the node has failed or is closed
	Failed   bool
	Level    uint32 // the feature level of the ensemble
	LevelMax uint32 // the highest that this node agrees to
	Shards   []ShardFigures
	Peers    []PeerFigures // without those of a node that is over

	Sessions *keeper.Figures
	Life     *keeper.Meters
	Fsyncs   *disk.Meters
	Space    *Space
	Started  time.Time
	Starts   []StartTime // of the phases of the start that have ended
}

// ShardFigures are those of one shard.
type ShardFigures struct {
	Shard     ShardID
	Leader    Leader
	Leads     bool // this node leads it
	Committed *uint64
	State     replica.Figures
	Queue     *outbox.Figures

	Counts  *replica.Counts
	Watches *watch.Figures

	Outbox    *outbox.Meters
	Replica   *replica.Meters
	Raft      *replication.Meters // nil until the node is a member
	Leaders   *meter.Counter
	Transfers *[TransferCauses]meter.Counter
}

// PeerFigures are what a node knows of another member and its connections.
type PeerFigures struct {
	transport.Peer
	Meters *transport.Meters // nil if nothing was counted
}

// Space is what the file system of the node's directory has, and what the Raft log and the images
// use of it, in bytes.
type Space struct{ Free, Size, Log, Image uint64 }

// Figures looks at what the node has in memory, and at the space on its disk. It never waits for
// long, whatever stands still, and works at any time.
func (e *Engine) Figures() Figures {
	until := time.Now().Add(lookPatience)
	over := e.silenced()
	f := Figures{
		Over: over, Failed: e.disk.Err() != nil || e.Err() != nil,
		Level: e.Levels().Level(), LevelMax: e.cfg.levelMax(), Shards: make([]ShardFigures, len(e.shards)),
		Life: &e.keeper.Meters, Fsyncs: e.disk.Meters(),
		Started: e.started, Starts: e.startTimes(),
	}
	for i, r := range e.shards {
		e.lookAtShard(&f.Shards[i], r)
	}
	if over {
		return f
	}
	for _, p := range e.transport.Peers() {
		f.Peers = append(f.Peers, PeerFigures{p, e.transport.Meters(p.Member)})
	}
	looks := []func() bool{into(&f.Sessions, e.keeper.TryFigures)}
	for i, r := range e.shards {
		s, queue := &f.Shards[i], r.Outbox.Figures()
		s.Queue = &queue
		looks = append(looks, into(&s.Watches, r.Watches.TryFigures), into(&s.Counts, r.TryCount))
	}
	lookUntil(until, looks)
	f.Space = e.space.look(until, e.askSpace)
	return f
}

// lookAtShard looks at what needs no lock that may be busy for long.
func (e *Engine) lookAtShard(s *ShardFigures, r *replica.Replica) {
	leader := e.Leader(r.Shard)
	*s = ShardFigures{
		Shard: r.Shard, Leader: leader, Leads: leader.Member != 0 && leader.Member == e.roster.Self(),
		State: r.Figures(), Outbox: &r.Outbox.Meters, Replica: &r.Meters,
		Leaders: &e.meters.leaders[r.Shard-1], Transfers: &e.meters.transfers[r.Shard-1],
	}
	host := e.host.Load()
	if host == nil {
		return
	}
	s.Raft = host.Meters(r.Shard)
	if committed := host.Committed(r.Shard); committed > 0 {
		s.Committed = &committed
	}
}

// A spaceLook asks the file system for its space, once at a time. A file system that hangs may not
// answer, so the question has a goroutine of its own, which ends with the answer.
type spaceLook struct{ now atomic.Pointer[spaceAnswer] }

// A spaceAnswer is what all wait for who ask at the same time.
type spaceAnswer struct {
	done  chan struct{}
	space *Space // nil if the file system cannot tell; set before done
}

// look returns what ask says, or nil if it fails or does not return in time.
func (l *spaceLook) look(until time.Time, ask func() (Space, error)) *Space {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	a := l.begin(ask)
	select {
	case <-a.done:
		return a.space
	case <-timer.C:
		return nil
	}
}

// begin returns the answer that is under way. If there is none, it asks.
func (l *spaceLook) begin(ask func() (Space, error)) *spaceAnswer {
	for {
		if a := l.now.Load(); a != nil {
			return a
		}
		a := &spaceAnswer{done: make(chan struct{})}
		if !l.now.CompareAndSwap(nil, a) {
			continue
		}
		go func() {
			if space, err := ask(); err == nil {
				a.space = &space
			}
			l.now.Store(nil)
			close(a.done)
		}()
		return a
	}
}

// Space returns what the node's disk has, or nil if it does not say so in time.
func (e *Engine) Space(patience time.Duration) *Space {
	return e.space.look(time.Now().Add(patience), e.askSpace)
}

// Version returns the version of the build.
func (e *Engine) Version() string { return e.cfg.Version }

// askSpace asks the file system. It waits for it.
func (e *Engine) askSpace() (s Space, err error) {
	if s.Free, s.Size, err = e.disk.Space(); err != nil {
		return s, err
	}
	if s.Log, err = e.disk.Usage(filepath.Join(e.cfg.Dir, "raft")); err != nil {
		return s, err
	}
	s.Image, err = e.disk.Usage(filepath.Join(e.cfg.Dir, datadir.ImagesName))
	return s, err
}

// meters count what the engine itself does. The rooms below have their own.
type meters struct {
	leaders   [MaxShards]meter.Counter // new leaders or terms that this node has learned of
	transfers [MaxShards][TransferCauses]meter.Counter
	phases    [phases]atomic.Int64 // how long each took, in nanoseconds; zero: it has not ended
}

// A TransferCause is why this node has asked for a leadership to be transferred.
type TransferCause int

// The causes.
const (
	TransferLag      TransferCause = iota // its replica lags behind the log
	TransferAsked                         // somebody called TransferLeadership
	TransferShare                         // the shard is its share
	TransferShutdown                      // it shuts down
	TransferCauses                        // how many there are
)

// String returns the cause as the metrics name it.
func (c TransferCause) String() string {
	return [...]string{"lag", "asked", "share", "shutdown"}[c]
}

// lookPatience is how long a scrape waits altogether for locks that are busy and for the disk.
// Whatever it does not get in that time is missing from it.
const lookPatience = 50 * time.Millisecond

// lookUntil calls each look until it reports success, or the time has come. A look tries a lock
// once.
func lookUntil(until time.Time, looks []func() bool) {
	for pause := 10 * time.Microsecond; ; pause *= 2 {
		looks = slices.DeleteFunc(looks, func(look func() bool) bool { return look() })
		if len(looks) == 0 || !time.Now().Add(pause).Before(until) {
			return
		}
		time.Sleep(pause)
	}
}

// into returns a look that stores what try finds.
func into[F any](to **F, try func() (F, bool)) func() bool {
	return func() bool {
		f, ok := try()
		if ok {
			*to = &f
		}
		return ok
	}
}

// A phase is a part of a node's start.
type phase int

const (
	phaseOpen     phase = iota // until everything is opened, and the images are in memory
	phaseReplay                // until what the log knows to be committed is applied
	phaseRegister              // until the ensemble has registered the member
	phases
)

// String returns the phase as the metrics name it.
func (p phase) String() string { return [...]string{"open", "replay", "register"}[p] }

// A StartTime is how long a phase of the start took.
type StartTime struct {
	Phase string
	Took  time.Duration
}

// endPhase records that a phase has ended.
func (e *Engine) endPhase(p phase) {
	took := time.Since(e.started)
	for before := range p {
		took -= time.Duration(e.meters.phases[before].Load())
	}
	e.meters.phases[p].Store(int64(max(took, 1)))
}

// startTimes returns the phases that have ended.
func (e *Engine) startTimes() (list []StartTime) {
	for p := range phases {
		if took := e.meters.phases[p].Load(); took > 0 {
			list = append(list, StartTime{p.String(), time.Duration(took)})
		}
	}
	return list
}
