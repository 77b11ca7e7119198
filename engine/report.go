package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// reportLoop logs when shards lose their quorum and when it returns. It records whether the node
// serves, and moves on the figures of what is slow. It ends with the node's other loops.
func (e *Engine) reportLoop() {
	q := newQuorums(len(e.shards), LongestElection(e.cfg.Tick))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var step <-chan time.Time
	if e.slow.limit > 0 {
		ticker := time.NewTicker(slowStep)
		defer ticker.Stop()
		step = ticker.C
	}
	for {
		select {
		case <-step:
			e.slow.step()
			continue
		case <-e.lookDue:
		case <-timer.C:
		case <-e.stop:
			e.log.Info("closing")
			return
		}
		now := time.Now()
		timer.Reset(soonest(e.reportQuorums(q, now), q.patience)) // connections come and go without a word
		e.noteServing(q, now)
	}
}

// reportQuorums logs which shards have lost their quorum, or got it back. It returns when to look
// again; zero means when something changes.
func (e *Engine) reportQuorums(q *quorums, now time.Time) time.Duration {
	if e.silenced() {
		return 0
	}
	lost, back, next := q.look(now, e.reachesLeader)
	if len(lost) > 0 {
		for _, id := range lost {
			e.recent.note(Occurrence{Kind: QuorumLost, Shard: id})
		}
		lacks, _ := e.lacks()
		e.log.Warn("no quorum", "shard", shardList(lost), "cause", strings.Join(lacks, "; "))
	}
	for _, id := range back {
		took := now.Sub(q.shards[id-1].since)
		e.recent.note(Occurrence{Kind: QuorumBack, Shard: id, Took: took})
		e.log.Info("the quorum is back", "shard", id, "took", took)
		q.shards[id-1] = quorum{}
	}
	return next
}

// reachesLeader reports whether this member knows a shard's leader, and the two are connected. Raft
// never takes the leader of a learner away, nor that of a voter that hears and is not heard.
func (e *Engine) reachesLeader(id ShardID) bool {
	leader := e.Leader(id).Member
	return leader != 0 && (leader == e.self() || slices.Contains(e.Connected(), leader))
}

// shardList formats the ids for a log line: as a number if there is one.
func shardList(ids []ShardID) any {
	if len(ids) == 1 {
		return ids[0]
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// quorums track which shards have had no leader within reach for longer than an election takes. A
// shard has a quorum while it has a leader, because a leader without a quorum steps down.
type quorums struct {
	patience time.Duration
	shards   []quorum // indexed by ShardID - 1
}

type quorum struct {
	since time.Time // without a leader since then; zero: it has one
	lost  bool      // the loss was logged
}

func newQuorums(shards int, patience time.Duration) *quorums {
	return &quorums{patience: patience, shards: make([]quorum, shards)}
}

// look returns in lost the shards that count as lost from now on. In back it returns the lost
// shards that have a leader again; the caller resets their entries. The next shard will be lost
// after next; zero means that none will.
func (q *quorums) look(now time.Time, led func(ShardID) bool) (lost, back []ShardID, next time.Duration) {
	for i := range q.shards {
		s, id := &q.shards[i], ShardID(i+1)
		switch {
		case led(id):
			if s.lost {
				back = append(back, id)
			} else {
				*s = quorum{}
			}
		case s.since.IsZero():
			s.since = now
			next = soonest(next, q.patience)
		case !s.lost && now.Sub(s.since) >= q.patience:
			s.lost = true
			lost = append(lost, id)
		case !s.lost:
			next = soonest(next, q.patience-now.Sub(s.since))
		}
	}
	return lost, back, next
}

// soonest returns the smaller of two times. Zero means never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
