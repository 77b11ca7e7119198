package campaign

import (
	"bytes"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	a0 = "/area0"
	r0 = a0 + registersPath + "/0-0"
)

// findNonlinear is checkLinear as a check.
func findNonlinear(p *past) []string {
	rep := newReport(&bytes.Buffer{}, func() time.Duration { return 0 })
	checkLinear(p, rep, "", true)
	return rep.mu.violations
}

func TestCheckLinear(t *testing.T) {
	create := op{Client: "c", Call: callCreate, Path: r0, Data: "w"}
	read := func(got string, version int32) op {
		o := get1("d", r0, got, 0, version)
		o.Call = callSyncGet
		return o
	}
	with := func(o op, outcome outcome) op {
		o.Outcome = outcome
		return o
	}
	gone := with(read("", 0), noNode)
	cas := set(r0, "y", 0, 1)
	cas.Version = 0
	remove := op{Client: "c", Call: callDelete, Path: r0, Version: embed.AnyVersion}
	hold(t, findNonlinear, []badHistory{
		{"a synced read misses an acknowledged write", history1(at(1, 2, create), at(3, 4, set(r0, "x", 0, 1)), at(5, 6, read("w", 0))), history1(at(1, 2, create), at(3, 6, set(r0, "x", 0, 1)), at(5, 6, read("w", 0))), "no order"},
		{"an acknowledged write is lost", history1(at(1, 2, create), at(3, 4, gone)), history1(at(1, 2, create), at(3, 4, with(remove, unknown)), at(5, 6, gone)), "no order"},
		{"a set counts twice", history1(at(1, 2, create), at(3, 4, set(r0, "x", 0, 2))), history1(at(1, 2, create), at(3, 4, set(r0, "x", 0, 1))), "no order"},
		{"two of one version pass", history1(at(1, 2, create), at(3, 9, set(r0, "x", 0, 1)), at(3, 9, cas)), history1(at(1, 2, create), at(3, 9, set(r0, "x", 0, 2)), at(3, 9, cas)), "no order"},
		{"a refusal without a reason", history1(at(1, 2, create), at(3, 4, with(cas, badVersion))), history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), unknown)), at(5, 6, with(cas, badVersion))), "no order"},
		{"an unknown write takes effect before it is issued", history1(at(1, 2, create), at(3, 4, read("x", 1)), at(5, 6, with(set(r0, "x", 0, 1), unknown))), history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), unknown)), at(5, 6, read("w", 0)), at(8, 9, read("x", 1))), "no order"},
		{"an unknown write takes effect twice", history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), unknown)), at(5, 6, read("x", 2))), history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), unknown)), at(5, 6, read("w", 0))), "no order"},
		{"what was not applied is read", history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), notApplied)), at(5, 6, read("x", 1))), history1(at(1, 2, create), at(3, 4, with(set(r0, "x", 0, 1), notApplied)), at(5, 6, read("w", 0))), "no order"},
	})
}

func TestCheckLinearAdmitsWhatItCannotDecide(t *testing.T) {
	defer func(d time.Duration) { linearMax = d }(linearMax)
	linearMax = time.Millisecond
	p := history1()
	for i := range 200 {
		o := set(r0, string(rune('a'+i)), 0, 0)
		o.Outcome = unknown
		p.Ops = append(p.Ops, at(1, 2, o))
	}
	p.Ops = append(p.Ops, at(3, 4, get1("d", r0, "?", 0, 1)))
	p.Ops[200].Call = callSyncGet
	rep := newReport(&bytes.Buffer{}, func() time.Duration { return 0 })
	checkLinear(&p, rep, "", true)
	if n := rep.mu.counts[sectionChecks]["register NOT DECIDED"]; n != 1 {
		t.Errorf("%d registers were not decided, want 1: %v, %v", n, rep.mu.counts, rep.mu.violations)
	}
}
