package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// adds returns the calls that may have added one, by path.
func (p *past) adds() map[string][]*op {
	byPath := make(map[string][]*op)
	for i := range p.Ops {
		o := &p.Ops[i]
		if (o.Call == callAdd || o.Call == callUpdate) && (o.Outcome == applied || o.Outcome == unknown) {
			byPath[o.Path] = append(byPath[o.Path], o)
		}
	}
	return byPath
}

// findLostCounts checks the sums that adds of one have returned. No two are equal. An add that was
// issued after another was acknowledged has a greater sum. No sum is greater than the number of
// adds that may have counted by then.
func findLostCounts(p *past) (found []string) {
	for path, all := range p.adds() {
		sums := make(map[int]*op)
		greatest := 0 // of the adds that had ended
		byEnd := slices.Clone(all)
		slices.SortFunc(byEnd, func(a, b *op) int { return cmp.Compare(a.End, b.End) })
		slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.Begin, b.Begin) })
		for _, o := range all {
			if o.Outcome != applied {
				continue
			}
			for ; byEnd[0].End < o.Begin; byEnd = byEnd[1:] {
				greatest = max(greatest, byEnd[0].sum())
			}
			most, _ := slices.BinarySearchFunc(all, o.End, func(a *op, end time.Duration) int { return cmp.Compare(a.Begin, end) })
			switch sum := o.sum(); {
			case sum < 1 || sum > most:
				found = append(found, fmt.Sprintf("%v returned the sum %d, but only %d may have been added to %s", o, sum, most, path))
			case sums[sum] != nil:
				found = append(found, fmt.Sprintf("%v and %v returned the same sum %d", sums[sum], o, sum))
			case sum <= greatest:
				found = append(found, fmt.Sprintf("%v returned the sum %d, but %d had been returned before", o, sum, greatest))
			}
			sums[o.sum()] = o
		}
	}
	return found
}

// sum returns what an acknowledged add has returned, or zero.
func (o *op) sum() int {
	if o.Outcome != applied {
		return 0
	}
	n, err := strconv.Atoi(o.Got)
	if err != nil {
		return -1
	}
	return n
}

// findWrongSums compares the counters and values with the final tree. Each acknowledged add counted
// once, and each of unknown outcome at most once.
func findWrongSums(p *past, tree []entry) (found []string) {
	left := make(map[string]string)
	for _, z := range tree {
		if strings.HasPrefix(inArea(z.Path), countsPath+"/") {
			left[z.Path] = z.Data
		}
	}
	for path, all := range p.adds() {
		sure := 0
		for _, o := range all {
			if o.Outcome == applied {
				sure++
			}
		}
		n, err := strconv.Atoi(cmp.Or(left[path], "0"))
		if err != nil || n < sure || n > len(all) {
			found = append(found, fmt.Sprintf("%s is %q in the end, but %d to %d were added", path, left[path], sure, len(all)))
		}
	}
	return found
}

// findOldTimes checks that the owner of a worker number uses it only for later times than all former
// owners did. So the ids of times and numbers are unique. The tokens decide who was former.
func findOldTimes(p *past) (found []string) {
	byNumber := make(map[string][]deed)
	for _, d := range p.Deeds {
		if d.Kind == deedTime {
			byNumber[d.Path] = append(byNumber[d.Path], d)
		}
	}
	for path, all := range byNumber {
		slices.SortStableFunc(all, func(a, b deed) int { return a.Token.Compare(b.Token) })
		var former, last deed // with the newest time of all former owners, and of all
		for i, d := range all {
			if i > 0 && d.Token != all[i-1].Token {
				former = last
			}
			if former.Kind != "" && d.ms() <= former.ms() {
				found = append(found, fmt.Sprintf("%s with token %v was used for the time %s, and before that with token %v for %s", path, d.Token, d.Key, former.Token, former.Key))
			}
			if last.Kind == "" || d.ms() > last.ms() {
				last = d
			}
		}
	}
	return found
}

// ms returns the time of a deedTime.
func (d deed) ms() int64 {
	at, _ := strconv.ParseInt(d.Key, 10, 64)
	return at
}

// swaps returns the acknowledged swaps of each value, by zxid, and those of unknown outcome by their
// data.
func (p *past) swaps() (sure map[string][]*op, perhaps map[string]*op) {
	sure, perhaps = make(map[string][]*op), make(map[string]*op)
	for i := range p.Ops {
		switch o := &p.Ops[i]; {
		case o.Call != callSwap:
		case o.Outcome == applied:
			sure[o.Path] = append(sure[o.Path], o)
		case o.Outcome == unknown:
			perhaps[o.Path+" "+o.Data] = o
		}
	}
	for _, all := range sure {
		slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.Stat.Mzxid, b.Stat.Mzxid) })
	}
	return sure, perhaps
}

// findForks checks that each swap has replaced the very write before it. That is the acknowledged
// one before, or a later one of unknown outcome. So no value is replaced twice, and none unseen.
func findForks(p *past) (found []string) {
	sure, perhaps := p.swaps()
	for path, all := range sure {
		last := new(op)
		for _, o := range all {
			text, data, _ := strings.Cut(o.Got, " ")
			z, err := strconv.ParseInt(text, 10, 64)
			switch old := embed.Zxid(z); {
			case err == nil && old == last.Stat.Mzxid && data == last.Data:
			case err == nil && old > last.Stat.Mzxid && old < o.Stat.Mzxid && perhaps[path+" "+data] != nil:
			default:
				found = append(found, fmt.Sprintf("%v replaced %q of zxid %s, after %v", o, data, text, last))
			}
			last = o
		}
	}
	return found
}

// findLostSwaps compares the values with the final tree. Each has the newest acknowledged swap, or
// a later one of unknown outcome.
func findLostSwaps(p *past, tree []entry) (found []string) {
	left := make(map[string]entry)
	for _, z := range tree {
		left[z.Path] = z
	}
	sure, perhaps := p.swaps()
	for path, all := range sure {
		last, z := all[len(all)-1], left[path]
		if z.Data == last.Data && z.Stat.Mzxid == last.Stat.Mzxid || z.Stat.Mzxid > last.Stat.Mzxid && perhaps[path+" "+z.Data] != nil {
			continue
		}
		found = append(found, fmt.Sprintf("%s is %q of zxid %d in the end, and not what was swapped: %v", path, z.Data, z.Stat.Mzxid, last))
	}
	return found
}

// findTwiceGiven checks that no id was given out twice.
func findTwiceGiven(p *past) (found []string) {
	given := make(map[deed]bool)
	for _, d := range p.Deeds {
		if d.Kind != deedID {
			continue
		}
		if given[d] {
			found = append(found, fmt.Sprintf("%s gave the id %s out twice", d.Path, d.Key))
		}
		given[d] = true
	}
	return found
}
