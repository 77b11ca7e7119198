package outbox

import (
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
)

// A queue holds calls in the order in which they are to be sent. A cancelled call stays in its lane
// for a while, but no longer counts.
//
// The front lane goes first. It holds the ends (a release, a session's close), and ahead of each
// end those calls that it must not overtake. Nothing leaves the back lane before the front lane is
// empty, because it could overtake an earlier call of the same session.
//
// Calls are parked, in the order of their session, while the shard does not know the session yet.
type queue struct {
	shard       replication.ShardID
	front, back []*Call
	parked      map[*Owner][]*Call
	parkedLen   int   // calls in parked, the cancelled ones included
	parkedTally tally // of the parked calls that are still queued
	sendable    tally // of front and back, ends not counted
	ends        int   // no limit: there are no more ends than claims and sessions
}

// A tally counts queued calls and their bytes.
type tally struct{ n, bytes int }

func (t *tally) add(c *Call, n int) {
	t.n += n
	t.bytes += n * len(c.Encoded)
}

// full reports whether one more call of so many bytes would exceed the limits. An empty queue takes
// a call of any size.
func (t tally) full(bytes, most, bytesMost int) bool {
	return t.n >= most || t.bytes+bytes > bytesMost && t.n > 0
}

// len returns how many calls wait to be sent.
func (q *queue) len() int { return q.sendable.n + q.ends }

// full reports whether there is no room for a call of so many bytes. Parked calls have limits of
// their own: they may wait for another shard, and must not use up the room of other calls.
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

// countPending counts c as a call of its session without an outcome.
func (q *queue) countPending(c *Call) {
	if c.owner != nil && !c.counted {
		c.counted = true
		c.owner.shards[q.shard-1].pending++
	}
}

// park queues c until its session has been introduced. It reports whether c is the session's first
// parked call.
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

// moveParked moves the parked calls of a session to the back lane.
func (q *queue) moveParked(s *Owner) {
	for _, c := range q.unpark(s) {
		q.add(c)
	}
}

// unpark removes the parked calls of a session and returns those that are still queued.
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

// bringForward moves the calls of a session from the back lane to the front lane.
func (q *queue) bringForward(s *Owner) {
	if s.shards[q.shard-1].inBack == 0 {
		return // usual for a release, and saves a look at the whole lane
	}
	others := q.back[:0]
	for _, c := range q.back {
		if c.owner == s && c.stage == stageQueued {
			c.lane = laneFront
			q.front = append(q.front, c)
		} else {
			others = append(others, c)
		}
	}
	clear(q.back[len(others):])
	q.back = others
	s.shards[q.shard-1].inBack = 0
}

// putBack returns the calls of a batch that was not sent to the head of the front lane. Nothing
// that was queued meanwhile may overtake them.
func (q *queue) putBack(calls []*Call) {
	q.front = append(calls, q.front...)
	for _, c := range calls {
		c.lane = laneFront
		q.count(c, 1)
	}
}

// compactMin is how many calls a lane may hold, cancelled ones included, before remove compacts it.
const compactMin = 64

// remove stops counting c, whose stage the caller has changed. It compacts the lanes when most of
// their calls are cancelled. Otherwise a queue that cannot be sent would grow with each cancelled
// call.
func (q *queue) remove(c *Call) {
	q.count(c, -1)
	c.Encoded = nil
	gone := func(c *Call) bool { return c.stage != stageQueued }
	if c.lane == laneParked {
		if q.parkedLen > compactMin+len(q.parked) && q.parkedLen > 2*q.parkedTally.n {
			for s, all := range q.parked {
				q.parked[s] = slices.DeleteFunc(all, gone) // keep the entry even if empty: the session is being introduced
			}
			q.parkedLen = q.parkedTally.n
		}
		return
	}
	if n := len(q.front) + len(q.back); n > compactMin && n > 2*q.len() {
		q.front, q.back = slices.DeleteFunc(q.front, gone), slices.DeleteFunc(q.back, gone)
	}
}

// fill moves calls into b until b is full or nothing is left.
func (q *queue) fill(b *Batch) {
	for _, calls := range []*[]*Call{&q.front, &q.back} {
		for len(*calls) > 0 {
			c := (*calls)[0]
			if c.stage == stageQueued {
				if len(b.calls) >= command.BatchMax || b.bytes+len(c.Encoded) > command.BatchBytesMax && len(b.calls) > 0 {
					return
				}
				q.count(c, -1)
				c.stage = stageSealed
				b.calls = append(b.calls, c)
				b.bytes += len(c.Encoded)
				b.remote = b.remote || c.owner != nil && c.owner.remote
			}
			(*calls)[0] = nil
			*calls = (*calls)[1:]
		}
	}
}

// each calls fn with every queued call.
func (q *queue) each(fn func(*Call)) {
	all := func(calls []*Call) {
		for _, c := range calls {
			if c.stage == stageQueued {
				fn(c)
			}
		}
	}
	all(q.front)
	all(q.back)
	for _, calls := range q.parked {
		all(calls)
	}
}
