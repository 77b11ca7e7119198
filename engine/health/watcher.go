package health

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// Options are what a Watcher is made of.
type Options struct {
	Lacks
	Host     func() *replication.Host
	Log      *slog.Logger
	Limit    time.Duration // from when on something is slow; zero: nothing is
	Shortest time.Duration // election
	Longest  time.Duration // election
	Started  time.Time
	Stop     <-chan struct{} // closed by Close
	Disk     *disk.Meters    // set once the disk is open
}

// A Watcher notes what happens to a node, what is slow, and whether it serves, and says so in the log.
type Watcher struct {
	Options
	Recent  Recent
	Slow    Slowness
	due     chan struct{} // capacity 1; Loop is to look at the leaders
	serving atomic.Pointer[serving]
	lack    atomic.Pointer[diskLack] // nil: the disk has always had room
}

// serving says whether the node served at the last look, and since when.
type serving struct {
	ready bool
	since time.Time
}

// New returns the watcher of a node, which gets the disk, the replicas and the transport later.
func New(o Options) *Watcher {
	w := &Watcher{Options: o, due: make(chan struct{}, 1)}
	w.Slow.Limit, w.Slow.Election, w.Slow.Recent, w.Slow.States = o.Limit, o.Shortest, &w.Recent, w.states
	w.serving.Store(&serving{since: o.Started})
	return w
}

// Look has Loop look whether the node serves. It does not block.
func (w *Watcher) Look() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// Loop logs when shards lose their quorum and when it returns. It records whether the node
// serves, and moves on the figures of what is slow. It ends with the node's other loops.
func (w *Watcher) Loop() {
	longest := w.Longest
	q := NewQuorums(len(w.Forest), longest)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var step <-chan time.Time
	if w.Slow.Limit > 0 {
		ticker := time.NewTicker(StepInterval)
		defer ticker.Stop()
		step = ticker.C
	}
	for {
		select {
		case <-step:
			w.Slow.Step(w.peerSet())
			continue
		case <-w.due:
		case <-timer.C:
		case <-w.Stop:
			w.Log.Info("closing")
			return
		}
		now := time.Now()
		next := w.reportQuorums(q, now)
		timer.Reset(min(cmp.Or(next, longest), longest)) // connections come and go without a word
		w.noteServing(q, now)
	}
}

// reportQuorums logs which shards have lost their quorum, or got it back. It returns when to look
// again; zero means when something changes.
func (w *Watcher) reportQuorums(q *Quorums, now time.Time) time.Duration {
	if w.Node.Silenced() != nil {
		return 0
	}
	lost, back, next := q.Look(now, w.reachesLeader)
	if len(lost) > 0 {
		for _, id := range lost {
			w.Recent.Note(Occurrence{Kind: QuorumLost, Shard: id})
		}
		lacks, _ := w.List()
		w.Log.Warn("no quorum", "shard", shardList(lost), "cause", strings.Join(lacks, "; "))
	}
	for _, id := range back {
		took := q.Returned(id, now)
		w.Recent.Note(Occurrence{Kind: QuorumBack, Shard: id, Took: took})
		w.Log.Info("the quorum is back", "shard", id, "took", took)
	}
	return next
}

// reachesLeader reports whether this member knows a shard's leader, and the two are connected. Raft
// never takes the leader of a learner away, nor that of a voter that hears and is not heard.
func (w *Watcher) reachesLeader(id replication.ShardID) bool {
	leader := w.Node.Leader(id).Member
	return leader != 0 && (leader == w.Roster.Self() || slices.Contains(w.Connected(), leader))
}

