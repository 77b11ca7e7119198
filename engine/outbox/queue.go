package outbox

import (
	"slices"

	"github.com/vivarium-go/vivarium/replication"

	"github.com/vivarium-go/vivarium/engine/command"
)

// A queue is requests in the order in which they are to be sent. Those that were taken out stay in it for a while but
// count no more.
//
// Ends (a release, a session's close) go to the front part, ahead of what waits; whatever an end must not overtake is
// moved there before it. Nothing of the rest goes while the front has anything: it would overtake its session's own.
//
// Outside wait the requests of sessions that the shard does not know yet, each session's in their order.
type queue struct {
	shard       replication.ShardID
	front, back []*Call
	parked      map[*Owner][]*Call
	parkedLen   int   // requests in outside
	parkedTally tally // those of them that are queued
	sendable    tally // those that are queued elsewhere, ends not counted: there are no more of these than claims and sessions
	ends        int
}

// A tally counts requests that are queued, and their bytes.
type tally struct{ n, bytes int }

func (t *tally) add(c *Call, n int) {
	t.n += n
	t.bytes += n * len(c.Encoded)
}

// full reports whether there is no room for one more request of so many bytes. A single one has room at any size.
func (t tally) full(bytes, most, bytesMost int) bool {
	return t.n >= most || t.bytes+bytes > bytesMost && t.n > 0
}

// len is how many requests wait to be sent.
func (q *queue) len() int { return q.sendable.n + q.ends }

// full reports whether there is no room for a request of so many bytes; outside is whether its session is unknown. Those that wait
// outside leave the others their room: they may wait for another shard.
func (q *queue) full(bytes int, parked bool) bool {
	if parked {
		return q.parkedTally.full(bytes, parkedMax, parkedBytesMax)
	}
	return q.sendable.full(bytes, QueueMax, QueueBytesMax)
}

func (q *queue) count(c *Call, n int) {
	if c.lane == laneBack && c.owner != nil {
		c.owner.shards[q.shard-1].inBack += int32(n)
	}
	switch {
	case c.end:
		q.ends += n
	case c.lane == laneParked:
		q.parkedTally.add(c, n)
	default:
		q.sendable.add(c, n)
	}
}

func (q *queue) add(c *Call) {
	q.countPending(c)
	c.stage, c.lane = stageQueued, laneBack
	q.back = append(q.back, c)
	q.count(c, 1)
}

// onWay counts a request that its session's owner has made.
func (q *queue) countPending(c *Call) {
	if c.owner != nil && !c.counted {
		c.counted = true
		c.owner.shards[q.shard-1].pending++
	}
}

// addOutside queues w until letIn, and reports whether it is the first of its session.
func (q *queue) park(c *Call) (first bool) {
	q.countPending(c)
	c.stage, c.lane = stageQueued, laneParked
	if q.parked == nil {
		q.parked = make(map[*Owner][]*Call)
	}
	waiting, others := q.parked[c.owner]
	q.parked[c.owner] = append(waiting, c)
	q.parkedLen++
	q.count(c, 1)
	return !others
}

// letIn moves what a session has outside to where it is sent from.
func (q *queue) moveParked(s *Owner) {
	for _, c := range q.unpark(s) {
		q.add(c)
	}
}

// takeIn takes out what a session has outside, and returns it.
func (q *queue) unpark(s *Owner) (queued []*Call) {
	for _, c := range q.parked[s] {
		if c.stage == stageQueued {
			q.count(c, -1)
			queued = append(queued, c)
		}
	}
	q.parkedLen -= len(q.parked[s])
	delete(q.parked, s)
	return queued
}

func (q *queue) addEnd(c *Call) {
	c.stage, c.lane = stageQueued, laneFront
	q.front = append(q.front, c)
	q.count(c, 1)
}

// bringForward moves what s has in the rest to the front.
func (q *queue) bringForward(s *Owner) {
	if s.shards[q.shard-1].inBack == 0 {
		return // as most who release: not worth a look at everything
	}
	rest := q.back[:0]
	for _, c := range q.back {
		if c.owner == s && c.stage == stageQueued {
			c.lane = laneFront
			q.front = append(q.front, c)
		} else {
			rest = append(rest, c)
		}
	}
	clear(q.back[len(rest):])
	q.back = rest
	s.shards[q.shard-1].inBack = 0
}

// putBack puts a batch that was not sent back at the head: nothing that was queued meanwhile may overtake it.
func (q *queue) putBack(calls []*Call) {
	q.front = append(calls, q.front...)
	for _, c := range calls {
		c.lane = laneFront
		q.count(c, 1)
	}
}

// tidyLen is how many requests a queue may hold without a look at how many of them still count.
const compactMin = 64

// takeOut is told that w is queued no more. A queue that nothing is sent from must not grow by what is given up.
func (q *queue) remove(c *Call) {
	q.count(c, -1)
	c.Encoded = nil
	gone := func(c *Call) bool { return c.stage != stageQueued }
	if c.lane == laneParked {
		if q.parkedLen > compactMin+len(q.parked) && q.parkedLen > 2*q.parkedTally.n {
			for s, all := range q.parked {
				q.parked[s] = slices.DeleteFunc(all, gone) // and stays: it is being introduced
			}
			q.parkedLen = q.parkedTally.n
		}
		return
	}
	if n := len(q.front) + len(q.back); n > compactMin && n > 2*q.len() {
		q.front, q.back = slices.DeleteFunc(q.front, gone), slices.DeleteFunc(q.back, gone)
	}
}

// fill moves requests into b until it is full.
func (q *queue) fill(b *Batch) {
	for _, part := range []*[]*Call{&q.front, &q.back} {
		for len(*part) > 0 {
			c := (*part)[0]
			if c.stage == stageQueued {
				if len(b.calls) >= command.BatchMax || b.bytes+len(c.Encoded) > command.BatchBytesMax && len(b.calls) > 0 {
					return
				}
				q.count(c, -1)
				c.stage = stageSent
				b.calls = append(b.calls, c)
				b.bytes += len(c.Encoded)
				b.remote = b.remote || c.owner != nil && c.owner.remote
			}
			(*part)[0] = nil
			*part = (*part)[1:]
		}
	}
}

// each calls fn with every request that is queued.
func (q *queue) each(fn func(*Call)) {
	all := func(part []*Call) {
		for _, c := range part {
			if c.stage == stageQueued {
				fn(c)
			}
		}
	}
	all(q.front)
	all(q.back)
	for _, part := range q.parked {
		all(part)
	}
}
