package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// lasting are the checks that hold over forced recoveries. Each looks at all histories from the
// first to p. The other checks hold in each history by itself.
var lasting = []check{
	{"ordered", findOldZxids},
	{"sessions once", findSecondSessions},
	{"told first", throughout(findDoubleGrants)},
	{"tokens grow", throughout(findSmallTokens)},
	{"fenced", throughout(findStaleWrites)},
}

// throughout returns a check of all grants from the first history to p.
func throughout(find func(*past) []string) func(*past) []string {
	return func(p *past) []string {
		var all past
		for _, part := range p.parts() {
			all.Grants = append(all.Grants, part.Grants...)
			all.Breaks = append(all.Breaks, part.Breaks...)
		}
		return find(&all)
	}
}

// checkRecoveries checks what was before forced recoveries, and what must hold over them.
func checkRecoveries(p *past, tree []entry, dir string, rep *report) {
	for _, part := range p.parts()[:len(p.parts())-1] {
		checkEach(part, rep)
		checkLinear(part, rep, dir, true)
		countChecked(part, rep)
	}
	for _, c := range lasting {
		for _, text := range c.find(p) {
			rep.violate(c.promise, "%s", text)
		}
	}
	if tree == nil {
		return
	}
	found, lost := findForgotten(p, tree)
	for _, text := range found {
		rep.violate("durable", "%s", text)
	}
	rep.count(sectionSeen, "acknowledged write lost in a recovery, as it may be", lost)
}

// findOldZxids checks that nothing after a forced recovery has a zxid up to the newest one from
// before it, in the same area. What the lost members gave counts too.
func findOldZxids(p *past) (found []string) {
	newest := make(map[string]embed.Zxid)
	for _, part := range p.parts() {
		given := func(path string, z embed.Zxid, what string) {
			if old := newest[areaOf(path)]; z != 0 && z <= old {
				found = append(found, fmt.Sprintf("after a recovery %s has zxid %d, and zxid %d had been given before it", what, z, old))
			}
		}
		for i := range part.Ops {
			o := &part.Ops[i]
			given(o.Path, o.wrote(), o.String())
		}
		for _, g := range part.Grants {
			for _, w := range g.Guarded {
				given(g.Path, w.Mzxid, fmt.Sprintf("the write %q of %v", w.Data, g))
			}
		}
		maps.Copy(newest, part.newest(newest))
	}
	return found
}

// newest returns the newest zxid of each area that anybody has seen, here or before.
func (p *past) newest(before map[string]embed.Zxid) map[string]embed.Zxid {
	all := maps.Clone(before)
	see := func(path string, zxids ...embed.Zxid) {
		all[areaOf(path)] = max(all[areaOf(path)], slices.Max(zxids))
	}
	for i := range p.Ops {
		see(p.Ops[i].Path, p.Ops[i].saw())
	}
	for _, g := range p.Grants {
		see(g.Path, g.Token.Zxid)
		for _, w := range g.Guarded {
			see(g.Path, w.Mzxid)
		}
	}
	for _, r := range p.Removals {
		see(r.Path, r.Zxid)
	}
	return all
}

// saw returns the newest zxid that an op's caller has seen by it.
func (o *op) saw() embed.Zxid {
	return max(o.Zxid, o.Stat.Czxid, o.Stat.Mzxid, o.Stat.Pzxid)
}

// findSecondSessions checks that no session has the id of another one.
func findSecondSessions(p *past) (found []string) {
	first := make(map[embed.SessionID]string)
	for _, part := range p.parts() {
		for _, l := range part.Lives {
			if other, ok := first[l.ID]; ok {
				found = append(found, fmt.Sprintf("sessions %s and %s have the id %x", other, l.Name, l.ID))
			}
			first[l.ID] = l.Name
		}
	}
	return found
}

// findForgotten checks what forced recoveries have left of the ledgers. The survivor has everything
// up to the newest zxid that it has shown. What the others had acknowledged beyond that may be lost;
// it returns how much. Nothing is there twice.
func findForgotten(p *past, tree []entry) (found []string, lost int) {
	left := make(map[string][]entry) // by data
	for _, z := range tree {
		if onLedger(z.Path) {
			left[z.Data] = append(left[z.Data], z)
		}
	}
	var kept map[string]embed.Zxid // by area: what must have outlived all later recoveries
	for b := p.Before; b != nil; b = b.Before {
		shown := b.shown()
		for area, z := range shown {
			if kept != nil {
				shown[area] = min(z, kept[area])
			}
		}
		kept = shown
		for i := range b.Ops {
			o := &b.Ops[i]
			if !onLedger(o.Path) {
				continue
			}
			there := slices.ContainsFunc(left[o.Data], func(z entry) bool { return z.Path == o.Got && z.Stat.Czxid == o.wrote() })
			switch z := o.wrote(); {
			case len(left[o.Data]) > 1:
				found = append(found, fmt.Sprintf("%v was applied %d times", o, len(left[o.Data])))
			case z == 0 || there:
			case z <= kept[areaOf(o.Path)]:
				found = append(found, fmt.Sprintf("%v is lost, although member %d, which survived, had shown zxid %d", o, b.Survivor, kept[areaOf(o.Path)]))
			default:
				lost++
			}
		}
	}
	return found, lost
}

// onLedger reports whether a path is of a ledger's entry.
func onLedger(path string) bool {
	at := inArea(path)
	return strings.HasPrefix(at, numbersPath+"/") || strings.HasPrefix(at, paidPath+"/")
}

// shown returns the newest zxid of each area that the survivor has shown to sessions of its own
// process. Remote sessions do not count: nobody knows which member has served them.
func (p *past) shown() map[string]embed.Zxid {
	all := make(map[string]embed.Zxid)
	remote := make(map[string]bool)
	for _, l := range p.Lives {
		remote[l.Name] = l.Remote
	}
	for i := range p.Ops {
		if o := &p.Ops[i]; o.Member == p.Survivor && o.Outcome == applied && !remote[o.Session] {
			all[areaOf(o.Path)] = max(all[areaOf(o.Path)], o.saw())
		}
	}
	return all
}