// shardList formats the ids for a log line: as a number if there is one.
func shardList(ids []replication.ShardID) any {
	if len(ids) == 1 {
		return ids[0]
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// WatchSlow watches what the node times by itself. The transport tells of its peers, and the keeper
// of the clocks.
func (w *Watcher) WatchSlow() {
	election := w.Shortest
	for _, f := range []struct {
		name string
		seen *meter.Histogram
	}{{"log", &w.Disk.Log}, {"other", &w.Disk.Other}} {
		w.Slow.Watch(f.seen, Occurrence{Kind: SlowFsync}, func(c SlowCall) {
			w.Log.Warn("the disk is slow: see what else uses it",
				"file", f.name, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
	}
	for _, r := range w.Forest {
		w.Slow.Watch(&r.Meters.Applies, Occurrence{Kind: SlowApply, Shard: r.Shard}, func(c SlowCall) {
			w.Log.Warn("applying is slow: look at the processor, the memory and the disk",
				"shard", r.Shard, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
		w.Slow.Watch(&r.Outbox.Meters.Commits, Occurrence{Kind: SlowCommit, Shard: r.Shard}, func(c SlowCall) {
			w.Log.Warn("commits are slow: look at the disks of the members and the network",
				"shard", r.Shard, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
	}
}

// WatchPeer watches how long a member takes to answer. The transport calls it with its lock held.
func (w *Watcher) WatchPeer(peer uint64, m *transport.Meters) {
	election := w.Shortest
	w.Slow.Watch(&m.RoundTrips, Occurrence{Kind: SlowPeer, Member: replication.MemberID(peer)}, func(c SlowCall) {
		w.Log.Warn("a member answers slowly: look at its log and the network",
			"peer", peer, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
	})
}

// Jumped is called by the keeper, with its lock held, when the wall clock has jumped.
func (w *Watcher) Jumped(by time.Duration) {
	if held, due := w.Slow.Jumped(by); due {
		w.Log.Warn("the clock jumped: see what sets it", "by", by.Round(time.Millisecond), "repeated", held)
	}
}

// states reports whether a state was installed here, or sent to a member, lately.
func (w *Watcher) states(within time.Duration) (installed, sent bool) {
	host := w.Host()
	for _, r := range w.Forest {
		installed = installed || r.Meters.Installing.RanWithin(within)
		sent = sent || host != nil && host.Meters(r.Shard).Streaming.RanWithin(within)
	}
	return installed, sent
}

// peerSet returns the members that the transport knows.
func (w *Watcher) peerSet() map[replication.MemberID]bool {
	peers := make(map[replication.MemberID]bool)
	for _, p := range w.Transport.Peers() {
		peers[replication.MemberID(p.Member)] = true
	}
	return peers
}

// recentLogged is how many occurrences go to the log when the node fails.
const recentLogged = 64

// LogRecent logs the newest occurrences, in one line.
func (w *Watcher) LogRecent() {
	var texts []string
	for _, o := range w.Recent.Newest(recentLogged) {
		texts = append(texts, o.String())
	}
	w.Log.Warn("what happened before the failure", "recent", strings.Join(texts, "; "))
}

// NotePeer is called by the transport, with its lock held.
func (w *Watcher) NotePeer(peer uint64, what transport.PeerEvent) {
	kind := [...]Kind{transport.PeerConnected: PeerConnected, transport.PeerLost: PeerLost, transport.PeerRefused: PeerRefused}[what]
	w.Recent.Note(Occurrence{Kind: kind, Member: replication.MemberID(peer)})
}

// NoteSessions is called by the keeper, with its lock held.
func (w *Watcher) NoteSessions(suspended bool, n int) {
	kind := Resumed
	if suspended {
		kind = Suspended
	}
	w.Recent.Note(Occurrence{Kind: kind, Number: uint64(n)})
}

// WatchInstalls notes and logs the states that a shard gets from other members.
func (w *Watcher) WatchInstalls(r *replica.Replica) {
	r.Meters.Installs.OnSlow(0, func(took time.Duration) {
		w.Recent.Note(Occurrence{Kind: StateInstalled, Shard: r.Shard, Took: took})
		w.Log.Info("state of another member installed", "shard", r.Shard, "zxid", fmt.Sprintf("%#x", uint64(r.Visible())), "took", took)
	})
}

// noteServing records whether the node serves. Only Loop calls it.
func (w *Watcher) noteServing(q *Quorums, now time.Time) {
	serves := w.Node.Loading() == ""
	for _, r := range w.Forest {
		serves = serves && ready(r) && !q.IsLost(r.Shard)
	}
	if old := w.serving.Load(); old.ready != serves {
		w.serving.Store(&serving{serves, now})
	}
}

// A diskLack is what calls of the disk wait for.
type diskLack struct {
	cause error // nil: nothing any more
	since time.Time
}

// DiskWaits logs that the node waits for what it lacks. With nil it logs that the wait is over.
func (w *Watcher) DiskWaits(lacking error) {
	w.lack.Store(&diskLack{lacking, time.Now()})
	if lacking != nil {
		w.Recent.Note(Occurrence{Kind: DiskWaits})
		w.Log.Warn("no disk space or no file descriptors: the node waits", "cause", lacking)
		return
	}
	w.Recent.Note(Occurrence{Kind: DiskGoesOn})
	w.Log.Info("the node no longer waits for disk space or file descriptors")
}
