package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/replication/transport"
)

// reportLoop logs when shards lose their quorum and when it returns. It records whether the node
// serves, and moves on the figures of what is slow. It ends with the node's other loops.
func (e *Engine) reportLoop() {
	longest := LongestElection(e.cfg.Tick)
	q := health.NewQuorums(len(e.shards), longest)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var step <-chan time.Time
	if e.cfg.Slow > 0 {
		ticker := time.NewTicker(health.StepInterval)
		defer ticker.Stop()
		step = ticker.C
	}
	for {
		select {
		case <-step:
			e.slow.Step(e.peerSet())
			continue
		case <-e.lookDue:
		case <-timer.C:
		case <-e.stop:
			e.log.Info("closing")
			return
		}
		now := time.Now()
		next := e.reportQuorums(q, now)
		timer.Reset(min(cmp.Or(next, longest), longest)) // connections come and go without a word
		e.noteServing(q, now)
	}
}

// reportQuorums logs which shards have lost their quorum, or got it back. It returns when to look
// again; zero means when something changes.
func (e *Engine) reportQuorums(q *health.Quorums, now time.Time) time.Duration {
	if e.silenced() {
		return 0
	}
	lost, back, next := q.Look(now, e.reachesLeader)
	if len(lost) > 0 {
		for _, id := range lost {
			e.recent.Note(health.Occurrence{Kind: health.QuorumLost, Shard: id})
		}
		lacks, _ := e.lacks()
		e.log.Warn("no quorum", "shard", shardList(lost), "cause", strings.Join(lacks, "; "))
	}
	for _, id := range back {
		took := q.Returned(id, now)
		e.recent.Note(health.Occurrence{Kind: health.QuorumBack, Shard: id, Took: took})
		e.log.Info("the quorum is back", "shard", id, "took", took)
	}
	return next
}

// reachesLeader reports whether this member knows a shard's leader, and the two are connected. Raft
// never takes the leader of a learner away, nor that of a voter that hears and is not heard.
func (e *Engine) reachesLeader(id ShardID) bool {
	leader := e.Leader(id).Member
	return leader != 0 && (leader == e.roster.Self() || slices.Contains(e.Connected(), leader))
}

// shardList formats the ids for a log line: as a number if there is one.
func shardList(ids []ShardID) any {
	if len(ids) == 1 {
		return ids[0]
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// watchSlow watches what the node times by itself. The transport tells of its peers, and the keeper
// of the clocks.
func (e *Engine) watchSlow() {
	election := ShortestElection(e.cfg.Tick)
	for _, f := range []struct {
		name string
		seen *meter.Histogram
	}{{"log", &e.disk.Meters().Log}, {"other", &e.disk.Meters().Other}} {
		e.slow.Watch(f.seen, health.Occurrence{Kind: health.SlowFsync}, func(c health.SlowCall) {
			e.log.Warn("the disk is slow: see what else uses it",
				"file", f.name, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
	}
	for _, r := range e.shards {
		e.slow.Watch(&r.Meters.Applies, health.Occurrence{Kind: health.SlowApply, Shard: r.Shard}, func(c health.SlowCall) {
			e.log.Warn("applying is slow: look at the processor, the memory and the disk",
				"shard", r.Shard, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
		e.slow.Watch(&r.Outbox.Meters.Commits, health.Occurrence{Kind: health.SlowCommit, Shard: r.Shard}, func(c health.SlowCall) {
			e.log.Warn("commits are slow: look at the disks of the members and the network",
				"shard", r.Shard, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
		})
	}
}

// watchPeer watches how long a member takes to answer. The transport calls it with its lock held.
func (e *Engine) watchPeer(peer uint64, m *transport.Meters) {
	election := ShortestElection(e.cfg.Tick)
	e.slow.Watch(&m.RoundTrips, health.Occurrence{Kind: health.SlowPeer, Member: MemberID(peer)}, func(c health.SlowCall) {
		e.log.Warn("a member answers slowly: look at its log and the network",
			"peer", peer, "took", c.Took, "p50", c.P50, "p99", c.P99, "election", election, "also", c.Also, "repeated", c.Held)
	})
}

// jumped is called by the keeper, with its lock held, when the wall clock has jumped.
func (e *Engine) jumped(by time.Duration) {
	if held, due := e.slow.Jumped(by); due {
		e.log.Warn("the clock jumped: see what sets it", "by", by.Round(time.Millisecond), "repeated", held)
	}
}

// states reports whether a state was installed here, or sent to a member, lately.
func (e *Engine) states(within time.Duration) (installed, sent bool) {
	host := e.host.Load()
	for _, r := range e.shards {
		installed = installed || r.Meters.Installing.RanWithin(within)
		sent = sent || host != nil && host.Meters(r.Shard).Streaming.RanWithin(within)
	}
	return installed, sent
}

// peerSet returns the members that the transport knows.
func (e *Engine) peerSet() map[MemberID]bool {
	peers := make(map[MemberID]bool)
	for _, p := range e.transport.Peers() {
		peers[MemberID(p.Member)] = true
	}
	return peers
}

// recentLogged is how many occurrences go to the log when the node fails.
const recentLogged = 64

// Recent returns the newest occurrences, the oldest of them first: max of them, or all that are
// remembered if max is not positive.
func (e *Engine) Recent(max int) []Occurrence { return e.recent.Newest(max) }

// logRecent logs the newest occurrences, in one line.
func (e *Engine) logRecent() {
	var texts []string
	for _, o := range e.recent.Newest(recentLogged) {
		texts = append(texts, o.String())
	}
	e.log.Warn("what happened before the failure", "recent", strings.Join(texts, "; "))
}

// notePeer is called by the transport, with its lock held.
func (e *Engine) notePeer(peer uint64, what transport.PeerEvent) {
	kind := [...]health.Kind{transport.PeerConnected: health.PeerConnected, transport.PeerLost: health.PeerLost, transport.PeerRefused: health.PeerRefused}[what]
	e.recent.Note(health.Occurrence{Kind: kind, Member: MemberID(peer)})
}

// noteSessions is called by the keeper, with its lock held.
func (e *Engine) noteSessions(suspended bool, n int) {
	kind := health.Resumed
	if suspended {
		kind = health.Suspended
	}
	e.recent.Note(health.Occurrence{Kind: kind, Number: uint64(n)})
}

// watchInstalls notes and logs the states that a shard gets from other members.
func (e *Engine) watchInstalls(r *replica.Replica) {
	r.Meters.Installs.OnSlow(0, func(took time.Duration) {
		e.recent.Note(health.Occurrence{Kind: health.StateInstalled, Shard: r.Shard, Took: took})
		e.log.Info("state of another member installed", "shard", r.Shard, "zxid", fmt.Sprintf("%#x", uint64(r.Visible())), "took", took)
	})
}
