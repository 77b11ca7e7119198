package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// findLosses compares the ledgers of each area with the final tree. Every acknowledged sequential
// znode and payment is there once, under the name that was acknowledged. Writes that were not
// applied are not there. The numbers have no gap. The accounts hold the sum of the payments.
func findLosses(p *past, tree []entry) (found []string) {
	left := make(map[string]entry)
	children := make(map[string][]entry)
	for _, z := range tree {
		left[z.Path] = z
		parent := z.Path[:strings.LastIndexByte(z.Path, '/')]
		children[parent] = append(children[parent], z)
	}
	byData := make(map[string][]string)
	for _, z := range children[""] {
		if area := z.Path; left[area+numbersPath].Path != "" {
			found = append(found, ledgers(area, left, children, byData)...)
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if at := inArea(o.Path); strings.HasPrefix(at, numbersPath) || strings.HasPrefix(at, paidPath) {
			found = append(found, o.settle(byData[o.Data])...)
		}
	}
	return found
}

// ledgers checks the ledgers of one area, and records the paths of each data.
func ledgers(area string, left map[string]entry, children map[string][]entry, byData map[string][]string) (found []string) {
	for _, parent := range []string{area + numbersPath, area + paidPath} {
		slices.SortFunc(children[parent], func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
		for _, z := range children[parent] {
			byData[z.Data] = append(byData[z.Data], z.Path)
		}
		found = append(found, numbering(left[parent], children[parent])...)
	}
	return append(found, balances(area, left, children[area+paidPath])...)
}

// settle compares an op with the paths at which its data was found.
func (o *op) settle(paths []string) []string {
	switch {
	case len(paths) > 1:
		return []string{fmt.Sprintf("%v was applied %d times: %v", o, len(paths), paths)}
	case o.Outcome == applied && len(paths) == 0:
		return []string{fmt.Sprintf("%v is lost", o)}
	case o.Outcome == applied && paths[0] != o.Got:
		return []string{fmt.Sprintf("%v was acknowledged as %s, but is %s", o, o.Got, paths[0])}
	case o.Outcome != applied && o.Outcome != unknown && len(paths) == 1:
		return []string{fmt.Sprintf("%v was not applied, but exists as %s", o, paths[0])}
	}
	return nil
}

// numbering checks the names of sequential znodes, none of which was ever deleted.
func numbering(parent entry, all []entry) []string {
	var last embed.Zxid
	for i, z := range all {
		if !strings.HasSuffix(z.Path, fmt.Sprintf("-%010d", i)) {
			return []string{fmt.Sprintf("%s follows %d others", z.Path, i)}
		}
		if z.Stat.Czxid <= last {
			return []string{fmt.Sprintf("%s was created at zxid %d, its predecessor at %d", z.Path, z.Stat.Czxid, last)}
		}
		last = z.Stat.Czxid
	}
	if s := parent.Stat; int(s.NumChildren) != len(all) || int(s.Cversion) != len(all) {
		return []string{fmt.Sprintf("%s reports %d children and child version %d, but has %d children and lost none", parent.Path, s.NumChildren, s.Cversion, len(all))}
	}
	return nil
}

// balances checks that every payment happened entirely and once.
func balances(area string, left map[string]entry, paid []entry) (found []string) {
	var balance, sets [accounts]int
	for _, z := range paid {
		var id string
		var from, to int
		if _, err := fmt.Sscan(z.Data, &id, &from, &to); err != nil {
			return []string{fmt.Sprintf("%s says %q", z.Path, z.Data)}
		}
		balance[from]--
		balance[to]++
		sets[from]++
		sets[to]++
	}
	for i := range accounts {
		z := left[account(area, i)]
		if z.Data != strconv.Itoa(balance[i]) || int(z.Stat.Version) != sets[i] {
			found = append(found, fmt.Sprintf("account %d of %s holds %s after %d sets; the payments make it %d after %d", i, area, z.Data, z.Stat.Version, balance[i], sets[i]))
		}
	}
	return found
}

// countChecked counts what a complete history was checked for.
func countChecked(p *past, rep *report) {
	writes, reads, synced := 0, 0, 0
	for i := range p.Ops {
		switch o := &p.Ops[i]; {
		case o.write() && o.Outcome != notApplied:
			writes++
		case o.Call == callGet && o.Outcome != notApplied:
			reads++
		case o.Call == callSyncGet && o.Outcome != notApplied:
			synced++
		}
	}
	for _, g := range p.Grants {
		rep.count(sectionChecks, "holds: "+string(g.Kind), 1)
	}
	countDeeds(p, rep)
	events, passed := 0, 0
	for _, t := range p.Tapes {
		events += len(t.Events)
	}
	for _, g := range p.Grants {
		passed += len(g.Guarded)
	}
	for kind, n := range map[string]int{
		"writes": writes, "plain reads": reads, "synced reads": synced, "sessions": len(p.Lives),
		"guarded writes": passed, "watches": len(p.Tapes), "events": events, "observers": len(p.Observers), "TTL znodes": len(p.mortals()),
	} {
		rep.count(sectionChecks, kind, n)
	}
}
