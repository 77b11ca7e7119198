package tree

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// check returns an error if an invariant of Tree does not hold. It looks at everything, and belongs
// to the writer.
func (t *Tree) check() error {
	alive, size, weight := int64(0), int64(0), int64(0)
	for _, e := range t.index.all() {
		v := e.newest.Load()
		if v == nil || v.staged {
			return fmt.Errorf("entry %q: left over from a failed transaction", e.path)
		}
		if err := t.checkChain(e, v); err != nil {
			return fmt.Errorf("entry %q: %w", e.path, err)
		}
		if !v.exists() {
			continue
		}
		alive++
		size += e.size(v)
		weight += e.weight(v)
		if err := t.checkZnode(e, v); err != nil {
			return fmt.Errorf("znode %q: %w", e.path, err)
		}
	}
	if err := t.checkSets(); err != nil {
		return err
	}
	if alive != t.count {
		return fmt.Errorf("%d znodes are counted, %d exist", t.count, alive)
	}
	if size != t.bytes {
		return fmt.Errorf("%d bytes are counted, the znodes have %d", t.bytes, size)
	}
	if weight != t.weight {
		return fmt.Errorf("a weight of %d is counted, the znodes have %d", t.weight, weight)
	}
	for _, path := range []string{rootPath, zookeeperPath, quotaPath, ConfigPath} {
		if e := t.index.get(path); e == nil || e.current() == nil || e.current().rest().owner != 0 {
			return fmt.Errorf("znode %q: is an initial znode, but is missing or an ephemeral", path)
		}
	}
	if visible := t.Visible(); visible > t.applied || visible < t.applied && !t.unpublished {
		return fmt.Errorf("visible is %d, applied %d, unpublished %v", visible, t.applied, t.unpublished)
	}
	return nil
}

// checkSets compares the index with the sets of mortals and quotas.
func (t *Tree) checkSets() error {
	mortals, quotas := 0, 0
	for _, e := range t.index.all() {
		if v := e.newest.Load(); v.mortal {
			mortals++
		}
		if subtree, ok := quotaOf(e.path, limitsName); ok {
			quotas++
			if t.quotas[subtree] != e {
				return fmt.Errorf("entry %q: is not among the quotas", e.path)
			}
		}
	}
	if mortals != len(t.mortals) || quotas != len(t.quotas) {
		return fmt.Errorf("%d mortals and %d quotas are kept, the index has %d and %d", len(t.mortals), len(t.quotas), mortals, quotas)
	}
	return nil
}

// checkChain checks the versions of an entry.
func (t *Tree) checkChain(e *entry, v *version) error {
	recent := slices.Contains(t.recent, made{e, v})
	prev := v.prev.Load()
	switch {
	case v.zxid > t.applied:
		return fmt.Errorf("has zxid %d, later than %d", v.zxid, t.applied)
	case !v.exists() && !recent:
		return errors.New("deleted, but still in the index")
	case prev == nil || prev == trimmed:
		return nil
	case !recent:
		return errors.New("keeps a version that no reader needs")
	case prev.zxid >= v.zxid:
		return fmt.Errorf("the version of zxid %d follows that of zxid %d", v.zxid, prev.zxid)
	}
	return nil
}

// checkZnode checks an existing znode, its parent and its children.
func (t *Tree) checkZnode(e *entry, v *version) error {
	if latest := max(v.czxid, v.mzxid, v.pzxid()); latest > v.zxid {
		return fmt.Errorf("has zxid %d in a version of zxid %d", latest, v.zxid)
	}
	if v.rest().owner != 0 && v.numChildren() != 0 {
		return errors.New("is an ephemeral with children")
	}
	if z := v.znode(); z.fault(e.path) != "" {
		return errors.New(z.fault(e.path))
	}
	if _, listed := t.mortals[e]; listed != v.mortal || listed != v.isListed() {
		return fmt.Errorf("is among the mortals: %v, but marked as such: %v", listed, v.mortal)
	}
	if e.path != rootPath {
		if e.parent == nil || e.parent != t.index.get(Parent(e.path)) || e.parent.current() == nil {
			return errors.New("has a wrong parent")
		}
		if !e.parent.current().rest().children.has(Base(e.path)) {
			return errors.New("is not among its parent's children")
		}
	}
	names := v.rest().children.list(0)
	if len(names) != v.numChildren() {
		return fmt.Errorf("counts %d children, has %d", v.numChildren(), len(names))
	}
	below := len(names)
	for _, name := range names {
		child := t.index.get(strings.TrimSuffix(e.path, "/") + "/" + name)
		if child == nil || child.current() == nil {
			return fmt.Errorf("child %q does not exist", name)
		}
		below += child.current().below()
	}
	if below != v.below() {
		return fmt.Errorf("counts %d znodes below it, has %d", v.below(), below)
	}
	return v.rest().children.check()
}

// check returns an error unless both orders are valid and contain the same names with a suffix.
func (c children) check() error {
	if err := cmp.Or(c.byName.check(strings.Compare), c.bySuffix.check(compareSuffix)); err != nil {
		return err
	}
	names := slices.DeleteFunc(c.list(0), func(name string) bool { return !hasSuffix(name) })
	slices.SortFunc(names, compareSuffix)
	if suffixed := c.bySuffix.appendTo(nil); !slices.Equal(names, suffixed) {
		return fmt.Errorf("names with a suffix are %q by name, %q by suffix", names, suffixed)
	}
	return nil
}

// check returns an error if an invariant of page does not hold in the set.
func (p *page) check(cmp order) error {
	if p == nil {
		return nil
	}
	least := 1
	if p.kids != nil {
		least = 2
	}
	_, err := p.checkSize(least, cmp)
	if err != nil {
		return err
	}
	names := p.appendTo(nil)
	for i := 1; i < len(names); i++ {
		if cmp(names[i-1], names[i]) >= 0 {
			return fmt.Errorf("name %q before %q", names[i-1], names[i])
		}
	}
	return nil
}

// checkSize checks the pages' sizes and depths. It returns the height of the page.
func (p *page) checkSize(least int, cmp order) (depth int, err error) {
	if n := len(p.names); n < least || n > pageMax || p.kids != nil && len(p.kids) != n {
		return 0, fmt.Errorf("page has %d names and %d kids", n, len(p.kids))
	}
	for i, kid := range p.kids {
		d, err := kid.checkSize(pageMin, cmp)
		if err != nil {
			return 0, err
		}
		if i > 0 && d != depth {
			return 0, fmt.Errorf("leaves at depths %d and %d", depth, d)
		}
		if kid.names[0] != p.names[i] {
			return 0, fmt.Errorf("kid begins with %q, but its parent says %q", kid.names[0], p.names[i])
		}
		depth = d
	}
	return depth + 1, nil
}
