package engine

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
	front, rest []*waiter
	outside     map[*Session][]*waiter
	kept        int   // requests in outside
	held        tally // those of them that are queued
	live        tally // those that are queued elsewhere, ends not counted: there are no more of these than claims and sessions
	ends        int
}

// A tally counts requests that are queued, and their bytes.
type tally struct{ n, bytes int }

func (t *tally) add(w *waiter, n int) {
	t.n += n
	t.bytes += n * len(w.wire)
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
	return q.live.full(bytes, queueMax, queueBytesMax)
}

func (q *queue) count(w *waiter, n int) {
	if w.part == partRest && w.session != nil {
		w.session.at[q.shard-1].inRest += int32(n)
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

func (q *queue) add(w *waiter) {
	q.onWay(w)
	w.place, w.part = placeQueued, partRest
	q.rest = append(q.rest, w)
	q.count(w, 1)
}

// onWay counts a request that its session's owner has made.
func (q *queue) onWay(w *waiter) {
	if w.session != nil && !w.counted {
		w.counted = true
		w.session.at[q.shard-1].onWay++
	}
}

// addOutside queues w until letIn, and reports whether it is the first of its session.
func (q *queue) addOutside(w *waiter) (first bool) {
	q.onWay(w)
	w.place, w.part = placeQueued, partOutside
	if q.outside == nil {
		q.outside = make(map[*Session][]*waiter)
	}
	waiting, others := q.outside[w.session]
	q.outside[w.session] = append(waiting, w)
	q.kept++
	q.count(w, 1)
	return !others
}

// letIn moves what a session has outside to where it is sent from.
func (q *queue) letIn(s *Session) {
	for _, w := range q.takeIn(s) {
		q.add(w)
	}
}

// takeIn takes out what a session has outside, and returns it.
func (q *queue) takeIn(s *Session) (queued []*waiter) {
	for _, w := range q.outside[s] {
		if w.place == placeQueued {
			q.count(w, -1)
			queued = append(queued, w)
		}
	}
	q.kept -= len(q.outside[s])
	delete(q.outside, s)
	return queued
}

func (q *queue) addEnd(w *waiter) {
	w.place, w.part = placeQueued, partFront
	q.front = append(q.front, w)
	q.count(w, 1)
}

// bringForward moves what s has in the rest to the front.
func (q *queue) bringForward(s *Session) {
	if s.at[q.shard-1].inRest == 0 {
		return // as most who release: not worth a look at everything
	}
	rest := q.rest[:0]
	for _, w := range q.rest {
		if w.session == s && w.place == placeQueued {
			w.part = partFront
			q.front = append(q.front, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(q.rest[len(rest):])
	q.rest = rest
	s.at[q.shard-1].inRest = 0
}

// putBack puts a batch that was not sent back at the head: nothing that was queued meanwhile may overtake it.
func (q *queue) putBack(ws []*waiter) {
	q.front = append(ws, q.front...)
	for _, w := range ws {
		w.part = partFront
		q.count(w, 1)
	}
}

// tidyLen is how many requests a queue may hold without a look at how many of them still count.
const tidyLen = 64

// takeOut is told that w is queued no more. A queue that nothing is sent from must not grow by what is given up.
func (q *queue) takeOut(w *waiter) {
	q.count(w, -1)
	w.wire = nil
	gone := func(w *waiter) bool { return w.place != placeQueued }
	if w.part == partOutside {
		if q.kept > tidyLen+len(q.outside) && q.kept > 2*q.held.n {
			for s, all := range q.outside {
				q.outside[s] = slices.DeleteFunc(all, gone) // and stays: it is being introduced
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
func (q *queue) fill(b *batch) {
	for _, part := range []*[]*waiter{&q.front, &q.rest} {
		for len(*part) > 0 {
			w := (*part)[0]
			if w.place == placeQueued {
				if len(b.waiters) >= command.BatchMax || b.bytes+len(w.wire) > command.BatchBytesMax && len(b.waiters) > 0 {
					return
				}
				q.count(w, -1)
				w.place = placeSent
				b.waiters = append(b.waiters, w)
				b.bytes += len(w.wire)
				b.remote = b.remote || w.session != nil && w.session.remote != nil
			}
			(*part)[0] = nil
			*part = (*part)[1:]
		}
	}
}

// each calls fn with every request that is queued.
func (q *queue) each(fn func(*waiter)) {
	all := func(part []*waiter) {
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
