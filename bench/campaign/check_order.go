package campaign

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
)

// findDisorder compares the zxids of acknowledged writes and Syncs in each area with real time. A
// write acknowledged before another was issued has a smaller zxid. A Sync covers every write
// acknowledged before the Sync was issued. No two writes share a zxid. Writes that a session issues
// without waiting are applied in the order of their issue.
func findDisorder(p *past) (found []string) {
	for _, g := range p.Grants {
		var last guarded
		for _, w := range g.Guarded {
			if w.Outcome != applied {
				continue
			}
			if w.Mzxid <= last.Mzxid {
				found = append(found, fmt.Sprintf("%s: %q (zxid %d) was issued after %q (zxid %d)", g.Path, w.Data, w.Mzxid, last.Data, last.Mzxid))
			}
			last = w
		}
	}
	var last *op // the last applied op of a crowd
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Crowd == 0 || o.wrote() == 0 {
			continue
		}
		if last != nil && last.Session == o.Session && last.Begin == o.Begin && o.wrote() <= last.wrote() {
			found = append(found, fmt.Sprintf("%v was issued after %v", o, last))
		}
		last = o
	}
	areas := make(map[string][]*op)
	for i := range p.Ops {
		o := &p.Ops[i]
		areas[areaOf(o.Path)] = append(areas[areaOf(o.Path)], o)
	}
	for _, ops := range areas {
		found = append(found, disorder(ops)...)
	}
	return found
}

// disorder compares the zxids of one area.
func disorder(ops []*op) (found []string) {
	byBegin := make([]*op, 0, len(ops))
	byEnd := make([]*op, 0, len(ops))
	seen := make(map[embed.Zxid]*op)
	for _, o := range ops {
		z := o.wrote()
		if z != 0 {
			if other := seen[z]; other != nil {
				found = append(found, fmt.Sprintf("%v and %v have the same zxid", other, o))
			}
			seen[z] = o
			byEnd = append(byEnd, o)
		}
		if z != 0 || o.Zxid != 0 {
			byBegin = append(byBegin, o)
		}
	}
	slices.SortFunc(byBegin, func(a, b *op) int { return cmp.Compare(a.Begin, b.Begin) })
	slices.SortFunc(byEnd, func(a, b *op) int { return cmp.Compare(a.End, b.End) })
	var newest *op // of the ops that had ended
	for _, o := range byBegin {
		for len(byEnd) > 0 && byEnd[0].End < o.Begin {
			if newest == nil || byEnd[0].wrote() > newest.wrote() {
				newest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		switch {
		case newest == nil:
		case o.wrote() != 0 && o.wrote() < newest.wrote():
			found = append(found, fmt.Sprintf("%v has a smaller zxid than %v, which was acknowledged before the first was issued", o, newest))
		case o.Zxid != 0 && o.Zxid < newest.wrote():
			found = append(found, fmt.Sprintf("%v synced only up to %d, although %v had been acknowledged", o, o.Zxid, newest))
		}
	}
	return found
}

// String describes an op.
func (o *op) String() string {
	s := fmt.Sprintf("%s %s %q", o.Call, o.Path, o.Data)
	if o.Call == callGet || o.Call == callSyncGet {
		s = fmt.Sprintf("%s %s, which read %q", o.Call, o.Path, o.Got)
	}
	return fmt.Sprintf("%s (%s, %s; version %d, czxid %d, mzxid %d; %.6f to %.6f)", s, o.Session, o.Outcome, o.Stat.Version, o.Stat.Czxid, o.Stat.Mzxid, o.Begin.Seconds(), o.End.Seconds())
}
