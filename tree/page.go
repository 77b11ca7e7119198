package tree

import (
	"iter"
	"slices"
	"sync/atomic"
)

// A page is part of an ordered set of names: a B+ tree whose leaves hold the names. A set is copied
// on write. Insert and remove copy the pages on the path to the name and share the others. So a set
// of a million names costs a few pages per change, and a reader of an old root keeps what it has.
//
// Pages made within one transaction are not shared yet, so that transaction changes them in place.
// It recognizes them by their edit. Otherwise a Multi of thousands of creates would copy the same
// pages thousands of times.
//
// Invariants:
//
//  1. The names are in order, and so are the names below one kid and the next.
//  2. In an inner page, names[i] is the least name below kids[i]. A leaf has no kids.
//  3. Every page has pageMin to pageMax names. Only the root may have fewer: one, or two if it is
//     an inner page.
//  4. All leaves are equally deep.
//  5. A page changes only in the transaction that made it.
//
// The nil page is the empty set.
type page struct {
	edit    uint64
	letters atomic.Uint64 // of all names below, computed on first use; see lettersOf
	names   []string
	kids    []*page
}

// pageMax limits the names of a page. Larger pages make flatter trees, but each change copies more.
// Of 16, 24 and 32, the middle one copies the fewest bytes, both among a thousand and among a
// million siblings.
//
// pageMin is well below half of pageMax, for two reasons. A page that was just split or joined does
// not do the reverse after a few changes. A split at the end of the set can leave the left part
// fuller.
const (
	pageMax = 24
	pageMin = pageMax / 4
	pageFit = pageMax - pageMin // two neighbours with at most this many names are joined
)

// An order compares two names in the way of strings.Compare.
type order func(a, b string) int

// build returns the set of names, which are in order. Its pages are as full as possible, because
// most of what is loaded never changes.
func build(names []string) *page {
	var level []*page
	for from, to := range parts(len(names)) {
		level = append(level, &page{names: slices.Clone(names[from:to])})
	}
	for len(level) > 1 {
		var above []*page
		for from, to := range parts(len(level)) {
			p := &page{kids: slices.Clone(level[from:to])}
			for _, kid := range p.kids {
				p.names = append(p.names, kid.names[0])
			}
			above = append(above, p)
		}
		level = above
	}
	if len(level) == 0 {
		return nil
	}
	return level[0]
}

// parts cuts n into the fewest parts that fit into pages, all of about the same size.
func parts(n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for i, k := 0, (n+pageMax-1)/pageMax; i < k; i++ {
			if !yield(n*i/k, n*(i+1)/k) {
				return
			}
		}
	}
}

// insert returns the set with a name added that it did not have.
func insert(root *page, name string, edit uint64, cmp order) *page {
	if root == nil {
		return &page{edit: edit, names: []string{name}}
	}
	left, right := root.insert(name, edit, cmp)
	if right == nil {
		return left
	}
	return &page{edit: edit, names: []string{left.names[0], right.names[0]}, kids: []*page{left, right}}
}

// remove returns the set without a name that it had.
func remove(root *page, name string, edit uint64, cmp order) *page {
	root = root.remove(name, edit, cmp)
	switch {
	case len(root.names) == 0:
		return nil
	case len(root.kids) == 1:
		return root.kids[0]
	}
	return root
}

func (p *page) has(name string, cmp order) bool {
	for p != nil && p.kids != nil {
		p = p.kids[p.kidOf(name, cmp)]
	}
	if p == nil {
		return false
	}
	_, found := p.search(name, cmp)
	return found
}

// appendTo appends the names in order.
func (p *page) appendTo(names []string) []string {
	if p == nil {
		return names
	}
	if p.kids == nil {
		return append(names, p.names...)
	}
	for _, kid := range p.kids {
		names = kid.appendTo(names)
	}
	return names
}

// ascend calls fn with the names after the given one, in order, until fn returns false. Then ascend
// returns false too.
func (p *page) ascend(name string, cmp order, fn func(string) bool) bool {
	if p == nil {
		return true
	}
	i, found := p.search(name, cmp)
	switch {
	case p.kids != nil && !found && i > 0:
		i-- // this kid has smaller names, and maybe later ones
	case p.kids == nil && found:
		i++
	}
	for ; i < len(p.names); i++ {
		if p.kids == nil && !fn(p.names[i]) || p.kids != nil && !p.kids[i].ascend(name, cmp, fn) {
			return false
		}
	}
	return true
}

// descend calls fn with the names before the given one, from the greatest down, until fn returns
// false. Then descend returns false too. If match is not empty, descend may skip pages without a
// name that contains one of match.
func (p *page) descend(name string, match []string, cmp order, fn func(string) bool) bool {
	if p == nil {
		return true
	}
	i, _ := p.search(name, cmp)
	for i--; i >= 0; i-- {
		if p.kids == nil && !fn(p.names[i]) || p.kids != nil && p.kids[i].mayMatch(match) && !p.kids[i].descend(name, match, cmp, fn) {
			return false
		}
	}
	return true
}

