package campaign

import (
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

// findTimeTravel checks the order in which each session saw each area. A read shows at least
// everything up to the newest zxid that the session saw there before, in its reads, its Syncs or
// its own writes.
func findTimeTravel(p *past) (found []string) {
	writes := make(map[string][]*op) // acknowledged writes, by path
	deletes := make(map[string]bool) // paths that may have been deleted
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call == callDelete || o.TTL > 0 {
			deletes[o.Path] = true
		}
		if (o.Call == callCreate || o.Call == callSet) && o.wrote() != 0 {
			writes[o.Path] = append(writes[o.Path], o)
		}
	}
	type view struct{ session, area string }
	newest := make(map[view]embed.Zxid) // the newest zxid that each session has seen
	for i := range p.Ops {
		o := &p.Ops[i]
		of := view{o.Session, areaOf(o.Path)}
		seen := newest[of]
		switch {
		case o.Call != callGet && o.Call != callSyncGet:
		case o.Outcome == applied || o.Outcome == noNode && !deletes[o.Path]:
			for _, w := range writes[o.Path] {
				if z := w.wrote(); z > o.Stat.Mzxid && z <= max(seen, o.Zxid) {
					found = append(found, fmt.Sprintf("%v does not show %v, although the session had seen zxid %d", o, w, max(seen, o.Zxid)))
					break
				}
			}
		}
		newest[of] = max(seen, o.Zxid, o.wrote(), o.Stat.Mzxid)
	}
	return found
}

// findTwoStats checks that a write happened once and as it was acknowledged. Its data is seen with
// one Stat only. Data of a write that was certainly not applied is seen nowhere.
func findTwoStats(p *past) (found []string) {
	type mark struct {
		czxid, mzxid embed.Zxid
		version      int32
	}
	markOf := func(o *op) mark { return mark{o.Stat.Czxid, o.Stat.Mzxid, o.Stat.Version} }
	first := make(map[string]*op)   // by data: the first op that saw it
	refusal := make(map[string]*op) // by data: writes that did not happen
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.write() && o.Outcome != applied && o.Outcome != unknown {
			refusal[o.Data] = o
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		data := o.Data
		switch {
		case o.Outcome != applied:
			continue
		case o.Call == callGet || o.Call == callSyncGet:
			data = o.Got
		case o.Call != callCreate && o.Call != callSet:
			continue
		}
		if r := refusal[data]; r != nil && data != "" {
			found = append(found, fmt.Sprintf("%v shows a write that was not applied: %v", o, r))
		}
		if other := first[data]; other == nil {
			first[data] = o
		} else if markOf(other) != markOf(o) {
			found = append(found, fmt.Sprintf("%v and %v have the same data but different Stats", other, o))
		}
	}
	return found
}
