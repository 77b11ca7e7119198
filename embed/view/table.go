package view

import (
	"slices"
	"strings"
)

// blockLen bounds a block. A write copies one block of up to 3 KiB, and the list of all blocks: 8
// bytes for each 64 to 128 entries.
const blockLen = 128

// A table has entries in the order of their paths. A table that is published no longer changes, so
// readers need no lock. An edit makes the next table and shares with it every block that it does not
// touch.
//
// Invariants:
//  1. no block is empty or longer than blockLen;
//  2. the paths ascend, within a block and from one block to the next;
//  3. len is the number of entries.
type table[T any] struct {
	blocks []*block[T]
	len    int
}

type block[T any] struct {
	items []item[T]
	by    uint64 // the edit that may change it
}

type item[T any] struct {
	path  string
	entry *Entry[T]
}

// tableOf returns the table of sorted items.
func tableOf[T any](items []item[T]) table[T] {
	t := table[T]{len: len(items)}
	for some := range slices.Chunk(items, blockLen*3/4) {
		t.blocks = append(t.blocks, &block[T]{items: slices.Clip(some)})
	}
	return t
}

// search returns the block and the place in it where a path is, or would be, and whether it is
// there.
func (t table[T]) search(path string) (i, j int, found bool) {
	i, found = slices.BinarySearchFunc(t.blocks, path, func(b *block[T], path string) int { return strings.Compare(b.items[0].path, path) })
	switch {
	case found:
		return i, 0, true
	case i == 0:
		return 0, 0, false
	}
	i--
	j, found = slices.BinarySearchFunc(t.blocks[i].items, path, func(it item[T], path string) int { return strings.Compare(it.path, path) })
	return i, j, found
}

// get returns the entry of a path, or nil.
func (t table[T]) get(path string) *Entry[T] {
	i, j, found := t.search(path)
	if !found {
		return nil
	}
	return t.blocks[i].items[j].entry
}

// all yields the entries in order.
func (t table[T]) all(yield func(item[T]) bool) {
	for _, b := range t.blocks {
		for _, it := range b.items {
			if !yield(it) {
				return
			}
		}
	}
}

// An edit makes a table from another one, which stays as it is. After the new table is published,
// the edit is not used again.
type edit[T any] struct {
	table[T]
	number uint64 // of this edit; no other edit of the view has it
	copied bool   // blocks is the edit's own
}

// put sets the entry of a path.
func (e *edit[T]) put(path string, entry *Entry[T]) {
	if len(e.blocks) == 0 {
		e.blocks, e.copied, e.len = []*block[T]{{items: []item[T]{{path, entry}}, by: e.number}}, true, 1
		return
	}
	i, j, found := e.search(path)
	b := e.own(i)
	if found {
		b.items[j].entry = entry
		return
	}
	b.items = slices.Insert(b.items, j, item[T]{path, entry})
	e.len++
	if len(b.items) > blockLen {
		half := len(b.items) / 2
		e.blocks = slices.Insert(e.blocks, i+1, &block[T]{items: slices.Clone(b.items[half:]), by: e.number})
		clear(b.items[half:])
		b.items = b.items[:half]
	}
}

// remove removes a path that is there.
func (e *edit[T]) remove(path string) {
	i, j, _ := e.search(path)
	b := e.own(i)
	b.items = slices.Delete(b.items, j, j+1)
	e.len--
	switch {
	case len(b.items) == 0:
		e.blocks = slices.Delete(e.blocks, i, i+1)
	case i+1 < len(e.blocks) && len(b.items)+len(e.blocks[i+1].items) <= blockLen/2:
		b.items = append(b.items, e.blocks[i+1].items...)
		e.blocks = slices.Delete(e.blocks, i+1, i+2)
	}
}

// own returns a block that the edit may change, in the place of another.
func (e *edit[T]) own(i int) *block[T] {
	if !e.copied {
		e.blocks, e.copied = slices.Clone(e.blocks), true
	}
	if b := e.blocks[i]; b.by != e.number {
		e.blocks[i] = &block[T]{items: slices.Clone(b.items), by: e.number}
	}
	return e.blocks[i]
}
