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
	front, rest []*Call
	outside     map[*Owner][]*Call
	kept        int   // requests in outside
	held        tally // those of them that are queued
	live        tally // those that are queued elsewhere, ends not counted: there are no more of these than claims and sessions
	ends        int
}

// A tally counts requests that are queued, and their bytes.
type tally struct{ n, bytes int }

func (t *tally) add(w *Call, n int) {
	t.n += n
	t.bytes += n * len(w.Encoded)
}

// full reports whether there is no room for one more request of so many bytes. A single one has room at any size.
func (t tally) full(bytes, most, bytesMost int) bool {
	return t.n >= most || t.bytes+bytes > bytesMost && t.n > 0
}

// len is how many requests wait to be sent.
func (q *queue) len() int { return q.live.n + q.ends }

// full reports whether there is no room for a request of so many bytes; outside is whether its session is unknown. Those that wait
// outside leave the others their room: they may wait for another shard.
func (q *queue) full(bytes int, outside bool) bool {
	if outside {
		return q.held.full(bytes, outsideMax, outsideBytesMax)
	}
	return q.live.full(bytes, QueueMax, QueueBytesMax)
}

func (q *queue) count(w *Call, n int) {
	if w.part == partRest && w.owner != nil {
		w.owner.at[q.shard-1].inRest += int32(n)
	}
	switch {
	case w.end:
		q.ends += n
	case w.part == partOutside:
		q.held.add(w, n)
	default:
		q.live.add(w, n)
	}
}

func (q *queue) add(w *Call) {
	q.onWay(w)
	w.place, w.part = placeQueued, partRest
	q.rest = append(q.rest, w)
	q.count(w, 1)
}

// onWay counts a request that its session's owner has made.
func (q *queue) onWay(w *Call) {
	if w.owner != nil && !w.counted {
		w.counted = true
		w.owner.at[q.shard-1].onWay++
	}
}

// addOutside queues w until letIn, and reports whether it is the first of its session.
func (q *queue) addOutside(w *Call) (first bool) {
	q.onWay(w)
	w.place, w.part = placeQueued, partOutside
	if q.outside == nil {
		q.outside = make(map[*Owner][]*Call)
	}
	waiting, others := q.outside[w.owner]
	q.outside[w.owner] = append(waiting, w)
	q.kept++
	q.count(w, 1)
	return !others
}

// letIn moves what a session has outside to where it is sent from.
func (q *queue) letIn(o *Owner) {
	for _, w := range q.takeIn(o) {
		q.add(w)
	}
}

// takeIn takes out what a session has outside, and returns it.
func (q *queue) takeIn(o *Owner) (queued []*Call) {
	for _, w := range q.outside[o] {
		if w.place == placeQueued {
			q.count(w, -1)
			queued = append(queued, w)
		}
	}
	q.kept -= len(q.outside[o])
	delete(q.outside, o)
	return queued
}

func (q *queue) addEnd(w *Call) {
	w.place, w.part = placeQueued, partFront
	q.front = append(q.front, w)
	q.count(w, 1)
}

// bringForward moves what s has in the rest to the front.
func (q *queue) bringForward(o *Owner) {
	if o.at[q.shard-1].inRest == 0 {
		return // as most who release: not worth a look at everything
	}
	rest := q.rest[:0]
	for _, w := range q.rest {
		if w.owner == o && w.place == placeQueued {
			w.part = partFront
			q.front = append(q.front, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(q.rest[len(rest):])
	q.rest = rest
	o.at[q.shard-1].inRest = 0
}

// putBack puts a batch that was not sent back at the head: nothing that was queued meanwhile may overtake it.
func (q *queue) putBack(ws []*Call) {
	q.front = append(ws, q.front...)
	for _, w := range ws {
		w.part = partFront
		q.count(w, 1)
	}
}

// tidyLen is how many requests a queue may hold without a look at how many of them still count.
const tidyLen = 64

// takeOut is told that w is queued no more. A queue that nothing is sent from must not grow by what is given up.
func (q *queue) takeOut(w *Call) {
	q.count(w, -1)
	w.Encoded = nil
	gone := func(w *Call) bool { return w.place != placeQueued }
	if w.part == partOutside {
		if q.kept > tidyLen+len(q.outside) && q.kept > 2*q.held.n {
			for o, all := range q.outside {
				q.outside[o] = slices.DeleteFunc(all, gone) // and stays: it is being introduced
			}
			q.kept = q.held.n
		}
		return
	}
	if n := len(q.front) + len(q.rest); n > tidyLen && n > 2*q.len() {
		q.front, q.rest = slices.DeleteFunc(q.front, gone), slices.DeleteFunc(q.rest, gone)
	}
}

// fill moves requests into b until it is full.
func (q *queue) fill(b *Batch) {
	for _, part := range []*[]*Call{&q.front, &q.rest} {
		for len(*part) > 0 {
			w := (*part)[0]
			if w.place == placeQueued {
				if len(b.waiters) >= command.BatchMax || b.bytes+len(w.Encoded) > command.BatchBytesMax && len(b.waiters) > 0 {
					return
				}
				q.count(w, -1)
				w.place = placeSent
				b.waiters = append(b.waiters, w)
				b.bytes += len(w.Encoded)
				b.remote = b.remote || w.owner != nil && w.owner.remote
			}
			(*part)[0] = nil
			*part = (*part)[1:]
		}
	}
}

// each calls fn with every request that is queued.
func (q *queue) each(fn func(*Call)) {
	all := func(part []*Call) {
		for _, w := range part {
			if w.place == placeQueued {
				fn(w)
			}
		}
	}
	all(q.front)
	all(q.rest)
	for _, part := range q.outside {
		all(part)
	}
}
