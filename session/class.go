package session

import (
	"container/heap"
	"time"
)

// A class holds the sessions of one origin that have the same timeout. One log entry makes all of
// them due. So silence costs by the number of different timeouts, which is small in practice, and
// not by the number of sessions.
type class struct {
	timeout time.Duration
	origin  MemberID
	members []*entry
	due     bool
	pos     int // in the origin's live or due list
}

// add puts a session into the class of a timeout.
func (o *origin) add(e *entry, timeout time.Duration) {
	c, ok := o.classes[timeout]
	if !ok {
		c = &class{timeout: timeout, origin: o.Member}
		o.classes[timeout] = c
		heap.Push((*byTimeout)(&o.live), c)
		o.markDue()
	}
	e.class, e.pos = c, int32(len(c.members))
	c.members = append(c.members, e)
}

// remove takes a session out of its class.
func (o *origin) remove(e *entry) {
	c := e.class
	last := len(c.members) - 1
	c.members[e.pos] = c.members[last]
	c.members[e.pos].pos = e.pos
	c.members[last] = nil
	c.members = c.members[:last]
	if last > 0 {
		return
	}
	delete(o.classes, c.timeout)
	if !c.due {
		heap.Remove((*byTimeout)(&o.live), c.pos)
		return
	}
	last = len(o.due) - 1
	o.due[c.pos] = o.due[last]
	o.due[c.pos].pos = c.pos
	o.due[last] = nil
	o.due = o.due[:last]
}

// markDue makes the classes due whose timeout the silence has reached.
func (o *origin) markDue() {
	for len(o.live) > 0 && o.live[0].timeout <= o.Silence {
		c := heap.Pop((*byTimeout)(&o.live)).(*class)
		c.due, c.pos = true, len(o.due)
		o.due = append(o.due, c)
	}
}

// byTimeout is a heap of classes with the smallest timeout on top. No two timeouts are equal.
type byTimeout []*class

func (h byTimeout) Len() int           { return len(h) }
func (h byTimeout) Less(i, j int) bool { return h[i].timeout < h[j].timeout }

func (h byTimeout) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push implements heap.Interface.
func (h *byTimeout) Push(x any) {
	c := x.(*class)
	c.pos = len(*h)
	*h = append(*h, c)
}

// Pop implements heap.Interface.
func (h *byTimeout) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
