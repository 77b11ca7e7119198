package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findComebacks checks that nothing that is done begins again: no task that was finished, and no
// tick of a job that was committed. The tokens decide what was later.
func findComebacks(p *past) (found []string) {
	type thing struct{ path, key string }
	begun := make(map[thing]deed) // with the greatest token
	for _, d := range p.Deeds {
		of := thing{d.Path, d.Key}
		if d.Kind == deedBegin && (begun[of].Kind == "" || d.Token.Compare(begun[of].Token) > 0) {
			begun[of] = d
		}
	}
	for _, d := range p.Deeds {
		b := begun[thing{d.Path, d.Key}]
		if d.Kind == deedDone && d.Outcome == applied && b.Kind != "" && b.Token.Compare(d.Token) > 0 {
			found = append(found, fmt.Sprintf("%s: %q was done with token %v, and began again with token %v", d.Path, d.Key, d.Token, b.Token))
		}
	}
	return found
}

// findOldTicks checks that the ticks of a job begin in the order of their times. A tick that is run
// at most once begins once.
func findOldTicks(p *past) (found []string) {
	byJob := make(map[string][]deed)
	for _, d := range p.Deeds {
		if d.Kind == deedBegin && strings.HasPrefix(inArea(d.Path), jobsPath+"/") {
			byJob[d.Path] = append(byJob[d.Path], d)
		}
	}
	for path, all := range byJob {
		slices.SortStableFunc(all, func(a, b deed) int { return a.Token.Compare(b.Token) })
		for i, d := range all[1:] {
			last := all[i]
			n := timeOf(d.Key)
			switch before := timeOf(last.Key); {
			case n < before:
				found = append(found, fmt.Sprintf("%s: %q began with token %v, after %q with token %v", path, d.Key, d.Token, last.Key, last.Token))
			case n == before && strings.HasSuffix(path, jobNames[0]):
				found = append(found, fmt.Sprintf("%s: %q began twice, with tokens %v and %v", path, d.Key, last.Token, d.Token))
			}
		}
	}
	return found
}

// timeOf returns the time in the key of a tick, which follows the job's name.
func timeOf(key string) int64 {
	_, text, _ := strings.Cut(key, " ")
	at, _ := strconv.ParseInt(text, 10, 64)
	return at
}

// findSecondOnces checks what is done once. All callers get one result. Nobody is still at it once
// somebody has the result.
func findSecondOnces(p *past) (found []string) {
	byPath := p.grantsByPath()
	first := make(map[string]*op)           // by path
	known := make(map[string]time.Duration) // when the result was
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callOnce || o.Outcome != applied {
			continue
		}
		if f := first[o.Path]; f == nil {
			first[o.Path], known[o.Path] = o, o.End
		} else if f.Got != o.Got {
			found = append(found, fmt.Sprintf("%s was done once, but %v has the result %q and %v the result %q", o.Path, f, f.Got, o, o.Got))
		}
		known[o.Path] = min(known[o.Path], o.End)
	}
	for path, at := range known {
		for _, g := range byPath[path+"/lock"] {
			if g.Until > at {
				found = append(found, fmt.Sprintf("%s was done at %.6f, but %v still does it", path, at.Seconds(), g))
			}
		}
	}
	return found
}

// findMisdeeds compares what is done with the ledger of deeds in the final tree. Each task that was
// put for sure is there, now that the queues are empty, and each deed that was acknowledged.
// Nothing is there twice, and no task that was not put.
func findMisdeeds(p *past, tree []entry) (found []string) {
	ledger := make(map[string]map[string]int) // by area and key
	for _, z := range tree {
		if !strings.HasPrefix(inArea(z.Path), deedsPath+"/") {
			continue
		}
		of := ledger[areaOf(z.Path)]
		if of == nil {
			of = make(map[string]int)
			ledger[areaOf(z.Path)] = of
		}
		if of[z.Data]++; of[z.Data] == 2 {
			found = append(found, fmt.Sprintf("%s says a second time that %q is done", z.Path, z.Data))
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callPut {
			continue
		}
		switch n := ledger[areaOf(o.Path)][o.Data]; {
		case n == 0 && o.Outcome == applied:
			found = append(found, fmt.Sprintf("the task was never done: %v", o))
		case n > 0 && o.Outcome != applied && o.Outcome != unknown:
			found = append(found, fmt.Sprintf("the task was not put, but done: %v", o))
		}
	}
	for _, d := range p.Deeds {
		if d.Kind != deedDone {
			continue
		}
		if d.Outcome == applied && ledger[areaOf(d.Path)][d.Key] == 0 {
			found = append(found, fmt.Sprintf("%s: %q was done with token %v, which is lost", d.Path, d.Key, d.Token))
		}
	}
	return found
}

// countDeeds counts what the recipes did.
func countDeeds(p *past, rep *report) {
	for _, d := range p.Deeds {
		what := string(d.Kind)
		if d.Kind != deedID {
			what = fmt.Sprintf("%s %s", strings.Split(inArea(d.Path), "/")[1], cmp.Or(string(d.Outcome), what))
		}
		rep.count(sectionChecks, "deeds: "+what, 1)
	}
}
