package engine

import (
	"slices"
)

// A queue is requests in the order in which they are to be sent. Those that were taken out stay in it for a while but
// count no more.
//
// Ends (a release, a session's close) go to the front part, ahead of what waits; whatever an end must not overtake is
// moved there before it. Nothing of the rest goes while the front has anything: it would overtake its session's own.
type queue struct {
	shard       ShardID
	front, rest []*waiter
	live        int // requests that are still queued, ends not counted: there are no more of these than claims and sessions
	bytes       int // of the requests in live
	ends        int
}

// len is how many requests wait.
func (q *queue) len() int { return q.live + q.ends }

// full reports whether there is no room for a request of so many bytes. A single one has room at any size.
func (q *queue) full(bytes int) bool {
	return q.live >= queueMax || q.bytes+bytes > queueBytesMax && q.live > 0
}

func (q *queue) count(w *waiter, n int) {
	if !w.front && w.session != nil {
		w.session.inRest[q.shard-1] += n
	}
	if w.end {
		q.ends += n
		return
	}
	q.live += n
	q.bytes += n * len(w.wire)
}

func (q *queue) add(w *waiter) {
	w.place = placeQueued
	q.rest = append(q.rest, w)
	q.count(w, 1)
}

func (q *queue) addEnd(w *waiter) {
	w.place, w.front = placeQueued, true
	q.front = append(q.front, w)
	q.count(w, 1)
}

// bringForward moves what s has in the rest to the front.
func (q *queue) bringForward(s *Session) {
	if s.inRest[q.shard-1] == 0 {
		return // as most who release: not worth a look at everything
	}
	rest := q.rest[:0]
	for _, w := range q.rest {
		if w.session == s && w.place == placeQueued {
			w.front = true
			q.front = append(q.front, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(q.rest[len(rest):])
	q.rest = rest
	s.inRest[q.shard-1] = 0
}

// putBack puts a batch that was not sent back at the head: nothing that was queued meanwhile may overtake it.
func (q *queue) putBack(ws []*waiter) {
	q.front = append(ws, q.front...)
	for _, w := range ws {
		w.front = true
		q.count(w, 1)
	}
}

// tidyLen is how many requests a queue may hold without a look at how many of them still count.
const tidyLen = 64

// takeOut is told that w is queued no more. A queue that nothing is sent from must not grow by what is given up.
func (q *queue) takeOut(w *waiter) {
	q.count(w, -1)
	w.wire = nil
	if n := len(q.front) + len(q.rest); n > tidyLen && n > 2*q.len() {
		gone := func(w *waiter) bool { return w.place != placeQueued }
		q.front, q.rest = slices.DeleteFunc(q.front, gone), slices.DeleteFunc(q.rest, gone)
	}
}

// fill moves requests into b until it is full.
func (q *queue) fill(b *batch) {
	for _, part := range []*[]*waiter{&q.front, &q.rest} {
		for len(*part) > 0 {
			w := (*part)[0]
			if w.place == placeQueued {
				if len(b.waiters) >= batchMax || b.bytes+len(w.wire) > batchBytesMax && len(b.waiters) > 0 {
					return
				}
				q.count(w, -1)
				w.place = placeSent
				b.waiters = append(b.waiters, w)
				b.bytes += len(w.wire)
			}
			(*part)[0] = nil
			*part = (*part)[1:]
		}
	}
}

// each calls fn with every request that is queued.
func (q *queue) each(fn func(*waiter)) {
	for _, part := range [][]*waiter{q.front, q.rest} {
		for _, w := range part {
			if w.place == placeQueued {
				fn(w)
			}
		}
	}
}
