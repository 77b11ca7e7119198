package tree

import (
	"slices"
	"strings"
)

// children is the set of the names of a znode's children, in two orders. It is a value: add and
// remove return a new set that shares most of its pages with the old one, which does not change.
// The zero value is the empty set.
type children struct {
	byName   *page // all names
	bySuffix *page // the names that end in ten digits
}

// add returns the set with a name added that it did not have. Pages made with the same edit may be
// changed in place.
func (c children) add(name string, edit uint64) children {
	c.byName = insert(c.byName, name, edit, strings.Compare)
	if hasSuffix(name) {
		c.bySuffix = insert(c.bySuffix, name, edit, compareSuffix)
	}
	return c
}

// remove returns the set without a name that it had. Pages made with the same edit may be changed
// in place.
func (c children) remove(name string, edit uint64) children {
	c.byName = remove(c.byName, name, edit, strings.Compare)
	if hasSuffix(name) {
		c.bySuffix = remove(c.bySuffix, name, edit, compareSuffix)
	}
	return c
}

// gather adds a name greater than all before it. The set must not be used before built is called.
func (c *children) gather(name string) {
	if c.byName == nil {
		c.byName = new(page)
	}
	c.byName.names = append(c.byName.names, name)
}

// built returns the set of the gathered names.
func (c children) built() children {
	if c.byName == nil {
		return c
	}
	names := c.byName.names
	c.byName = build(names)
	suffixed := slices.DeleteFunc(names, func(name string) bool { return !hasSuffix(name) })
	slices.SortFunc(suffixed, compareSuffix)
	c.bySuffix = build(suffixed)
	return c
}

func (c children) has(name string) bool { return c.byName.has(name, strings.Compare) }

// list returns the names of the set in order; there are n.
func (c children) list(n int) []string {
	return c.byName.appendTo(make([]string, 0, n))
}

// page returns the first n names after the given one, in order.
func (c children) page(after string, n int) (names []string) {
	c.byName.ascend(after, strings.Compare, func(name string) bool {
		names = append(names, name)
		return len(names) < n
	})
	return names
}

// next returns the name that follows the given one in order, or "" if there is none.
func (c children) next(after string) (name string) {
	c.byName.ascend(after, strings.Compare, func(next string) bool {
		name = next
		return false
	})
	return name
}

// before returns the greatest name that precedes the given one in the order of suffixes and
// matches.
func (c children) before(name string, match []string) (found string, ok bool) {
	if !hasSuffix(name) {
		return "", false
	}
	c.bySuffix.descend(name, match, compareSuffix, func(other string) bool {
		if ok = matches(other, match); ok {
			found = other
		}
		return !ok
	})
	return found, ok
}

// matches reports whether a name contains one of match. Every name matches an empty match.
func matches(name string, match []string) bool {
	return len(match) == 0 || slices.ContainsFunc(match, func(m string) bool { return strings.Contains(name, m) })
}

// compareSuffix orders names that end in ten digits: first by the digits, then by the whole name.
func compareSuffix(a, b string) int {
	if c := strings.Compare(a[len(a)-suffixLen:], b[len(b)-suffixLen:]); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}
