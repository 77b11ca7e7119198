package tree

import (
	"iter"
	"slices"
	"sync/atomic"
)

// A page is a part of an ordered set of names: a B+ tree whose leaves hold the names. Sets are copied on write. Insert
// and remove copy the pages on the way to the name and share the others, so a set of a million names costs a few pages
// per change, and a reader of an old root keeps what it has.
//
// Within one transaction nobody else has the pages it made; those are changed in place, told apart by their edit. Without
// that a Multi of thousands of creates would copy its way through every page thousands of times.
//
// Invariants:
//  1. names are in order, and so are the names below one kid and the next;
//  2. in an inner page names[i] is the least name below kids[i]; a leaf has no kids;
//  3. every page has pageMin to pageMax names, only the root may have fewer: one, or two if it is an inner page;
//  4. all leaves are equally deep;
//  5. a page changes only in the transaction that made it.
//
// The nil page is the empty set.
type page struct {
	edit    uint64
	letters atomic.Uint64 // of all names below, once somebody has asked; see lettersOf
	names   []string
	kids    []*page
}

// pageMax bounds the names of a page. Larger pages make flatter trees but each change copies more; of 16, 24 and 32 the
// middle one costs the fewest bytes, among a thousand siblings and among a million. pageMin is so far below the half that
// a page that has just been split or joined does not do the reverse after a few changes, and that a split at the end of
// the set can leave the left part fuller.
const (
	pageMax = 24
	pageMin = pageMax / 4
	pageFit = pageMax - pageMin // two pages with no more names than this are joined
)

// An order compares two names, as strings.Compare does.
type order func(a, b string) int

// build returns the set of names that are in order. Its pages are as full as can be: most of what is loaded stays as it is.
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

// parts cuts n into as few parts as fit into pages, of about the same size.
func parts(n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for i, k := 0, (n+pageMax-1)/pageMax; i < k; i++ {
			if !yield(n*i/k, n*(i+1)/k) {
				return
			}
		}
	}
}

// insert returns the set with a name that is not in it.
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

// remove returns the set without a name that is in it.
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

// descend calls fn with the names before the given one, the greatest first, until fn returns false; that it returns. It may
// leave out pages of which no name contains one of match, if there are any to contain.
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

// mayMatch is false if no name below the page contains one of match, for want of a letter. Thousands of readers in a queue have no W, and
// each of them looks for a writer.
func (p *page) mayMatch(match []string) bool {
	return len(match) == 0 || slices.ContainsFunc(match, func(m string) bool { return lettersOf(m)&^p.allLetters() == 0 })
}

// allLetters finds out what is asked for the first time. It is asked of pages that change no more.
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

// lettersOf has a bit for each byte of a string, by its lower six bits: a capital letter shares its own with no other printable character.
func lettersOf(s string) (letters uint64) {
	for i := range len(s) {
		letters |= 1 << (s[i] & 63)
	}
	return letters
}

// insert returns the page with the name, and the page to its right if that made it two.
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

// remove returns the page without the name. It may have become too small; its parent mends that.
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

// rebalance joins the kids i and i+1, of which one has become too small, into one or into two of about the same size.
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

// splitAfter splits a page that has become too large by an insert at i, and returns its right part. Names are often
// created in order; an insert at the end leaves most to the left part, which then sees no more of them.
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

// own returns the page if this transaction made it, else a copy with room for one name more.
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

// search returns where the name is in the page, or where it would be.
func (p *page) search(name string, cmp order) (int, bool) {
	return slices.BinarySearchFunc(p.names, name, cmp)
}

// kidOf returns the kid of an inner page whose part of the order the name falls in.
func (p *page) kidOf(name string, cmp order) int {
	i, found := p.search(name, cmp)
	if !found && i > 0 {
		i--
	}
	return i
}
