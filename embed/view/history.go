package view

import (
	"slices"
	"sort"

	"github.com/vivarium-go/vivarium/embed"
)

// readLen is how many changes a reader of the history copies at a time, and more if a transaction
// has more.
const readLen = 64

// A record is a Change as the history keeps it.
type record[T any] struct {
	path     string
	zxid     embed.Zxid
	old, new *Entry[T] // nil: there was none, there is none
	repaired bool
	last     bool // of its transaction
}

func (r record[T]) change() Change[T] {
	c := Change[T]{Type: embed.NodeDataChanged, Path: r.path, Zxid: r.zxid, Repaired: r.repaired, Last: r.last}
	if r.old == nil {
		c.Type = embed.NodeCreated
	} else {
		c.Old = *r.old
	}
	if r.new == nil {
		c.Type = embed.NodeDeleted
	} else {
		c.New = *r.new
	}
	return c
}

// A history keeps the newest changes.
//
// Invariants:
//  1. records has whole transactions, in the order of their zxids;
//  2. it has every change later than floor;
//  3. it has at most max records, or one transaction.
type history[T any] struct {
	max     int // immutable
	records []record[T]
	first   uint64 // how many records were dropped: the number of the first one that is kept
	floor   embed.Zxid
}

// add appends whole transactions, and drops the oldest ones that are too many.
func (h *history[T]) add(records []record[T]) {
	h.records = append(h.records, records...)
	drop := 0
	for len(h.records)-drop > h.max {
		end := drop + slices.IndexFunc(h.records[drop:], func(r record[T]) bool { return r.last }) + 1
		if end == len(h.records) {
			break
		}
		h.floor, drop = h.records[end-1].zxid, end
	}
	clear(h.records[:drop]) // what they refer to is free at once
	h.records, h.first = h.records[drop:], h.first+uint64(drop)
}

// find returns the number of the first record later than a zxid. It returns false if there were
// others before it that are no longer kept.
func (h *history[T]) find(since embed.Zxid) (uint64, bool) {
	i := sort.Search(len(h.records), func(i int) bool { return h.records[i].zxid > since })
	return h.first + uint64(i), since >= h.floor
}

// read returns a copy of some records from a number on: whole transactions, or none if there is none
// yet. It returns false if the record of that number is no longer kept.
func (h *history[T]) read(at uint64) ([]record[T], bool) {
	if at < h.first {
		return nil, false
	}
	from := h.records[at-h.first:]
	n := min(readLen, len(from))
	for n > 0 && !from[n-1].last {
		n++
	}
	return slices.Clone(from[:n]), true
}
