package replica

import (
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// A replica that installs a received state has not seen the transactions in between, and tells its
// audit which those are. One that lacks nothing tells of no gap.
func TestInstall_IsAGapOfTheAudit(t *testing.T) {
	r, ahead := newRig(t), newRig(t)
	var got []Audited
	r.audit = func(a Audited) { got = append(got, a) }
	for z := tree.Zxid(1); z <= 3; z++ {
		op := tree.Op{Kind: tree.KindCreate, Path: "/" + string(rune('a'+z))}
		if z < 3 {
			r.commitOne(t, z, op)
		}
		ahead.commitOne(t, z, op)
	}
	r.install(t, ahead)
	if len(got) != 1 || got[0].Op != AuditGap || got[0].Why != WhyInstall || got[0].After != 2 || got[0].Zxid != 3 || got[0].Shard != r.Shard || got[0].Wall == 0 {
		t.Fatalf("%+v", got)
	}
	r.install(t, ahead)
	if len(got) != 1 {
		t.Errorf("nothing is missing: %+v", got[1:])
	}
}
