package view

import (
	"slices"
	"sort"

	"github.com/vivarium-go/vivarium/embed"
)

// readLen and readBytes bound the changes that a reader of the history copies at a time, unless one
// transaction has more.
const (
	readLen   = 64
	readBytes = 1 << 20
)

// historyBytes bounds what a history keeps in memory, with the values that only it still has. A
// value counts with the bytes of its data. A transaction beyond that is not kept at all.
const historyBytes = 32 << 20

// A record is a Change as the history keeps it.
type record[T any] struct {
	path     string
	zxid     embed.Zxid
	old, new *Entry[T] // nil: there was none, there is none
	repaired bool
	last     bool // of its transaction
}

// recordBytes is the size of a record without its path and values.
const recordBytes = 48

// weight returns how many bytes a record keeps in memory. A new value does not count: it is also in
// the table, or is the old value of a later record.
func (r *record[T]) weight() int {
	n := recordBytes + len(r.path)
	if r.old != nil {
		n += int(r.old.Stat.DataLength)
	}
	return n
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
//  3. it has at most max records, or one transaction;
//  4. bytes is what its records weigh, and at most historyBytes.
type history[T any] struct {
	max     int // immutable
	records []record[T]
	bytes   int
	first   uint64 // how many records were dropped: the number of the first one that is kept
	floor   embed.Zxid
}

// add appends whole transactions, and drops the oldest ones that are too many.
func (h *history[T]) add(records []record[T]) {
	h.records = append(h.records, records...)
	h.bytes += weigh(records)
	drop := 0
	for len(h.records)-drop > h.max || h.bytes > historyBytes {
		end := drop + slices.IndexFunc(h.records[drop:], func(r record[T]) bool { return r.last }) + 1
		if end == len(h.records) && h.bytes <= historyBytes {
			break
		}
		h.bytes -= weigh(h.records[drop:end])
		h.floor, drop = h.records[end-1].zxid, end
	}
	clear(h.records[:drop]) // what they refer to is free at once
	h.records, h.first = h.records[drop:], h.first+uint64(drop)
}

func weigh[T any](records []record[T]) (n int) {
	for i := range records {
		n += records[i].weight()
	}
	return n
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
	n := 0
	for bytes := 0; n < len(from) && (n < readLen && bytes < readBytes || !from[n-1].last); n++ {
		bytes += from[n].weight()
	}
	return slices.Clone(from[:n]), true
}
