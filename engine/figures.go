package engine

import (
	"slices"
	"time"

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

// Figures looks at what the node has in memory, and at the space on its disk. It never waits for
// long, whatever stands still, and works at any time.
func (e *Engine) Figures() Figures {
	until := time.Now().Add(lookPatience)
	over := e.silenced()
	f := Figures{
		Over: over, Failed: e.disk.Err() != nil || e.Err() != nil,
		Level: e.Levels.Level(), LevelMax: e.cfg.levelMax(), Shards: make([]ShardFigures, len(e.shards)),
		Life: &e.keeper.Meters, Fsyncs: e.disk.Meters(),
		Started: e.started, Starts: e.meters.starts(),
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
	f.Space = e.space.look(until)
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

// Space returns what the node's disk has, or nil if it does not say so in time.
func (e *Engine) Space(patience time.Duration) *Space {
	return e.space.look(time.Now().Add(patience))
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