// mayMatch returns false only if no name below the page can contain one of match, because a letter
// is missing. It matters in a queue of thousands of readers: no name has a W, and each reader looks
// for a writer.
func (p *page) mayMatch(match []string) bool {
	return len(match) == 0 || slices.ContainsFunc(match, func(m string) bool { return lettersOf(m)&^p.allLetters() == 0 })
}

// allLetters computes the letters on first use. It is only called for pages that no longer change.
func (p *page) allLetters() uint64 {
	all := p.letters.Load()
	if all != 0 || len(p.names) == 0 {
		return all
	}
	for _, kid := range p.kids {
		all |= kid.allLetters()
	}
	if p.kids == nil {
		for _, name := range p.names {
			all |= lettersOf(name)
		}
	}
	p.letters.Store(all)
	return all
}

// lettersOf returns a set of bits, one for the lower six bits of each byte. A capital letter shares
// its bit with no other printable character.
func lettersOf(s string) (letters uint64) {
	for i := range len(s) {
		letters |= 1 << (s[i] & 63)
	}
	return letters
}

// insert returns the page with the name added, and a new page to its right if it was split.
func (p *page) insert(name string, edit uint64, cmp order) (left, right *page) {
	if p.kids == nil {
		i, _ := p.search(name, cmp)
		p = p.own(edit)
		p.names = slices.Insert(p.names, i, name)
		return p, p.splitAfter(i)
	}
	i := p.kidOf(name, cmp)
	kid, next := p.kids[i].insert(name, edit, cmp)
	p = p.own(edit)
	p.names[i], p.kids[i] = kid.names[0], kid
	if next == nil {
		return p, nil
	}
	i++
	p.names = slices.Insert(p.names, i, next.names[0])
	p.kids = slices.Insert(p.kids, i, next)
	return p, p.splitAfter(i)
}

// remove returns the page without the name. If it is then too small, its parent rebalances it.
func (p *page) remove(name string, edit uint64, cmp order) *page {
	if p.kids == nil {
		i, _ := p.search(name, cmp)
		p = p.own(edit)
		p.names = slices.Delete(p.names, i, i+1)
		return p
	}
	i := p.kidOf(name, cmp)
	kid := p.kids[i].remove(name, edit, cmp)
	p = p.own(edit)
	p.names[i], p.kids[i] = kid.names[0], kid
	if len(kid.names) < pageMin {
		p.rebalance(max(i, 1) - 1)
	}
	return p
}

// rebalance joins the kids i and i+1, of which one has become too small, into one kid, or into two
// of about the same size.
func (p *page) rebalance(i int) {
	left, right := p.kids[i], p.kids[i+1]
	both := &page{
		edit:  p.edit,
		names: slices.Concat(left.names, right.names),
		kids:  slices.Concat(left.kids, right.kids),
	}
	p.kids[i] = both
	if len(both.names) > pageFit {
		p.kids[i+1] = both.split(len(both.names) / 2)
		p.names[i+1] = p.kids[i+1].names[0]
		return
	}
	p.names = slices.Delete(p.names, i+1, i+2)
	p.kids = slices.Delete(p.kids, i+1, i+2)
}

// splitAfter splits a page that an insert at i made too large, and returns the right part. Names
// are often created in order. So after an insert at the end, most names stay in the left part,
// which will receive no further names.
func (p *page) splitAfter(i int) *page {
	n := len(p.names)
	switch {
	case n <= pageMax:
		return nil
	case i == n-1:
		return p.split(n - pageMin)
	}
	return p.split(n / 2)
}

// split cuts the page at i and returns its right part.
func (p *page) split(i int) *page {
	right := &page{edit: p.edit, names: slices.Clone(p.names[i:])}
	p.names = slices.Delete(p.names, i, len(p.names))
	if p.kids != nil {
		right.kids = slices.Clone(p.kids[i:])
		p.kids = slices.Delete(p.kids, i, len(p.kids))
	}
	return right
}

// own returns the page if this transaction made it, else a copy with room for one more name.
func (p *page) own(edit uint64) *page {
	if p.edit == edit {
		p.letters.Store(0)
		return p
	}
	q := &page{edit: edit, names: append(make([]string, 0, len(p.names)+1), p.names...)}
	if p.kids != nil {
		q.kids = append(make([]*page, 0, len(p.kids)+1), p.kids...)
	}
	return q
}

// search returns the index of the name in the page, or the index where it would be.
func (p *page) search(name string, cmp order) (int, bool) {
	return slices.BinarySearchFunc(p.names, name, cmp)
}

// kidOf returns the index of the kid that covers the name.
func (p *page) kidOf(name string, cmp order) int {
	i, found := p.search(name, cmp)
	if !found && i > 0 {
		i--
	}
	return i
}
